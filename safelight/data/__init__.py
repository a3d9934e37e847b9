"""Images in: sources, decoding, and batches that are a function of (seed, step)."""
