"""Questions put to a run: each measures, on copies or on what a step made anyway, and touches nothing."""
