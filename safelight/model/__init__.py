"""The denoiser: how it is built, started from a file, made smaller in memory, and what it will need."""
