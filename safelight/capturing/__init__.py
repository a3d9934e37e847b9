"""The provenance of a step in code that is not ours: what is x0, noise, x_t, target, loss, EMA."""
