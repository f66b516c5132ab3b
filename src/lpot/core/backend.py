"""All that the core knows of a framework: a few verbs, most of them with defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, runtime_checkable

import numpy as np

from lpot.core.batch import Inputs
from lpot.core.cpu import overflow_of
from lpot.core.errors import ConfigError, UnsupportedModel, WorkspaceError
from lpot.core.files.card import compare_card, read_card, recipe_of, write_card
from lpot.core.model import Model
from lpot.core.numerics.histogram import TensorStats
from lpot.core.numerics.observations import Observations
from lpot.core.ptq.advice import advise
from lpot.core.ptq.gains import measured_gains
from lpot.core.ptq.sensitivity import sensitivity
from lpot.core.recipe import OpKey, Recipe
from lpot.core.repairs import NONE, Repairs
from lpot.core.space import Capability, Rule

__all__ = [
    "Approach",
    "Backend",
    "Caching",
    "Differentiable",
    "InPlaceCache",
    "ModelSpec",
    "Observations",
    "Presenter",
    "Presenting",
    "Profiled",
    "Target",
    "Traced",
    "Trainable",
    "Trainee",
]

if TYPE_CHECKING:  # defaults of type variables are not in Python 3.11
    from typing_extensions import TypeVar

    from lpot.core.results.profile import OpTime
    from lpot.core.results.report import GraphNode
    from lpot.core.results.tensors import Pair

    M = TypeVar("M", bound=Model, default=Model)
    M_contra = TypeVar("M_contra", bound=Model, default=Model, contravariant=True)
else:
    from typing import TypeVar

    M = TypeVar("M")
    M_contra = TypeVar("M_contra", contravariant=True)


Approach = Literal["static", "dynamic", "auto", "weight_only"]
Target = Literal["this", "avx2", "vnni", "amx"]


@dataclass(frozen=True)
class ModelSpec:
    """What the configuration says of the model."""

    name: str = "model"
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    signature: str = ""  # of a SavedModel that has several
    # The first calibration batch, for models that do not tell their inputs.
    sample: Callable[[], Any] | None = field(default=None, compare=False)


class Backend(ABC, Generic[M]):
    """One framework; `M` is its handle of a model. No verb changes the model it is given.

    A framework gives the abstract verbs, and `write` and `read` for its files. Ranking, advice,
    gains, feeds and cards come with this class; a backend that knows a better way overrides them.
    What only some frameworks can do at all is in the protocols below: `Trainable`, `Profiled`,
    `Traced`, `Differentiable`.
    """

    name: str
    best_name: str = "best_model"  # of the best model, file or folder, in a workspace
    repairs: Repairs = NONE  # those that a user may ask for
    folds: bool = False  # is there a folded graph to be had without low precision?
    floats: tuple[str, ...] = ()  # of 16 bits, that a whole model's floats can be computed in
    over: str = ""  # of a runtime's backend: the framework whose files it runs
    present: Presenter | None = None  # what makes the objects of another framework of its models
    exports_from_source: bool = False  # what it saves no longer says what other runtimes need
    # What weights kept as float16 in files, and computed wider, do to speed; empty: there are none.
    stores_halves: str = ""

    def for_approach(self, approach: Approach, settings: Mapping[str, Any]) -> Backend[Any]:
        """The backend that serves an approach: itself, or one that does that alone.

        `settings` is what the configuration says of it.
        """
        if approach == "weight_only":
            raise ConfigError(
                f"weight_only is not available for backend {self.name}: give an ONNX model, or a "
                "transformers decoder (its folder or object), which is written as one",
                path="quantization.approach",
            )
        return self

    def offering_few_bits(self, rules: Sequence[Rule], settings: Mapping[str, Any]) -> Backend[Any]:
        """The same backend with few bits for the weights of the ops that these rules speak of.

        `settings` is what the configuration says of such formats.
        """
        raise ConfigError(
            f"weights in few bits ({rules[0]}) are not available for backend {self.name}: give an "
            "ONNX model",
            path=rules[0].path,
        )

    @abstractmethod
    def load(self, source: Any, spec: ModelSpec = ModelSpec()) -> M:
        """A path or a native object, checked and made ready."""

    def opened(self, source: Any, spec: ModelSpec = ModelSpec()) -> M:
        """To be run as it is, not to be tuned: what is in low precision already is welcome."""
        return self.load(source, spec)

    @abstractmethod
    def inspect(
        self, model: M, approach: Approach = "static", target: Target = "this"
    ) -> Capability:
        """Every op, what it can be, and why not more."""

    @abstractmethod
    def observe(
        self, model: M, batches: Iterable[Inputs], sizes: Sequence[int] = (0,)
    ) -> dict[int, Observations]:
        """One pass; a snapshot for each number of samples asked for (0: all of them)."""

    @abstractmethod
    def build(self, model: M, recipe: Recipe, observations: Observations | None = None) -> M:
        """The model under the recipe, in milliseconds. Dynamic recipes need no observations."""

    @abstractmethod
    def run(self, model: M, inputs: Inputs) -> list[Any]:
        """Outputs as numpy arrays, in the model's order."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """What the results depend on: framework and its kernels."""

    def worst_error(self, kind: str) -> float:
        """How far the largest sum of 8-bit products is off on this CPU, relative to the truth."""
        return 0.0

    def overflow(self, model: M, recipe: Recipe | None) -> str:
        """What this CPU does to a model that was made with all 8 bits; empty if nothing."""
        return overflow_of(recipe, self.worst_error)

    def reduced(self, value: Any) -> Any:
        """As `reducer_override` of a pickler: how a value of the framework goes to a process of
        ours, its weights as buffers apart (`pickle.PickleBuffer`) and not pickled."""
        return NotImplemented

    # -- files -------------------------------------------------------------------------------

    def save(self, model: M, path: Path) -> Path:
        """The model at the path, or under its usual name in a folder, with its card beside it."""
        path = path / self.best_name if path.is_dir() else path
        try:
            self.write(model, path)
            write_card(model, path)
        except OSError as error:
            raise WorkspaceError(f"{path}: can't write the model ({error.strerror})") from error
        return path

    def restore(self, path: Path) -> M:
        """What `save` wrote; what differs here from where it was tuned is logged."""
        card = read_card(path)
        compare_card(card, path, self.versions())
        if not path.exists():
            raise UnsupportedModel(f"{path}: no such file or folder")
        model = self.read(path)
        model.recipe, model.met = recipe_of(card, path), card.get("met")
        return model

    def restore_into(self, path: Path, module: Any) -> M:
        """The same where files hold weights alone, and the user gives the architecture."""
        raise ConfigError(f"a {self.name} model's file holds its architecture", "module")

    def write(self, model: M, path: Path) -> None:
        """The model's own file or folder. Needed unless `save` is overridden."""
        raise NotImplementedError(f"backend {self.name} has neither `write` nor its own `save`")

    def read(self, path: Path) -> M:
        """What `write` wrote. Needed unless `restore` is overridden."""
        raise NotImplementedError(f"backend {self.name} has neither `read` nor its own `restore`")

    def outcome(self, model: M, recipe: Recipe) -> Recipe:
        """What `build` makes of a recipe: ops that it leaves in float all the same are so here."""
        return recipe

    # -- what is known of ops without labels -------------------------------------------------

    def rank(self, model: M, recipe: Recipe, observations: Observations) -> dict[OpKey, float]:
        """Sensitivity of each low-precision op: what it does to the outputs, larger is worse."""
        return sensitivity(self, model, recipe, observations)

    def advise(self, model: M, recipe: Recipe, observations: Observations) -> Iterator[Recipe]:
        """Recipes that may be nearer to FP32 than this one, guessed from statistics."""
        if recipe.low_ops:
            inputs = self.input_stats(model, recipe, observations)
            yield from advise(recipe, inputs, self.inspect(model, "auto"))
            for repairs in self.useful_repairs(model, recipe, observations):
                yield replace(recipe, repairs=repairs)

    def input_stats(
        self, model: M, recipe: Recipe, observations: Observations
    ) -> Mapping[OpKey, TensorStats]:
        """What calibration saw of the input of each low-precision op, for `advise`."""
        seen = observations.tensors
        return {key: seen[key.name] for key in recipe.low_ops if key.name in seen}

    def useful_repairs(
        self, model: M, recipe: Recipe, observations: Observations
    ) -> Iterator[Repairs]:
        """Repairs that outlier channels call for, for `advise`."""
        yield from ()

    def gains(self, model: M, recipe: Recipe, observations: Observations) -> dict[OpKey, float]:
        """Seconds that each op saves in low precision; negative where it loses."""
        return measured_gains(self, model, recipe, observations)

    # -- what few need to override -----------------------------------------------------------

    def run_all(self, model: M, inputs: Inputs) -> list[Any]:
        """For evaluation: a model that reads its data itself runs to the end of them."""
        return self.run(model, inputs)

    def run_few(self, model: M, batches: Sequence[Inputs]) -> list[list[Any]]:
        """Outputs of a few batches, of a model that is hardly run again: nothing to prepare for."""
        return [self.run(model, inputs) for inputs in batches]

    def wiring(self, model: M) -> tuple[GraphNode, ...]:
        """The graph for drawings; empty where there is none."""
        return ()

    def usage(self, model: M, path: Path) -> str:
        """How the model saved at `path` is loaded and run, in three lines of Python."""
        return f'import lpot\nmodel = lpot.load("{path}")\noutputs = model(inputs)'

    def offers(self, model: M) -> tuple[str, ...]:
        """Notes on what else can be made of the result."""
        return ()


@runtime_checkable
class Profiled(Protocol[M_contra]):
    """Can tell the time of single ops."""

    def profile(self, model: M_contra, inputs: Inputs, runs: int) -> tuple[OpTime, ...]:
        """Seconds of each op, over so many runs."""
        ...


@runtime_checkable
class Traced(Protocol[M_contra]):
    """Can show the tensors between ops."""

    def tensors(
        self, model: M_contra, low: M_contra, ops: Sequence[OpKey], inputs: Inputs
    ) -> Mapping[OpKey, Pair]:
        """Of each op, what FP32 and the other model make of the same inputs."""
        ...


@runtime_checkable
class Differentiable(Protocol[M_contra]):
    """Can differentiate the loss, which hawq_v2 goes by."""

    def curvature(
        self, model: M_contra, recipe: Recipe, observations: Observations
    ) -> dict[OpKey, float]:
        """Second derivatives by op, times the squared error that its rounding makes."""
        ...


class Presenter(Protocol):
    """Between a framework and a runtime that tunes its model as a file."""

    model: Model  # as given, in its framework

    def feeds(self, inputs: Inputs) -> dict[str, np.ndarray]:
        """A batch of the framework by the names of the file's inputs."""
        ...

    def __call__(self, model: Any) -> Any:
        """An object like the framework's own that computes with this model."""
        ...


@runtime_checkable
class Presenting(Protocol[M_contra]):
    """Can hand its models to other runtimes, and make objects of its own of what they run."""

    def presenter(self, model: M_contra, inputs: Inputs, path: Path) -> Presenter:
        """For the model as it was written to `path`, and a batch that it runs on."""
        ...


@runtime_checkable
class Opening(Protocol):
    """Runs files; what can't be opened raises an LpotError that says why."""

    def open_file(self, path: Path, recipe: Recipe | None = None) -> Any: ...


@runtime_checkable
class Converting(Protocol):
    """Has files of its own, which it makes of ONNX files."""

    def convert(self, source: Path, target: Path) -> None: ...


class InPlaceCache(Protocol):
    """A decoder whose KV cache is written to where it lies."""

    def bind(self, inputs: Mapping[str, np.ndarray], tokens: tuple[int, ...], past: int) -> None:
        """What is read next, without the cache: rows and tokens of it, behind so many others."""
        ...

    def run(self) -> np.ndarray:
        """The logits of what is bound; the next run writes into the same array."""
        ...


@runtime_checkable
class Caching(Protocol[M_contra]):
    """Can keep a decoder's KV cache in place."""

    def in_place(self, model: M_contra, rows: int, room: int) -> InPlaceCache | None:
        """Buffers for so many rows and positions; None for a model that can't use them."""
        ...


class Trainee(Protocol):
    """A model that is being trained with rounding in it."""

    @property
    def native(self) -> Any:
        """What the user's loop trains."""
        ...

    @property
    def seen(self) -> Sequence[Inputs]:
        """The first inputs that it was trained with, to be observed again."""
        ...


@runtime_checkable
class Trainable(Protocol[M]):
    """Quantization-aware training."""

    def prepare_training(
        self, model: M, recipe: Recipe, observations: Observations | None, samples: int
    ) -> Trainee:
        """What the user's own training loop gets: the rounding of int8 is in it."""
        ...

    def finish_training(self, model: M, trainee: Any, returned: Any = None) -> M:
        """The FP32 model with the trained weights, to be observed and built like any other."""
        ...

    def resume_training(self, model: M, path: Path) -> M:
        """The same from the folder that it was saved to."""
        ...

    def training_loop(
        self, section: Mapping[str, Any], loader: Iterable[Any]
    ) -> Callable[[Any], None]:
        """The loop that `quantization.train` of the yaml describes."""
        ...
