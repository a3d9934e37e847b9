"""Runs as a person sees them: what is shown as plain data, the pages that are served live, the report in one file."""
