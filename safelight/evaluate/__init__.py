"""How good the images are: features, and distances between sets of them.

Some functions here have the name of the module they come from: import other names from such a module as
`from safelight.evaluate.frechet import FrechetDistance`, never the module itself. Nothing here imports torch.
"""

from safelight.evaluate.diversity import diversity
from safelight.evaluate.frechet import frechet
from safelight.evaluate.kernel import kernel_distance
from safelight.evaluate.memorisation import memorisation
from safelight.evaluate.modes import modes
from safelight.evaluate.moments import Moments
from safelight.evaluate.neighbours import precision_recall
from safelight.evaluate.reference import Reference, fit_reference
from safelight.evaluate.significance import compare

__all__ = [
    "Moments", "Reference", "compare", "diversity", "fit_reference", "frechet", "kernel_distance", "memorisation",
    "modes", "precision_recall",
]  # fmt: skip
