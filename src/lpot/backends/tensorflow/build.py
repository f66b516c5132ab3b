"""A model under a recipe, written from statistics alone.

The way of a graph, a file a stage:

1. `prepare.py` folds the FP32 graph once (`PASSES`); `match.py` finds layers (a compute op with its
   bias, activation and sum) and followers in it. Trials share the result, a `Prepared`.
2. `repair.py` gives it what the recipe asks for beside precisions (equalized channels, SmoothQuant,
   split outliers, corrected biases): a `Repaired`, with statistics to match.
3. `plan.py` decides, changing nothing: a `Step` for each INT8 layer, what is fused (`liveness.py`
   says which sums may be done in place), and the `Format` of each tensor (`formats.py`).
4. `build.py` writes it: a `Draft`, into which `passes/quantize_*.py` put one fused op a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lpot.backends.tensorflow.draft import Draft
from lpot.backends.tensorflow.passes.cast_bfloat16 import cast_bfloat16
from lpot.backends.tensorflow.passes.fuse_norms import fuse_norms
from lpot.backends.tensorflow.passes.join_products import join_products
from lpot.backends.tensorflow.passes.merge_twins import merge_twins
from lpot.backends.tensorflow.passes.quantize_conv import quantize_conv
from lpot.backends.tensorflow.passes.quantize_follower import quantize_follower
from lpot.backends.tensorflow.passes.quantize_matmul import quantize_matmul
from lpot.backends.tensorflow.passes.store_halves import store_halves
from lpot.backends.tensorflow.plan import Plan
from lpot.backends.tensorflow.prepare import Prepared
from lpot.backends.tensorflow.repair import repair
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import Layer
from lpot.backends.tensorflow.structure.liveness import check_writers
from lpot.core.backend import Observations
from lpot.core.errors import CalibrationError, UnsupportedOp
from lpot.core.recipe import OpKey, Recipe


@dataclass(frozen=True, eq=False)
class Built:
    """The graph, what each op of the recipe really became, and what it was made from."""

    net: Net
    precisions: Mapping[OpKey, str]
    drawn: tuple[Prepared, Plan] | None = None


def build_net(prepared: Prepared, recipe: Recipe, observations: Observations | None) -> Built:
    _check(prepared, recipe)
    became = {key: "fp32" for key in recipe.ops}
    net, drawn = prepared.net, None
    if recipe.low_ops:
        if observations is None:
            raise CalibrationError("static quantization needs calibration data, and there is none")
        repaired = repair(prepared, recipe, observations)
        prepared = repaired.prepared
        drawn = repaired.plan()
        net = write(prepared, drawn)
        became = {key: drawn.precision(key) for key in recipe.ops}
    halves = _layers_of(prepared, recipe, "bf16")
    if halves:
        net = cast_bfloat16(net, halves)
        became.update(dict.fromkeys((layer.key for layer in halves), "bf16"))
    stored = _layers_of(prepared, recipe, "fp16")
    if stored:
        others = [layer for layer in prepared.layers.values() if layer not in stored]
        net, done = store_halves(net, stored, others)
        became.update(dict.fromkeys((layer.key for layer in stored if layer in done), "fp16"))
    return Built(net, became, None if drawn is None else (prepared, drawn))


def narrows(recipe: Recipe) -> bool:
    """Are there floats of 16 bits in it?"""
    return any(config.precision in ("bf16", "fp16") for config in recipe.ops.values())


def _layers_of(prepared: Prepared, recipe: Recipe, precision: str) -> list[Layer]:
    return [
        prepared.layers[key.name]
        for key, config in recipe.ops.items()
        if config.precision == precision and key.name in prepared.layers
    ]


def write(prepared: Prepared, drawn: Plan) -> Net:
    draft = Draft(prepared, drawn)
    for step in drawn.steps.values():
        if step.layer.is_matmul:
            quantize_matmul(draft, step)
        else:
            quantize_conv(draft, step)
    for item in drawn.followers.values():
        quantize_follower(draft, item)
    made = merge_twins(join_products(fuse_norms(draft.finish())))
    check_writers(made)
    return made


def _check(prepared: Prepared, recipe: Recipe) -> None:
    for key in recipe.low_ops:
        config = recipe.ops[key]
        if key.name not in prepared.layers and key.name not in prepared.followers:
            reason = prepared.refused.get(key, "the model has no such op that can be INT8")
            raise UnsupportedOp(str(key), reason)
        if config.mode != "static":
            raise UnsupportedOp(
                str(key), "TensorFlow has no dynamic INT8 kernels: use post_training_static_quant"
            )
