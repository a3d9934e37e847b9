"""The provenance of a step in a user's code: what is x0, noise, x_t, target, loss, EMA."""
