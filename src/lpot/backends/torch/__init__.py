"""PyTorch: any nn.Module as it is, without stubs and without fusing by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from torch import nn

from lpot.backends.torch import abilities
from lpot.backends.torch.build import build
from lpot.backends.torch.convert import without_fake_quant
from lpot.backends.torch.dtypes import copied
from lpot.backends.torch.files import save as saving
from lpot.backends.torch.files.checkpoint import checkpoint_folder, read_checkpoint
from lpot.backends.torch.files.exported import is_exported
from lpot.backends.torch.files.load import (
    check_plain,
    in_float,
    load_module,
    refuse_script,
    unwrapped,
)
from lpot.backends.torch.files.save import reduced
from lpot.backends.torch.foreign import TorchPresenter
from lpot.backends.torch.gains import gains
from lpot.backends.torch.inspect import inspect
from lpot.backends.torch.kernels.codes import has_codes
from lpot.backends.torch.model import TorchModel, handle_of
from lpot.backends.torch.modules.base import LowModule
from lpot.backends.torch.observe import observe
from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.profile import profile
from lpot.backends.torch.prune.fit_kept import fit_kept
from lpot.backends.torch.prune.store import ModuleWeights
from lpot.backends.torch.prune.verbs import PruneVerbs, variant_of
from lpot.backends.torch.ranges import Observed, inlet_name
from lpot.backends.torch.run import run
from lpot.backends.torch.tensors import tensors
from lpot.backends.torch.training.curvature import curvature
from lpot.backends.torch.training.loop import teaching_loss, training_loop
from lpot.backends.torch.training.train import Trainee, finish_training, prepare_training, resumed
from lpot.core.backend import Approach, Backend, ModelSpec, Observations, Target
from lpot.core.batch import Inputs, Reader
from lpot.core.errors import DataError, UnsupportedModel
from lpot.core.numerics.histogram import TensorStats
from lpot.core.recipe import OpKey, Recipe
from lpot.core.repairs import Repairs
from lpot.core.results.profile import OpTime
from lpot.core.results.tensors import Pair
from lpot.core.space import Capability


class TorchBackend(PruneVerbs, Backend[TorchModel]):
    """Modules are replaced one by one; where the flow can be read, int8 is kept between them."""

    name = "pytorch"
    stores_halves = "makes nothing faster"
    best_name = "checkpoint"  # the folder's name in a workspace, as the original has it

    def __init__(self) -> None:
        has_codes()  # torch warns once that they will go
        self._ranges: WeakKeyDictionary[Observations, Observed] = WeakKeyDictionary()

    def load(self, source: Any, spec: ModelSpec = ModelSpec()) -> TorchModel:
        """An nn.Module, or a folder in the layout of transformers' save_pretrained."""
        if isinstance(source, TorchModel):
            return source
        prepared = load_module(source)
        model = TorchModel(self, prepared.plain(), prepared=prepared, names=spec.inputs)
        shown = None if spec.sample is None else spec.sample()
        if shown is not None:
            with suppress(DataError):  # calibration tells what is wrong with it
                inputs = Reader(model.input_names, model.tries())(shown).inputs
                model.prepared = prepared.acquainted(inputs)
        return model

    def opened(self, source: Any, spec: ModelSpec = ModelSpec()) -> TorchModel:
        """A module that lpot quantized is run as it is; what others quantized is refused."""
        native = unwrapped(source) if isinstance(source, nn.Module) else None
        if native is None or not any(isinstance(part, LowModule) for part in native.modules()):
            return self.load(source, spec)
        return handle_of(self, native, spec.inputs)

    def inspect(
        self, model: TorchModel, approach: Approach = "static", target: Target = "this"
    ) -> Capability:
        return inspect(_prepared(model), approach, target)

    def observe(
        self, model: TorchModel, batches: Iterable[Inputs], sizes: Sequence[int] = (0,)
    ) -> dict[int, Observations]:
        return observe(_prepared(model), batches, sizes)

    def build(
        self, model: TorchModel, recipe: Recipe, observations: Observations | None = None
    ) -> TorchModel:
        variant = variant_of(model, recipe)
        if variant is not None:  # a pruned model has statistics of its own
            model, observations = variant.model, variant.observed.get(recipe.samples)
        prepared = _prepared(model)
        if observations is not None:
            model.prepared = prepared = prepared.completed(recipe, observations)
        ranges = None
        if observations is not None:
            ranges = self._ranges.setdefault(observations, Observed(observations))
            prepared = prepared.equalized(ranges.factors)
        trial = build(prepared, recipe, ranges)
        made = TorchModel(
            self,
            trial.module,
            recipe=recipe,
            names=model._names,
            skipped=trial.skipped,
            captured=trial.captured,
            folded=trial.folded,
            origin=prepared,
            probe=observations.probe[0]
            if observations is not None and observations.probe
            else None,
            remake=lambda: build(prepared, recipe, ranges).module,
        )
        made.shape = model.shape
        return made

    def run(self, model: TorchModel, inputs: Inputs) -> list[np.ndarray]:
        return run(model.native, inputs)

    def save(self, model: TorchModel, path: Path) -> Path:
        return saving.save(model, path)

    def restore(self, path: Path, module: nn.Module | None = None) -> TorchModel:
        """What `save` wrote; `module` is the architecture, which transformers models don't need."""
        return saving.restore(self, Path(path), _plain(module))

    def restore_into(self, path: Path, module: nn.Module) -> TorchModel:
        return self.restore(path, module)

    def load_checkpoint(self, folder: Path, module: nn.Module) -> TorchModel:
        """A checkpoint folder: ours, or best_configure.yaml and best_model_weights.pt alone."""
        folder, architecture = checkpoint_folder(Path(folder).expanduser()), _plain(module)
        if (folder / saving.FACTS).is_file():
            return saving.restore(self, folder, architecture)
        found = read_checkpoint(self, folder, architecture)
        found.comes_from(architecture)
        return found

    def save_weights(self, folder: Path) -> Path:
        """The original's best_model_weights.pt, added to a saved folder."""
        return saving.add_weights_file(checkpoint_folder(Path(folder).expanduser()))

    def usage(self, model: TorchModel, path: Path) -> str:
        return (
            "import lpot\n"
            f'model = lpot.load("{path}", module=net).native  # net: your FP32 nn.Module\n'
            "outputs = model(inputs)"
        )

    def prepare_training(
        self, model: TorchModel, recipe: Recipe, observations: Observations | None, samples: int
    ) -> Trainee:
        """What the user's own training loop gets: int8's rounding is in it."""
        return prepare_training(_prepared(model), recipe, observations, samples)

    def finish_training(
        self, model: TorchModel, trainee: Trainee, returned: Any = None
    ) -> TorchModel:
        """The FP32 model with the trained weights, to be observed and built like any other."""
        prepared = finish_training(_prepared(model), trainee, returned)
        rounding = {op: astuple(item) for op, item in trainee.rounding.items()}
        return TorchModel(
            self, prepared.fresh(), prepared=prepared, names=model._names, rounding=rounding
        )

    def weight_store(self, native: nn.Module) -> ModuleWeights:
        if is_exported(native):
            raise UnsupportedModel(
                "a program of torch.export can't be trained: give the nn.Module it was made from"
            )
        refuse_script(native)
        inner = unwrapped(native)
        if isinstance(inner, nn.Module):
            check_plain(inner)
            inside = {id(part): name for name, part in native.named_modules()}
            return ModuleWeights(inner, f"{inside[id(inner)]}." if inner is not native else "")
        return ModuleWeights(native)

    def fitter(self, native: nn.Module) -> Callable[[Mapping[str, Any], Sequence[Inputs]], Any]:
        """Fits the weights that pruners keep to what the module gave when this was called."""
        root = self.weight_store(native).root
        original = copied(root).eval()
        return lambda keep, batches: fit_kept(root, original, keep, batches)

    def teaching_loss(self, options: Mapping[str, Any], teacher: Any) -> Any:
        """What a loop of the user's own is taught by."""
        return teaching_loss(teacher, options)

    def training_loop(
        self, section: Mapping[str, Any], loader: Iterable[Any]
    ) -> Callable[[nn.Module], None]:
        """The loop that `quantization.train` of the yaml describes."""
        return training_loop(section, loader)

    def without_fake_quant(self, source: Any, spec: ModelSpec = ModelSpec()) -> nn.Module:
        """The float module of one that was trained with torch.ao's fake quantization."""
        return without_fake_quant(_unwrapped(source))

    def resume_training(self, model: TorchModel, path: Path) -> TorchModel:
        """The same from the folder that it was saved to."""
        trained = saving.restore(self, path, _prepared(model).root)
        prepared = resumed(_prepared(model), trained.native, trained.rounding or {})
        return TorchModel(self, prepared.fresh(), prepared=prepared, names=model._names)

    def useful_repairs(
        self, model: TorchModel, recipe: Recipe, observations: Observations
    ) -> Iterator[Repairs]:
        """SmoothQuant with the best factors for each tensor, if there is anything to smooth.

        Weights that were trained with rounding stay as they are.
        """
        prepared = _prepared(model)
        ranges = self._ranges.setdefault(observations, Observed(observations))
        repairs = replace(recipe.repairs, tensor_smoothing=True)
        smooth = replace(recipe, repairs=repairs)
        if prepared.equalizes and ranges.smooth(prepared.equalized(ranges.factors), smooth):
            yield repairs

    def input_stats(
        self, model: TorchModel, recipe: Recipe, observations: Observations
    ) -> dict[OpKey, TensorStats]:
        seen = {key: observations.tensors.get(inlet_name(key.name)) for key in recipe.low_ops}
        return {key: stats for key, stats in seen.items() if stats is not None}

    def gains(
        self, model: TorchModel, recipe: Recipe, observations: Observations
    ) -> dict[OpKey, float]:
        """Seconds that each op saves in low precision, at the calibration data's shapes."""
        return gains(_prepared(model), recipe, observations, self.versions())

    def curvature(
        self, model: TorchModel, recipe: Recipe, observations: Observations
    ) -> dict[OpKey, float]:
        """Expected squared output error of each op's rounding, from gradients of the outputs."""
        return curvature(_prepared(model), recipe, observations)

    def presenter(self, model: TorchModel, inputs: Inputs, path: Path) -> TorchPresenter:
        return TorchPresenter(model, inputs, path)

    def tensors(
        self, model: TorchModel, low: TorchModel, ops: Sequence[OpKey], inputs: Inputs
    ) -> dict[OpKey, Pair]:
        return tensors(low.origin or _prepared(model), low, ops, inputs)

    def profile(self, model: TorchModel, inputs: Inputs, runs: int) -> tuple[OpTime, ...]:
        """Seconds of each op, over so many runs."""
        return profile(model, inputs, runs)

    def reduced(self, value: Any) -> Any:
        return reduced(value)

    def versions(self) -> dict[str, str]:
        return abilities.versions()

    def worst_error(self, kind: str) -> float:
        return abilities.worst_error()


def _plain(module: Any) -> Any:
    """The nn.Module of a handle, or the module itself."""
    plain = _unwrapped(module)
    return in_float(plain) if isinstance(plain, nn.Module) else plain


def _unwrapped(module: Any) -> Any:
    return module.native if isinstance(module, TorchModel) else unwrapped(module)


def _prepared(model: TorchModel) -> Prepared:
    if model.prepared is None:
        raise UnsupportedModel(
            "this model is already quantized: trials are built from the FP32 model it came from"
        )
    return model.prepared
