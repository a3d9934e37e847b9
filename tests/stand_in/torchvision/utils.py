"""Empty: the examples save no grids."""
