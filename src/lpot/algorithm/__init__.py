"""Door: the original's algorithms. Ours are chosen by the search, or named in the yaml."""

from __future__ import annotations

from typing import Any

from lpot.core.errors import NotAvailableYet

_INSTEAD = "Bias and weight correction are switched on in the yaml (`quantization.recipes`)."

ALGORITHMS = ("fast_bias_correction", "weight_correction")  # as `quantization.recipes` has them


class Algorithm:
    """The base class of the original's algorithms."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotAvailableYet("Algorithm", _INSTEAD)


def algorithm_registry(algorithm_type: str, location: str = "") -> Any:
    raise NotAvailableYet("algorithm_registry", _INSTEAD)


__all__ = ["ALGORITHMS", "Algorithm", "algorithm_registry"]
