"""Makes the benchmarks importable however pytest is started: they are scripts of the repository, not installed."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
