"""All that the core knows of a framework: a few verbs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from lpot.core.batch import Inputs
from lpot.core.model import Model
from lpot.core.numerics import TensorStats
from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import Capability

Approach = Literal["static", "dynamic", "auto"]
Target = Literal["this", "avx2", "vnni", "amx"]


@dataclass(frozen=True)
class ModelSpec:
    """What the configuration says of the model."""

    name: str = "model"
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Observations:
    """What one pass over the calibration data told, in bounded memory.

    `tensors` maps a tensor (or module) name to its statistics. `probe` keeps the inputs of the
    first batches, for label-free comparisons of outputs; it is never written to disk.
    """

    samples: int
    tensors: Mapping[str, TensorStats]
    probe: tuple[Inputs, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)  # what one backend alone needs


@runtime_checkable
class Backend(Protocol):
    """One framework. No verb changes the model it is given.

    `rank` may be left out by a third party: strategies then take the ops in the model's order. So
    may three verbs of the same form, (model, recipe, observations), which are looked for by name:
    `advise` gives recipes that may be nearer to FP32, guessed from statistics; `gains` the seconds
    each op saves in low precision; `curvature` that of the loss, which hawq_v2 goes by. `run_all`
    is for models that read their data themselves: evaluation runs them to the end of it. `offers`
    gives notes on what else can be had of a result; `folds` says that there is a folded graph.
    """

    name: str

    def load(self, source: Any, spec: ModelSpec = ModelSpec()) -> Model:
        """A path or a native object, checked and made ready."""
        ...

    def inspect(
        self, model: Model, approach: Approach = "static", target: Target = "this"
    ) -> Capability:
        """Every op, what it can be, and why not more."""
        ...

    def observe(
        self, model: Model, batches: Iterable[Inputs], sizes: Sequence[int]
    ) -> dict[int, Observations]:
        """One pass; a snapshot for each number of samples asked for (0: all of them)."""
        ...

    def build(self, model: Model, recipe: Recipe, observations: Observations | None) -> Model:
        """The model under the recipe, in milliseconds. Dynamic recipes need no observations."""
        ...

    def run(self, model: Model, inputs: Inputs) -> list[Any]:
        """Outputs as numpy arrays, in the model's order."""
        ...

    def save(self, model: Model, path: Path) -> Path: ...

    def restore(self, path: Path) -> Model: ...

    def rank(self, model: Model, recipe: Recipe, observations: Observations) -> dict[OpKey, float]:
        """Harm of each low-precision op, larger is worse, without labels."""
        ...

    def versions(self) -> dict[str, str]:
        """What the results depend on: framework and its kernels."""
        ...
