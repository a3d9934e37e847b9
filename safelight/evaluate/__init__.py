"""How good the images are: features, and distances between sets of them.

Some functions here have the name of the module they come from: import names from such a module as
`from safelight.evaluate.frechet import FrechetDistance`, never the module itself. Nothing here imports torch.
"""

from safelight.evaluate.diversity import Diversity, diversity
from safelight.evaluate.figures import Figure
from safelight.evaluate.frechet import FrechetDistance, frechet, influence, plain_frechet
from safelight.evaluate.kernel import KernelDistance, KernelReference, fit_kernel_reference, kernel_distance
from safelight.evaluate.memorisation import Memorisation, memorisation
from safelight.evaluate.modes import Modes, modes
from safelight.evaluate.moments import Moments
from safelight.evaluate.neighbours import Neighbourhood, precision_recall
from safelight.evaluate.reference import Projection, Reference, fit_reference, principal
from safelight.evaluate.significance import Verdict, compare, compare_kernel

__all__ = [
    "Diversity",
    "Figure",
    "FrechetDistance",
    "KernelDistance",
    "KernelReference",
    "Memorisation",
    "Modes",
    "Moments",
    "Neighbourhood",
    "Projection",
    "Reference",
    "Verdict",
    "compare",
    "compare_kernel",
    "diversity",
    "fit_kernel_reference",
    "fit_reference",
    "frechet",
    "influence",
    "kernel_distance",
    "memorisation",
    "modes",
    "plain_frechet",
    "precision_recall",
    "principal",
]  # fmt: skip
