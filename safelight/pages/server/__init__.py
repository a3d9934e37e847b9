"""The live dashboard: a small read-only web server in a process of its own."""
