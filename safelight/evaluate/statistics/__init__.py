"""Tail probabilities, and the jackknife behind the error of a distance."""
