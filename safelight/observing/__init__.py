"""What is seen of a run: measured after every step, recorded, diagnosed while it trains."""
