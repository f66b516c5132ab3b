"""The handle users hold: a model of any framework with the same few verbs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lpot.core import words
from lpot.core.batch import Inputs, InputSpec, Runs
from lpot.core.compress.sparsity import Sparsity, count_zeros
from lpot.core.errors import UnsupportedModel
from lpot.core.recipe import OpKey, Recipe

if TYPE_CHECKING:
    from lpot.core.backend import Backend


class Model(ABC):
    """One model and the backend that serves it. Backends subclass this for their extra attributes.

    Attributes that the handle does not have are looked up on the framework's own object, so that
    old scripts which got that object go on working.
    """

    backend: Backend[Any]
    recipe: Recipe | None = None  # how it was quantized; None for the model as given
    met: bool | None = None  # did it meet the bar; None when nothing was evaluated
    card: Mapping[str, Any] = MappingProxyType({})  # what the job adds to the card beside the file
    precisions: Mapping[OpKey, str] = MappingProxyType({})  # what ops became, if not as the recipe
    probe: Inputs | None = None  # one batch of inputs, to verify what is saved
    holds_architecture: bool = True  # does a saved file say what to compute, or is that code?

    trainable: Any = None  # what was trained, where `native` is that frozen into another form
    native_hint = ""  # how an eval_func runs the native object, after a comma or semicolon

    @property
    @abstractmethod
    def native(self) -> Any:
        """The framework's own object, ready for eval_func."""

    @property
    @abstractmethod
    def input_names(self) -> tuple[str, ...] | None:
        """Names in order; None where the framework can't tell."""

    def tries(self) -> Runs | None:
        """How to try inputs out, where names and number alone don't tell how a batch is meant."""
        return None

    @property
    def inputs(self) -> tuple[InputSpec, ...] | None:
        """Names, types and shapes where the framework knows them."""
        return None

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the weights as they will lie on disk."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Hash of structure and weights: the same model gives the same string in any process."""

    @property
    def skeleton(self) -> Any:
        """The object that another process needs beside the file; None where the file is enough."""
        return None

    @property
    def file(self) -> Path | None:
        """The file that holds this very model, where there is one: it need not be written again."""
        return None

    @property
    def runner(self) -> Any:
        """What a function marked `@lpot.takes_session` receives; the native object by default."""
        return self.native

    @property
    def model(self) -> Any:
        return self.native

    @property
    def framework(self) -> str:
        return self.backend.name

    @property
    def graph_info(self) -> dict[str, str]:
        """Op name → op type."""
        return {key.name: key.kind for key in self.backend.inspect(self).ops}

    def __repr__(self) -> str:
        ops = self._kind
        bar = {True: ", meets the bar", False: ", misses the bar", None: ""}[self.met]
        return f"<lpot model for {self.framework}: {ops}, {words.size(self.nbytes)}{bar}>"

    @property
    def _kind(self) -> str:
        """One word for what its ops are."""
        if self.recipe is not None and self.recipe.low_ops:
            return "quantized"
        became = {word for word in self.precisions.values() if word != "removed"} - {"fp32"}
        return " and ".join(sorted(word.upper() for word in became)) or "FP32"

    def save(self, path: str | Path) -> Path:
        """Write the model and its card; returns the path written."""
        return self.backend.save(self, Path(path))

    def report_sparsity(self) -> tuple[Sparsity, float]:
        """Zeros by weight, as a table when printed, and their share of all weights in percent."""
        from lpot.core.compress.prunable import Sparsifiable  # which knows this module

        if not isinstance(self.backend, Sparsifiable):
            raise UnsupportedModel(
                f"the zeros of a {self.backend.name} model are not counted: those of torch modules "
                "and Keras models are"
            )
        store = self.backend.weight_store(self.native if self.trainable is None else self.trainable)
        found = count_zeros({name: store.read(name) for name in store.names()})
        return found, 100 * found.share

    def export_onnx(self, path: str | Path, inputs: Any = None) -> Path:
        """The model as an ONNX file, where the backend can write one."""
        raise UnsupportedModel(
            f"a {self.backend.name} model can't be exported to ONNX by lpot: save it in its own "
            "format"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.backend.run(self, kwargs if kwargs and not args else args)

    def describes_itself(self, path: Path) -> bool:
        """Does what was saved there say what to compute?"""
        return self.holds_architecture

    def close(self) -> None:  # noqa: B027 - nothing to free is a fine answer
        """Free what is costly to hold (sessions, threads). The model can still be used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "native":
            raise AttributeError(name)
        return getattr(self.native, name)
