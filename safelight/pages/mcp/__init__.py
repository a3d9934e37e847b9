"""Runs as an agent reads them, over the Model Context Protocol: looking, never acting."""
