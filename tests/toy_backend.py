"""A framework of one's own in numpy: what a third party writes to be served by lpot.

Its models are stacks of dense layers. It gives the abstract verbs alone, with `write` and `read`
for its files, and does its low-precision arithmetic by rounding, which is slow and right.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.backend import Approach, Backend, ModelSpec, Observations, Target
from lpot.core.batch import Inputs, InputSpec
from lpot.core.errors import CalibrationError, UnsupportedModel
from lpot.core.inputs import by_name
from lpot.core.model import Model
from lpot.core.numerics.observations import Snapshots, copied
from lpot.core.numerics.rounding import (
    QuantParams,
    TensorStats,
    affine,
    dequantize,
    quantize,
    quantize_weight,
)
from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.space import Capability, OpInfo


@dataclass(frozen=True, eq=False)
class Dense:
    """x @ weight + bias. Low precision where `scale` is set: `weight` holds integers then.

    `low` and `high` bound a static input; both None with a scale means: measured at run time.
    """

    name: str
    weight: np.ndarray
    bias: np.ndarray
    relu: bool = True
    scale: np.ndarray | None = None
    low: float | None = None
    high: float | None = None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        weight = self.weight
        if self.scale is not None:
            low = float(x.min()) if self.low is None else self.low
            high = float(x.max()) if self.high is None else self.high
            params = affine(low, high)
            x = dequantize(quantize(x, params), params)
            weight = self.weight.astype(np.float32) * self.scale
        y = (x @ weight + self.bias).astype(np.float32)
        return np.maximum(y, 0) if self.relu else y


@dataclass(frozen=True, eq=False)
class Net:
    """What a user of this framework holds."""

    layers: tuple[Dense, ...]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        for layer in self.layers:
            x = layer(x)
        return x


def make_net(*widths: int, seed: int = 0) -> Net:
    random = np.random.default_rng(seed)
    layers = []
    for index, (rows, columns) in enumerate(pairwise(widths)):
        weight = random.standard_normal((rows, columns)).astype(np.float32) / np.sqrt(rows)
        bias = random.standard_normal(columns).astype(np.float32) * 0.1
        layers.append(Dense(f"dense{index}", weight, bias, relu=index < len(widths) - 2))
    return Net(tuple(layers))


class ToyModel(Model):
    def __init__(self, backend: ToyBackend, net: Net, recipe: Recipe | None = None) -> None:
        self.backend = backend
        self.net = net
        self.recipe = recipe

    @property
    def native(self) -> Net:
        return self.net

    @property
    def input_names(self) -> tuple[str, ...]:
        return ("x",)

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        return (InputSpec("x", "float32", (None, self.net.layers[0].weight.shape[0])),)

    @property
    def nbytes(self) -> int:
        return sum(layer.weight.nbytes + layer.bias.nbytes for layer in self.net.layers)

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for layer in self.net.layers:
            digest.update(f"{layer.name}{layer.relu}{layer.weight.shape}".encode())
            digest.update(layer.weight.tobytes() + layer.bias.tobytes())
        return digest.hexdigest()[:32]


class ToyBackend(Backend[ToyModel]):
    name = "toy"
    best_name = "best_model.npz"

    def load(self, source: Any, spec: ModelSpec = ModelSpec()) -> ToyModel:
        if isinstance(source, str | Path):
            return ToyModel(self, _read(Path(source)))
        if not isinstance(source, Net):
            raise UnsupportedModel(f"the toy takes a Net or a path, not a {type(source).__name__}")
        return ToyModel(self, source)

    def inspect(
        self, model: ToyModel, approach: Approach = "static", target: Target = "this"
    ) -> Capability:
        modes = ("static", "dynamic") if approach == "auto" else (approach,)
        ops = {}
        for layer in model.net.layers:
            key = OpKey(layer.name, "Dense")
            if layer.scale is not None:
                ops[key] = OpInfo(key, reason="already quantized")
            else:
                ops[key] = OpInfo(key, (*_choices(modes), FP32))
        return Capability(ops)

    def observe(
        self, model: ToyModel, batches: Iterable[Inputs], sizes: Sequence[int] = (0,)
    ) -> dict[int, Observations]:
        stats = {layer.name: TensorStats.empty() for layer in model.net.layers}
        found = Snapshots(sizes, lambda seen, probe: Observations(seen, copied(stats), probe))
        for inputs in batches:
            x = _array(model, inputs)
            for layer in model.net.layers:
                stats[layer.name].update(x)
                x = layer(x)
            found.add(inputs, len(x))
        return found.all()

    def build(
        self, model: ToyModel, recipe: Recipe, observations: Observations | None = None
    ) -> ToyModel:
        layers = []
        for layer in model.net.layers:
            config = recipe.ops.get(OpKey(layer.name, "Dense"), FP32)
            layers.append(layer if config.is_float else _low(layer, config, observations))
        return ToyModel(self, Net(tuple(layers)), recipe)

    def run(self, model: ToyModel, inputs: Inputs) -> list[np.ndarray]:
        return [model.net(_array(model, inputs))]

    def write(self, model: ToyModel, path: Path) -> None:
        facts: list[dict[str, Any]] = []
        arrays = {}
        for index, layer in enumerate(model.net.layers):
            facts.append({"name": layer.name, "relu": layer.relu, "range": [layer.low, layer.high]})
            arrays |= {f"weight{index}": layer.weight, f"bias{index}": layer.bias}
            if layer.scale is not None:
                arrays[f"scale{index}"] = layer.scale
        arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        with path.open("wb") as stream:
            np.savez(stream, **arrays)

    def read(self, path: Path) -> ToyModel:
        return ToyModel(self, _read(path))

    def versions(self) -> dict[str, str]:
        return {"toy": "1.0"}


def _choices(modes: Iterable[str]) -> Iterable[OpConfig]:
    for mode in modes:
        for granularity in ("per_channel", "per_tensor"):
            for algorithm in ("minmax", "kl") if mode == "static" else ("minmax",):
                yield OpConfig(
                    TensorConfig("uint8", "asym", "per_tensor", algorithm, 8),
                    TensorConfig("int8", "sym", granularity, "minmax", 8),
                    mode,  # type: ignore[arg-type]
                )


def _low(layer: Dense, config: OpConfig, observations: Observations | None) -> Dense:
    assert config.weight is not None
    axis = 1 if config.weight.granularity == "per_channel" else None
    data, params = quantize_weight(layer.weight, axis, bits=config.weight.bits or 8)
    low = replace(layer, weight=data, scale=_scale(params))
    if config.mode == "dynamic":
        return low
    if observations is None:
        raise CalibrationError("static quantization needs calibration data")
    bounds = observations.tensors[layer.name].range(config.activation.algorithm or "minmax")
    return replace(low, low=bounds[0], high=bounds[1])


def _scale(params: QuantParams) -> np.ndarray:
    return np.asarray(params.scale, np.float32)


def _array(model: ToyModel, inputs: Inputs) -> np.ndarray:
    return by_name(model.inputs, inputs)["x"]


def _read(path: Path) -> Net:
    if not path.is_file():
        raise UnsupportedModel(f"{path}: no such file")
    with np.load(path, allow_pickle=False) as arrays:
        facts = json.loads(arrays["facts"].tobytes())
        layers = [
            Dense(
                fact["name"],
                arrays[f"weight{index}"],
                arrays[f"bias{index}"],
                fact["relu"],
                arrays.get(f"scale{index}"),
                *fact["range"],
            )
            for index, fact in enumerate(facts)
        ]
    return Net(tuple(layers))
