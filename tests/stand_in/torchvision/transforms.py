"""Empty: the examples transform nothing."""
