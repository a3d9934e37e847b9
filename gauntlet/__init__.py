"""Fault injection: known faults in living runs, healthy twins beside them, and how many are told from each other."""
