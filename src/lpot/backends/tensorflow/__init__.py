"""TensorFlow: frozen graphs in, graphs of stock TensorFlow's INT8 ops out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lpot.backends.tensorflow import run as running
from lpot.backends.tensorflow import save as saving
from lpot.backends.tensorflow.advise import input_stats, useful_repairs
from lpot.backends.tensorflow.build import Built, build_net, narrows
from lpot.backends.tensorflow.convert import without_fake_quant
from lpot.backends.tensorflow.foreign import TensorflowPresenter
from lpot.backends.tensorflow.gains import gains
from lpot.backends.tensorflow.inspect import inspect
from lpot.backends.tensorflow.loop import KnowledgeDistillationLoss, hooked_loop, provide
from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.observe import observe
from lpot.backends.tensorflow.profile import profile
from lpot.backends.tensorflow.prune import KerasWeights
from lpot.backends.tensorflow.pruning.verbs import PruneVerbs, left_in
from lpot.backends.tensorflow.quick import run_few
from lpot.backends.tensorflow.rank import rank
from lpot.backends.tensorflow.reading import load as loading
from lpot.backends.tensorflow.runtime import tf
from lpot.backends.tensorflow.saturation import error_of
from lpot.backends.tensorflow.tensors import tensors, wiring
from lpot.core.backend import Approach, Backend, ModelSpec, Observations, Target
from lpot.core.batch import Inputs
from lpot.core.compress.prunable import variant_in
from lpot.core.compress.resume import TrainingFile
from lpot.core.cpu import overflow_of
from lpot.core.numerics.histogram import TensorStats
from lpot.core.recipe import OpKey, Recipe
from lpot.core.repairs import Repairs
from lpot.core.results.profile import OpTime
from lpot.core.results.report import GraphNode
from lpot.core.results.tensors import Pair
from lpot.core.space import Capability

logger = logging.getLogger(__name__)


class TensorflowBackend(PruneVerbs, Backend[TensorflowModel]):
    name = "tensorflow"
    best_name = "best_model.pb"
    repairs = Repairs(bias_correction=True)  # those that a user may ask for
    stores_halves = (
        "makes nothing faster (weights over 10 MB are widened in each run, which takes time)"
    )
    exports_from_source = True  # its INT8 ops are its own
    folds = True  # graph optimization has something to give without 16-bit floats

    def load(self, source: Any, spec: ModelSpec = ModelSpec()) -> TensorflowModel:
        if isinstance(source, TensorflowModel):
            return source
        loaded = loading.load(source, spec)
        return TensorflowModel(
            self,
            loaded.net,
            loaded.form,
            loaded.source,
            signature=loaded.signature,
            form_of_call=loaded.form_of_call,
            keras=loaded.keras,
        )

    def without_fake_quant(self, source: Any, spec: ModelSpec = ModelSpec()) -> Any:
        """The GraphDef of a model that was trained with fake quantization, without it."""
        return without_fake_quant(self.load(source, spec).native.as_graph_def())

    def weight_store(self, native: Any) -> KerasWeights:
        """The kernels of a Keras model in training, for pruners."""
        return KerasWeights(native)

    def hooked_loop(
        self,
        section: Mapping[str, Any],
        loader: Iterable[Any],
        hooks: Any,
        file: TrainingFile | None = None,
    ) -> Callable[[Any], None]:
        """The loop that `pruning.train` describes, for a Keras model."""
        return hooked_loop(section, loader, hooks, file=file)

    def distilling_loop(
        self,
        section: Mapping[str, Any],
        loader: Iterable[Any],
        teacher: Any,
        hooks: Any,
        file: TrainingFile | None = None,
    ) -> Callable[[Any], None]:
        """The loop that `distillation.train` describes, for Keras models."""
        return hooked_loop(section, loader, hooks, teacher, file)

    def teaching_loss(self, options: Mapping[str, Any], teacher: Any) -> Any:
        """What a loop of the user's own is taught by."""
        criterion = KnowledgeDistillationLoss(**options)
        criterion.teacher_model = teacher
        return criterion

    def provide_trainers(self) -> None:
        """Keras's optimizers and losses, by name."""
        provide()

    def inspect(
        self, model: TensorflowModel, approach: Approach = "static", target: Target = "this"
    ) -> Capability:
        return inspect(model, approach, target)

    def observe(
        self, model: TensorflowModel, batches: Iterable[Inputs], sizes: Sequence[int] = (0,)
    ) -> dict[int, Observations]:
        return observe(model, batches, sizes)

    def build(
        self, model: TensorflowModel, recipe: Recipe, observations: Observations | None = None
    ) -> TensorflowModel:
        variant = None if model.is_pruned else variant_in(model.variants, recipe)
        if variant is not None:  # a pruned model has statistics of its own
            model, observations = variant.model, variant.observed.get(recipe.samples)
        made = Built(model.net, {key: "fp32" for key in recipe.ops})
        if recipe.low_ops or narrows(recipe) or recipe.repairs:
            here = left_in(recipe, model.prepared) if model.is_pruned else recipe
            made = build_net(model.prepared, here, observations)
        built = TensorflowModel(
            self,
            made.net,
            model.form,
            model.source,
            recipe=recipe,
            precisions=made.precisions,
            signature=model.signature,
            probe=observations.probe[0] if observations and observations.probe else None,
            form_of_call=model.form_of_call,
        )
        built.drawn = made.drawn
        return built

    def run(self, model: TensorflowModel, inputs: Inputs) -> list[np.ndarray]:
        return running.run(model, inputs)

    def run_all(self, model: TensorflowModel, inputs: Inputs) -> list[np.ndarray]:
        """For evaluation: a graph that reads its data itself gives all of them."""
        return running.run(model, inputs, steps=-1)

    def run_few(self, model: TensorflowModel, batches: Sequence[Inputs]) -> list[list[np.ndarray]]:
        return run_few(model, batches)

    def save(self, model: TensorflowModel, path: Path) -> Path:
        return saving.save(model, path)

    def restore(self, path: Path) -> TensorflowModel:
        model = saving.restore(self, path)
        if trouble := overflow_of(model.recipe, self.worst_error):
            logger.warning("%s: %s", path, trouble)
        return model

    def usage(self, model: TensorflowModel, path: Path) -> str:
        if not path.is_dir():
            return super().usage(model, path)
        return (
            "import tensorflow as tf\n"
            f'model = tf.saved_model.load("{path}").signatures["serving_default"]\n'
            "outputs = model(tf.constant(inputs))"
        )

    def rank(
        self, model: TensorflowModel, recipe: Recipe, observations: Observations
    ) -> dict[OpKey, float]:
        return rank(model, recipe, observations)

    def input_stats(
        self, model: TensorflowModel, recipe: Recipe, observations: Observations
    ) -> dict[OpKey, TensorStats]:
        return input_stats(model, recipe, observations)

    def useful_repairs(
        self, model: TensorflowModel, recipe: Recipe, observations: Observations
    ) -> Iterator[Repairs]:
        return useful_repairs(model, recipe, observations)

    def gains(
        self, model: TensorflowModel, recipe: Recipe, observations: Observations
    ) -> dict[OpKey, float]:
        return gains(self, model, recipe, observations)

    def presenter(self, model: TensorflowModel, inputs: Inputs, path: Path) -> TensorflowPresenter:
        return TensorflowPresenter(model)

    def tensors(
        self, model: TensorflowModel, low: TensorflowModel, ops: Sequence[OpKey], inputs: Inputs
    ) -> dict[OpKey, Pair]:
        return tensors(model, low, ops, inputs)

    def wiring(self, model: TensorflowModel) -> tuple[GraphNode, ...]:
        return wiring(model)

    def profile(self, model: TensorflowModel, inputs: Inputs, runs: int) -> tuple[OpTime, ...]:
        """Seconds of each op, over so many runs."""
        return profile(model, inputs, runs)

    def versions(self) -> dict[str, str]:
        return {"tensorflow": tf.__version__}

    def worst_error(self, kind: str) -> float:
        return error_of(kind)
