"""The processes of a foreign loop: what each tells the first one of its share, and what that makes of it."""
