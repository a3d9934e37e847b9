"""Training: the step, the loop around it, and the state that survives."""
