"""Parts of the probes of one run: what is measured when, and what happens where a probe fails."""
