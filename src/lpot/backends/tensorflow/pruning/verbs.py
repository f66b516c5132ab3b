"""The verbs of structured pruning, on handles of Keras models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lpot.backends.tensorflow import save as saving
from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.prepare import Prepared
from lpot.backends.tensorflow.pruning.cut import left_of, rebuilt, removed
from lpot.backends.tensorflow.pruning.distill import distill
from lpot.backends.tensorflow.pruning.measure import importance, sound_groups
from lpot.backends.tensorflow.pruning.record import find_blocks
from lpot.backends.tensorflow.pruning.refit import refit
from lpot.backends.tensorflow.pruning.source import (
    adopted,
    check_copy,
    handle,
    root_of,
    values_of,
)
from lpot.core.batch import Inputs, split
from lpot.core.compress.groups import Left
from lpot.core.compress.prunable import Parts, Variant
from lpot.core.compress.settings import Distill
from lpot.core.numerics.observations import Observations
from lpot.core.recipe import Recipe


class PruneVerbs:
    """A part of TensorflowBackend."""

    def check_prunable(self, model: TensorflowModel) -> None:
        root_of(model)

    def parts(
        self, model: TensorflowModel, batches: Sequence[Inputs], blocks: bool = True
    ) -> Parts:
        check_copy(model, batches[0])
        root, values = root_of(model), [values_of(model, inputs) for inputs in batches]
        found = find_blocks(root) if blocks else {}
        groups = tuple(sound_groups(root, values[0], found))
        return Parts(groups, importance(root, groups, values), dict.fromkeys(found, False))

    def pruned(self, model: TensorflowModel, parts: Parts, left: Left) -> TensorflowModel:
        return handle(model, _smaller(root_of(model), parts, left))

    def refitted(
        self,
        model: TensorflowModel,
        parts: Parts,
        left: Left,
        batches: Sequence[Inputs],
        most: int | None = None,
    ) -> TensorflowModel:
        root = root_of(model)
        small = _smaller(root, parts, left)
        masks = left_of(root, parts.groups, left.outside)
        values = [values_of(model, inputs) for inputs in batches]
        refit(small, root, values, masks, most)
        return handle(model, small)

    def distilled(
        self,
        student: TensorflowModel,
        teacher: TensorflowModel,
        loader: Iterable[Any],
        settings: Distill,
    ) -> TensorflowModel:
        def read(raw: Any) -> tuple[Sequence[Any], Any]:
            batch = split(raw, teacher.input_names)
            return values_of(teacher, batch.inputs), batch.labels

        trained = rebuilt(root_of(student))
        distill(trained, root_of(teacher), loader, read, settings)
        return handle(teacher, trained)

    def reopen(self, model: TensorflowModel, path: Path) -> TensorflowModel:
        backend: Any = self
        return adopted(model, saving.restore(backend, path))

    def keep_variant(
        self,
        model: TensorflowModel,
        word: str,
        variant: TensorflowModel,
        observed: Mapping[int, Observations],
    ) -> None:
        model.variants[word] = Variant(variant, observed)


def left_in(recipe: Recipe, prepared: Prepared) -> Recipe:
    """For a pruned model: without what is quantized in the full one and no longer there.

    TensorFlow numbers scopes of like names in the order of their calls, so that behind a block that
    is gone a layer may have another name: it becomes what most of its kind become.
    """
    there = {*prepared.layers, *prepared.followers}
    low = {*recipe.low_ops}
    ops = {key: one for key, one in recipe.ops.items() if key not in low or key.name in there}
    for layer in prepared.layers.values():
        alike = Counter(recipe.ops[key] for key in recipe.ops if key.kind == layer.key.kind)
        if layer.key not in recipe.ops and alike:
            ops[layer.key] = alike.most_common(1)[0][0]
    return replace(recipe, ops=ops)


def _smaller(root: Any, parts: Parts, left: Left) -> Any:
    blocks = find_blocks(root) if left.removed else {}
    gone = [blocks[name] for name in left.removed]
    return removed(root, parts.groups, left.outside, gone)
