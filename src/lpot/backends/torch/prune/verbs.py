"""The verbs of structured pruning, on handles of torch models."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from lpot.backends.torch.files import save as saving
from lpot.backends.torch.model import TorchModel
from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.prune.cut import Shape, left_of, removed, shape_of, skipped
from lpot.backends.torch.prune.distill import distill
from lpot.backends.torch.prune.measure import find_blocks, importance, sound_groups
from lpot.backends.torch.prune.merge import find_mergers, merged
from lpot.backends.torch.prune.refit import refit
from lpot.backends.torch.prune.store import check_trainable
from lpot.backends.torch.training.loop import taught_loss, training_loop
from lpot.core.batch import Inputs
from lpot.core.compress.groups import Left
from lpot.core.compress.prunable import Parts, Variant, variant_in
from lpot.core.compress.resume import TrainingFile
from lpot.core.compress.settings import Distill
from lpot.core.errors import UnsupportedModel
from lpot.core.numerics.observations import Observations
from lpot.core.recipe import Recipe

GONE = "removed by pruning"


class PruneVerbs:
    """A part of TorchBackend."""

    def check_prunable(self, model: TorchModel) -> None:
        _root(model)

    def parts(self, model: TorchModel, batches: Sequence[Inputs], blocks: bool = True) -> Parts:
        root = _root(model)
        groups = tuple(sound_groups(root, batches[0]))
        found = find_blocks(root, batches[0]) if blocks else {}
        return Parts(
            groups,
            importance(root, groups, batches),
            found,
            find_mergers(root, batches[0], found),
        )

    def pruned(self, model: TorchModel, parts: Parts, left: Left) -> TorchModel:
        return _handle(model, _smaller(_root(model), parts, left))

    def refitted(
        self,
        model: TorchModel,
        parts: Parts,
        left: Left,
        batches: Sequence[Inputs],
        most: int | None = None,
    ) -> TorchModel:
        root = _root(model)
        small = _smaller(root, parts, left)
        masks = left_of(root, parts.groups, left.outside)
        rows = {
            name: mask.nonzero()[:, 0].tolist() for (name, axis), mask in masks.items() if not axis
        }
        refit(small, root, batches, rows, most)
        return _handle(model, small)

    def distilled(
        self, student: TorchModel, teacher: TorchModel, loader: Iterable[Any], settings: Distill
    ) -> TorchModel:
        trained = distill(
            copy.deepcopy(_root(student)), copy.deepcopy(_root(teacher)), loader, settings
        )
        return _handle(teacher, trained)

    def reopen(self, model: TorchModel, path: Path) -> TorchModel:
        backend: Any = self
        found = saving.restore(backend, path, _root(model))
        return _handle(model, found.native)

    def hooked_loop(
        self,
        section: Mapping[str, Any],
        loader: Iterable[Any],
        hooks: Any,
        file: TrainingFile | None = None,
    ) -> Callable[[nn.Module], None]:
        """Where the loss knows a teacher, that is the model as it was before."""
        if "KnowledgeDistillationLoss" not in section["criterion"]:
            return training_loop(section, loader, hooks, file=file)
        return lambda module: self.distilling_loop(section, loader, module, hooks, file)(module)

    def provide_trainers(self) -> None:
        """They are known since the loop's module was imported."""

    def distilling_loop(
        self,
        section: Mapping[str, Any],
        loader: Iterable[Any],
        teacher: nn.Module,
        hooks: Any,
        file: TrainingFile | None = None,
    ) -> Callable[[nn.Module], None]:
        check_trainable(teacher)
        ((_, options),) = section["criterion"].items()
        return training_loop(section, loader, hooks, taught_loss(teacher, options or {}), file)

    def keep_variant(
        self,
        model: TorchModel,
        word: str,
        variant: TorchModel,
        observed: Mapping[int, Observations],
    ) -> None:
        model.variants[word] = Variant(variant, observed)


def variant_of(model: TorchModel, recipe: Recipe) -> Variant[TorchModel] | None:
    """The pruned model that a recipe speaks of; None where it is that model itself."""
    return None if model.shape is not None else variant_in(model.variants, recipe)


def _smaller(root: nn.Module, parts: Parts, left: Left) -> nn.Module:
    small = removed(root, parts.groups, left.outside)
    return skipped(merged(small, left.merged, parts.mergers), left.removed, parts.blocks)


def _handle(source: TorchModel, module: nn.Module) -> TorchModel:
    """A pruned module as a model that trials can be built from."""
    root = module.cpu().float().eval()
    prepared = Prepared(root)
    made = TorchModel(source.backend, prepared.fresh(), prepared=prepared, names=source._names)
    made.shape = shape_of(root, _root(source)) if source.shape is None else source.shape
    return made


def _root(model: TorchModel) -> nn.Module:
    if model.prepared is None:
        raise UnsupportedModel("this model is already quantized: prune the FP32 model")
    return model.prepared.root


__all__ = ["GONE", "PruneVerbs", "Shape", "Variant", "variant_of"]
