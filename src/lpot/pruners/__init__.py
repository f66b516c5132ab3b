"""Door: the original's pruners, which are named in the yaml here."""

from __future__ import annotations

from lpot.pruners.pattern import PATTERNS
from lpot.pruners.pruner import PRUNERS

__all__ = ["PATTERNS", "PRUNERS"]
