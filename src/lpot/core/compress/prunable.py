"""What a backend gives for structured pruning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, runtime_checkable

import numpy as np

from lpot.core.batch import Inputs
from lpot.core.compress.groups import Group, Left
from lpot.core.compress.masks import Mask
from lpot.core.compress.resume import TrainingFile
from lpot.core.compress.settings import Distill
from lpot.core.compress.weight_store import WeightStore
from lpot.core.errors import HistoryError
from lpot.core.model import Model
from lpot.core.numerics.observations import Observations
from lpot.core.recipe import Recipe
from lpot.core.repairs import pruned

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    M = TypeVar("M", bound=Model, default=Model)
else:
    from typing import TypeVar

    M = TypeVar("M")


@dataclass(frozen=True, eq=False)
class Parts:
    """What could be cut from a model: groups of channels with the importance of their units, blocks
    of layers that hand on what they get, and those of them that one layer could stand for."""

    groups: tuple[Group, ...] = ()
    importance: Mapping[str, np.ndarray] = field(default_factory=dict)
    blocks: Mapping[str, bool] = field(default_factory=dict)  # does it give a tuple?
    mergers: Mapping[str, Any] = field(default_factory=dict)  # how: the backend's own words


@dataclass(frozen=True, eq=False)
class Variant(Generic[M]):
    """A pruned model, and what calibration saw of it by number of samples."""

    model: M
    observed: Mapping[int, Observations]


def variant_in(variants: Mapping[str, Variant[M]], recipe: Recipe) -> Variant[M] | None:
    """The pruned model that a recipe speaks of; None where it speaks of none."""
    ratio = recipe.repairs.pruning
    if ratio is None:
        return None
    word = pruned(ratio)
    if word not in variants:
        raise HistoryError(
            f"the recipe is for a model {word}, which no longer exists: run the same job again"
        )
    return variants[word]


@runtime_checkable
class Prunable(Protocol[M]):
    """Can remove channels and blocks of layers, and train what is left after the original."""

    def check_prunable(self, model: M) -> None:
        """Raises where nothing can be cut from a model of this form."""
        ...

    def parts(self, model: M, batches: Sequence[Inputs], blocks: bool = True) -> Parts:
        """Found by running, and each removal tried once."""
        ...

    def pruned(self, model: M, parts: Parts, left: Left) -> M:
        """What is left of the model; it is not trained."""
        ...

    def refitted(
        self,
        model: M,
        parts: Parts,
        left: Left,
        batches: Sequence[Inputs],
        most: int | None = None,
    ) -> M:
        """The same, its layers (`most` of them behind each cut, and those that stand for blocks)
        fitted to the original's outputs on these batches, without training."""
        ...

    def distilled(self, student: M, teacher: M, loader: Iterable[Any], settings: Distill) -> M:
        """The student trained after its teacher."""
        ...

    def reopen(self, model: M, path: Path) -> M:
        """A pruned model of `model`, from the folder that it was saved to."""
        ...

    def keep_variant(
        self, model: M, word: str, variant: M, observed: Mapping[int, Observations]
    ) -> None:
        """From now on, recipes with this word are built from the variant."""
        ...


@runtime_checkable
class Sparsifiable(Protocol):
    """Can set weights to zero in a model that is being trained."""

    def weight_store(self, native: Any) -> WeightStore:
        """The weights of the framework's own object, to be masked in place."""
        ...

    def hooked_loop(
        self,
        section: Mapping[str, Any],
        loader: Iterable[Any],
        hooks: Any,
        file: TrainingFile | None = None,
    ) -> Callable[[Any], None]:
        """The loop that a `train` section describes, which calls the hooks."""
        ...

    def provide_trainers(self) -> None:
        """Make the framework's optimizers and losses known by name."""
        ...


@runtime_checkable
class Fits(Protocol):
    """Can fit the weights that pruners keep to what the model gave before."""

    def fitter(self, native: Any) -> Callable[[Mapping[str, Mask], Sequence[Inputs]], Any]:
        """For this model, as it is now: a function of what is kept and of batches, which changes it
        in place."""
        ...


@runtime_checkable
class Teaches(Protocol):
    """Can train a student after a teacher."""

    def distilling_loop(
        self,
        section: Mapping[str, Any],
        loader: Iterable[Any],
        teacher: Any,
        hooks: Any,
        file: TrainingFile | None = None,
    ) -> Callable[[Any], None]:
        """The loop that `distillation.train` describes."""
        ...

    def teaching_loss(self, options: Mapping[str, Any], teacher: Any) -> Any:
        """For loops of the user's own: `teach(inputs, output=None)`, then `blended(output, loss)`
        or a call with output and labels, in the framework's order."""
        ...
