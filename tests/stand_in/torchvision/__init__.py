"""Stands in for torchvision, whose wheel does not import beside a CPU build of torch: only names that are imported."""

from . import transforms as transforms
from . import utils as utils
