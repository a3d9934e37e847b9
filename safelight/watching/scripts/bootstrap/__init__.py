"""The folder that python finds its `sitecustomize` in when `safelight run` starts it. Nothing else may lie here."""
