"""Measurements of speed and endurance; each module is a script: python -m bench.NAME."""
