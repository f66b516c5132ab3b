"""The torn ONNX nets as torch modules: layers become modules, everything else a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional

Values = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Made:
    """What an earlier step gave."""

    name: str


Step = tuple[str, str | Callable[..., torch.Tensor], tuple[Any, ...]]


def spelled(name: str) -> str:
    """An ONNX name as one that a module may have."""
    return name.replace(".", "_")


class Woven(nn.Module):
    """Runs its steps in order; a step is a layer's name or a function, and what it reads."""

    def __init__(self, steps: list[Step], result: str) -> None:
        super().__init__()
        self.steps, self.result = steps, result

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = {"x": x, **{name: getattr(self, name) for name in self._parameters}}
        for output, call, inputs in self.steps:
            if isinstance(call, str):
                call = getattr(self, call)
            made[output] = call(
                *(made[item.name] if isinstance(item, Made) else item for item in inputs)
            )
        return made[self.result]


def as_torch(model: onnx.ModelProto) -> Woven:
    """The same function; a product and the bias behind it become one Linear."""
    weights = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    biases = _biases(model, weights)
    steps: list[Step] = []
    woven = Woven(steps, model.graph.output[0].name)
    for node in model.graph.node:
        (output,) = node.output
        if node.name in biases.values():
            steps.append((output, _same, (Made(node.input[0]),)))
            continue
        layer = _layer(node, weights)
        if layer is not None:
            woven.add_module(spelled(node.name), layer)
            steps.append((output, spelled(node.name), (Made(node.input[0]),)))
            continue
        for name in node.input:
            value = weights.get(name)
            if value is not None and value.ndim and value.dtype == np.float32:
                woven.register_parameter(
                    spelled(name), nn.Parameter(torch.from_numpy(value.copy()))
                )
        values = tuple(_value(name, woven, weights) for name in node.input)
        steps.append((output, _FUNCTIONS[node.op_type], (*values, *_settings(node))))
    return woven.eval()


def _biases(model: onnx.ModelProto, weights: Values) -> dict[str, str]:
    """Product → the sum behind it that adds a vector."""
    products = {
        node.output[0]: node.name
        for node in model.graph.node
        if node.op_type == "MatMul" and node.input[1] in weights
    }
    return {
        products[node.input[0]]: node.name
        for node in model.graph.node
        if node.op_type == "Add" and node.input[0] in products and node.input[1] in weights
    }


def _value(name: str, woven: Woven, weights: Values) -> Any:
    if spelled(name) in woven._parameters:
        return Made(spelled(name))
    if name not in weights:
        return Made(name) if name else None
    return weights[name].tolist()


def _layer(node: onnx.NodeProto, weights: Values) -> nn.Module | None:
    parts: list[Any] = [
        torch.from_numpy(weights[name].copy()) for name in node.input if name in weights
    ]
    given = attributes(node)
    if node.op_type == "Conv":
        outputs, inputs, *size = parts[0].shape
        groups = given.get("group", 1)
        pads = given["pads"][:2]
        layer: nn.Module = nn.Conv2d(inputs * groups, outputs, size, 1, pads, groups=groups)
    elif node.op_type == "Gemm":
        layer = nn.Linear(parts[0].shape[1], parts[0].shape[0])
    elif node.op_type == "MatMul" and parts:
        layer = nn.Linear(*parts[0].shape)
        bias = torch.from_numpy(weights[f"{node.name}.b"].copy())
        parts = [parts[0].T.contiguous(), bias]
    elif node.op_type == "PRelu":
        layer = nn.PReLU(parts[0].numel())
        parts = [parts[0].flatten(), None]
    elif node.op_type == "LayerNormalization":
        layer = nn.LayerNorm(parts[0].shape)
    elif node.op_type == "BatchNormalization":
        layer = nn.BatchNorm2d(parts[0].shape[0])
        layer.running_mean, layer.running_var = parts[2], parts[3]  # type: ignore[assignment]
    else:
        return None
    layer.weight = nn.Parameter(parts[0])
    if parts[1] is not None:
        layer.bias = nn.Parameter(parts[1])
    return layer


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}


def _settings(node: onnx.NodeProto) -> tuple[Any, ...]:
    given = attributes(node)
    names = {"Concat": "axis", "Softmax": "axis", "Transpose": "perm", "LeakyRelu": "alpha"}
    names |= {"MaxPool": "kernel_shape", "AveragePool": "kernel_shape"}
    name = names.get(node.op_type)
    return () if name is None else (given[name],)


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


def _concat(*given: Any) -> torch.Tensor:
    *parts, axis = given
    return torch.cat(parts, axis)


def _reshape(x: torch.Tensor, shape: list[int]) -> torch.Tensor:
    return x.reshape([size or x.shape[axis] for axis, size in enumerate(shape)])


def _twice(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return functional.interpolate(x, scale_factor=2.0)


def _mean(x: torch.Tensor) -> torch.Tensor:
    return x.mean(-1, keepdim=True)


def _thin(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return x[:, :, ::2, ::2]


def _pad(x: torch.Tensor, pads: list[int]) -> torch.Tensor:
    return functional.pad(x, (0, 0, 0, 0, pads[1], pads[5]))


_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "Relu": functional.relu,
    "Add": torch.add,
    "Mul": torch.mul,
    "Div": torch.div,
    "Pow": torch.pow,
    "Sqrt": torch.sqrt,
    "Erf": torch.erf,
    "Tanh": torch.tanh,
    "Sigmoid": torch.sigmoid,
    "HardSwish": functional.hardswish,
    "HardSigmoid": functional.hardsigmoid,
    "LeakyRelu": functional.leaky_relu,
    "Softmax": torch.softmax,
    "MatMul": torch.matmul,
    "Concat": _concat,
    "Reshape": _reshape,
    "Slice": _thin,
    "Pad": _pad,
    "Transpose": torch.permute,
    "ReduceMean": _mean,
    "Resize": _twice,
    "MaxPool": functional.max_pool2d,
    "AveragePool": functional.avg_pool2d,
    "GlobalAveragePool": lambda x: functional.adaptive_avg_pool2d(x, 1),
    "Flatten": lambda x: torch.flatten(x, 1),
}
