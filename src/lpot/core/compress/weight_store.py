"""The weights of a model that is being trained, and those that a yaml's names stand for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from lpot.core.compress.masks import Array, Mask
from lpot.core.errors import ConfigError, did_you_mean

COMPUTED = (
    "it is computed from other tensors in each run (by a parametrization, such as weight_norm): "
    "remove that first"
)


class WeightStore(Protocol):
    """The weights of a model that is being trained, by name."""

    def names(self) -> Sequence[str]:
        """Those that are pruned unless told otherwise: of convolutions, linears and the like."""
        ...

    def further(self) -> Mapping[str, str]:
        """What is pruned only by its full name, and the weight that it stands for: lookup tables,
        matrices of the user's own, and other names of a weight that is shared."""
        ...

    def others(self) -> Sequence[str]:
        """Everything else that has a name: layers without weights, biases, norms."""
        ...

    def computed(self) -> Sequence[str]:
        """Weights that are made from others in each run, and can't be set."""
        ...

    def read(self, name: str) -> Array: ...

    def mask(self, name: str, keep: Mask) -> None:
        """Set to zero, in place, what is not kept."""
        ...

    def watch(self, names: Iterable[str]) -> None:
        """Remember the last gradients of these: a loop may clear them before the batch ends."""
        ...

    def release(self) -> None:
        """Watch no more."""
        ...

    def gradient(self, name: str) -> Array | None:
        """None where there is none, or none can be told."""
        ...

    def pull(self, name: str, amount: Array) -> None:
        """Add to the gradient."""
        ...

    def snapshot(self) -> Any: ...

    def restore(self, snapshot: Any) -> None: ...

    def packed(self, snapshot: Any) -> dict[str, np.ndarray]:
        """A snapshot as arrays, for a file."""
        ...

    def unpacked(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """The snapshot that it was."""
        ...


def chosen(
    store: WeightStore, names: Sequence[str], where: str
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The weights that these names stand for (all, where there are none), and biases with them.

    A layer, or a part of the model, stands for its own weights, and `*` for any one part of a name.
    """
    known, further, others = list(store.names()), store.further(), list(store.others())
    if not known and not names:
        raise ConfigError("the model has no convolution or linear layer to prune")
    found: list[str] = []
    biases: list[str] = []
    for name in names:
        inside = _matching(name, known) or [further[each] for each in _matching(name, further)]
        added = _matching(name, others) if name.rpartition(".")[2] == "bias" else []
        if _matching(name, store.computed()):
            raise ConfigError(f"given {name!r}: {COMPUTED}", "names", where)
        if not inside and not added:
            raise ConfigError(_unknown(name, known, others), "names", where)
        found += inside
        biases += added
    weights = tuple(dict.fromkeys(found if names else known))
    pairs = {name: f"{name.rpartition('.')[0]}.bias" for name in weights}
    alone = [name for name in biases if name not in pairs.values()]
    if alone:
        raise ConfigError(
            f"given {alone[0]!r}: a bias goes with the outputs of its weight, so name that, too",
            "names",
            where,
        )
    return weights, {name: bias for name, bias in pairs.items() if bias in biases}


def _matching(name: str, known: Iterable[str]) -> list[str]:
    """Those that a name stands for.

    >>> _matching("layer.*.fc", ["layer.0.fc.weight", "layer.0.attention.fc.weight"])
    ['layer.0.fc.weight']
    """
    pattern = re.compile(re.escape(name).replace(r"\*", "[^.]*") + r"(\..*)?")
    return [each for each in known if pattern.fullmatch(each)]


def _unknown(name: str, known: Sequence[str], others: Sequence[str]) -> str:
    accepted = f"expected weights such as {', '.join(known[:3])}" if known else "it has none"
    if name in others:
        return f"given {name!r}, which has no weights to prune; {accepted}"
    near = did_you_mean(name, known)
    return f"given {name!r}, which is not a weight of this model{near}; {accepted}"
