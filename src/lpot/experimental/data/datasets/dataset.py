"""Door: the original's module of datasets, under its experimental path."""

from lpot.data.datasets.dataset import *  # noqa: F403
from lpot.data.datasets.dataset import __all__ as __all__
