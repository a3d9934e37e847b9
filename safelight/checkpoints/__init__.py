"""Checkpoints: written whole or not at all, verified when read, and no pickle anywhere."""
