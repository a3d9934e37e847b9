"""Probes: measurements of a run on copies, or on what a step computed anyway. They change nothing."""
