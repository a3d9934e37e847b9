"""The one-file report: the pages of the dashboard with everything they show inside them."""
