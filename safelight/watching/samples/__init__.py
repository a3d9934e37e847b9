"""What is drawn of a loop that is not ours, and how good it is."""
