"""Door: the names of patterns, `parameters.pattern` of a pruner in the yaml."""

from __future__ import annotations

from typing import Any

from lpot.core.compress.masks import PATTERNS
from lpot.core.errors import NotAvailableYet


def pattern_registry(pattern_type: str) -> Any:
    raise NotAvailableYet("pattern_registry", "Any tile can be named: `pattern: tile_pattern_4x8`.")


__all__ = ["PATTERNS", "pattern_registry"]
