"""The record of a run: what was measured and what happened, in one SQLite file."""
