"""Settings: the tree, its presets, how layers are put together, and what cannot work."""

from safelight.config.tree import Config as Config
