"""Proofs about the repository: that a refactoring changed no byte of a run, that no test fails by chance."""
