"""Scripts that know nothing of Safelight, run by python itself, under watch. Nothing here imports torch at once."""
