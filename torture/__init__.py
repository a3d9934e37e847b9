"""What a run must survive, done to it many times from one seed: see docs/torture.md."""
