"""Safelight trains diffusion models and keeps watch over the training."""

__version__ = "0.1.0"
