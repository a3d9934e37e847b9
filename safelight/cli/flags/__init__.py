"""The flags of commands: those that several share, what they choose, and those of linting."""
