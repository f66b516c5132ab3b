"""A quantized model for other runtimes: ONNX with Q/DQ pairs, or torch's own .pt2."""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from lpot.backends.torch.calls.serve import settle as settle_calls
from lpot.backends.torch.clone import Cloner
from lpot.backends.torch.data import arguments, drawn, to_tensor
from lpot.backends.torch.files.program import Program
from lpot.backends.torch.kernels.decomposed import decomposed_ops
from lpot.backends.torch.model import TorchModel
from lpot.backends.torch.modules import LowModule
from lpot.backends.torch.modules.attention import LowAttention
from lpot.backends.torch.modules.base import StandIn
from lpot.backends.torch.modules.half import HalfModule
from lpot.backends.torch.modules.recurrent import LowRecurrent
from lpot.backends.torch.modules.spelled import Side, Speller, spell
from lpot.core.batch import Inputs
from lpot.core.errors import BackendUnavailable, ConfigError, DataError, UnsupportedModel
from lpot.core.tune import guarded

# What torch.export and the ONNX exporter raise on models that they can't read.
logger = logging.getLogger(__name__)

_EXPORT_ERRORS = (RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST = 600
_SYMBOL = re.compile(r"[A-Za-z_]\w*")


class OnnxSpeller:
    """QuantizeLinear and DequantizeLinear of opset 13."""

    def round(self, x: torch.Tensor, side: Side) -> torch.Tensor:
        codes = _node("QuantizeLinear", (x, side.scale, side.zero), torch.uint8, x.shape)
        return _node("DequantizeLinear", (codes, side.scale, side.zero), torch.float32, x.shape)

    def round_to(
        self, x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, levels: int
    ) -> torch.Tensor:
        point = zero.to(torch.uint8)
        codes = _node("QuantizeLinear", (x, scale, point), torch.uint8, x.shape)
        return _node("DequantizeLinear", (codes, scale, point), torch.float32, x.shape)

    def real(self, values: torch.Tensor, scale: torch.Tensor, axis: int | None) -> torch.Tensor:
        attributes = {} if axis is None else {"axis": axis}
        inputs = (values, scale if axis is not None else scale.reshape(()))
        return _node("DequantizeLinear", inputs, torch.float32, values.shape, attributes)


def _node(
    kind: str, inputs: Any, dtype: torch.dtype, shape: Any, attributes: Any = None
) -> torch.Tensor:
    made: torch.Tensor = torch.onnx.ops.symbolic(
        kind, inputs, attributes or {}, dtype=dtype, shape=shape, version=13
    )
    return made


class Pt2Speller:
    """The ops that torch.compile's x86 backend recognises and runs in int8."""

    def __init__(self) -> None:
        self._ops = decomposed_ops()

    def round(self, x: torch.Tensor, side: Side) -> torch.Tensor:
        span = (side.affine.scale, side.affine.zero_point, 0, 255, torch.uint8)
        codes = self._ops.quantize_per_tensor(x, *span)
        real: torch.Tensor = self._ops.dequantize_per_tensor(codes, *span)
        return real

    def round_to(
        self, x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, levels: int
    ) -> torch.Tensor:
        span = (scale, zero.to(torch.int64), 0, levels, torch.uint8)
        codes = self._ops.quantize_per_tensor.tensor(x, *span)
        real: torch.Tensor = self._ops.dequantize_per_tensor.tensor(codes, *span)
        return real

    def real(self, values: torch.Tensor, scale: torch.Tensor, axis: int | None) -> torch.Tensor:
        if axis is None:
            return values.float() * scale
        zeros = torch.zeros(len(scale), dtype=torch.int64)
        real: torch.Tensor = self._ops.dequantize_per_channel(
            values, scale, zeros, axis, -128, 127, torch.int8
        )
        return real


def export(model: TorchModel, path: Path, inputs: Inputs | None = None) -> Path:
    """`*.onnx` or `*.pt2`. `inputs` is one batch; by default the first of calibration."""
    inputs = inputs if inputs is not None else model.probe or drawn(model.example)
    if inputs is None:
        raise DataError(
            "exporting runs the model once: give one batch of inputs, export(path, inputs)"
        )
    writers = {".onnx": _write_onnx, ".pt2": _write_pt2}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise ConfigError(f"can't export to {path.name!r}: the name must end in .onnx or .pt2")
    path.parent.mkdir(parents=True, exist_ok=True)
    halfway = [m for m in model.native.modules() if isinstance(m, LowRecurrent | LowAttention)]
    if halfway:
        logger.warning(
            "%s: %d recurrent or attention layer(s) have int8 weights there and float inputs, "
            "which were rounded while tuning: evaluate the file (`lpot benchmark --mode accuracy`)",
            path.name,
            len(halfway),
        )
    positional, named = arguments(model.native, _two(inputs))
    try:
        writer(model.native, positional, named, path)
    except _EXPORT_ERRORS as error:
        raise UnsupportedModel(
            f"{type(model.native).__name__} can't be exported to {path.suffix}: torch.export "
            f"can't capture the model: {_reason(error)}"
        ) from error
    return path


def _reason(error: BaseException) -> str:
    """What went wrong first, in plain text: torch wraps it in advice, traces and colours."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(_COLOUR.sub("", str(error)).split())
    return f"{type(error).__name__}: {text[:_LONGEST]}{' …' if len(text) > _LONGEST else ''}"


def spelled_out(native: nn.Module, speller: Speller) -> nn.Module:
    """A copy whose low-precision modules are written as Q/DQ pairs around float ops."""
    changed = {
        id(module): spell(module, speller)
        for module in native.modules()
        if isinstance(module, LowModule | HalfModule)
    }
    copy = Cloner(native)(changed)
    for module in copy.modules():
        if isinstance(module, StandIn):
            module.settle()
        if isinstance(module.__dict__.get("forward"), Program):
            del module.__dict__["forward"]
    settle_calls(copy)
    return copy


def _write_onnx(
    native: nn.Module, positional: tuple[Any, ...], named: dict[str, Any], path: Path
) -> None:
    for package in ("onnx", "onnxscript"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise BackendUnavailable("pytorch", package, str(error)) from error
    # The exporter talks to standard output and warns about its own innards.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    program = torch.onnx.export(
        spelled_out(native, OnnxSpeller()),
        positional,
        kwargs=named or None,
        dynamo=True,
        dynamic_shapes=_dynamic(positional, named),
        verbose=False,
    )
    name_axes(program.model, _open_axes(positional, named))
    _widen(program.model)
    program.save(str(path))
    check_opens(path)


def _widen(model: Any) -> None:
    """bfloat16 (of autocast, of casts) becomes float32: ONNX Runtime computes next to nothing in
    it."""
    ir: Any = importlib.import_module("onnx_ir")
    narrow, wide = ir.DataType.BFLOAT16, ir.DataType.FLOAT

    def widened(tensor: Any) -> Any:
        return ir.tensor(tensor.numpy().astype("float32"), name=tensor.name)

    values = [*model.graph.inputs, *model.graph.initializers.values()]
    for node in model.graph.all_nodes():
        values += node.outputs
        for name, held in list(node.attributes.items()):
            if held.type == ir.AttributeType.INT and name in ("to", "dtype"):
                if held.value == narrow:
                    node.attributes[name] = ir.AttrInt64(name, int(wide))
            elif held.type == ir.AttributeType.TENSOR and held.value.dtype == narrow:
                node.attributes[name] = ir.AttrTensor(name, widened(held.value))
    for value in values:
        if value.dtype == narrow:
            value.dtype = wide
            if value.const_value is not None:
                value.const_value = widened(value.const_value)


def check_opens(path: Path) -> None:
    """An export is done when a runtime has opened it, where there is one."""
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ImportError:
        logger.info("%s was not opened to check it: onnxruntime is not installed", path)
        return
    providers = ["CPUExecutionProvider"]
    opened = guarded(lambda: runtime.InferenceSession(str(path), providers=providers))
    if isinstance(opened, Exception):
        for file in (path, path.with_name(f"{path.name}.data")):
            file.unlink(missing_ok=True)
        raise UnsupportedModel(
            f"{path.name} can't be opened by ONNX Runtime, so it was removed: {_reason(opened)}"
        ) from opened


def _write_pt2(
    native: nn.Module, positional: tuple[Any, ...], named: dict[str, Any], path: Path
) -> None:
    program = torch.export.export(
        spelled_out(native, Pt2Speller()),
        positional,
        named or None,
        dynamic_shapes=_dynamic(positional, named),
    )
    torch.export.save(program, str(path))
    torch.export.load(str(path))


def _dynamic(positional: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """The batch is open; so is every dimension of ids and masks."""
    ids = _shapes_of_ids(positional, named)

    def axes(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            return None
        return {axis: torch.export.Dim.AUTO for axis in range(_open(value, ids))}

    if named:
        return {name: pytree.tree_map(axes, value) for name, value in named.items()}
    return tuple(pytree.tree_map(axes, value) for value in positional)


def _shapes_of_ids(positional: tuple[Any, ...], named: Mapping[str, Any]) -> set[torch.Size]:
    values = pytree.tree_leaves((positional, dict(named)))
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return {value.shape for value in tensors if not value.is_floating_point()}


def _open(value: torch.Tensor, ids: set[torch.Size]) -> int:
    """How many of its dimensions, from the first on, may have another size. A mask may be of
    floats."""
    is_mask = value.shape in ids
    return int(value.dim()) if is_mask or not value.is_floating_point() else 1


def _open_axes(positional: tuple[Any, ...], named: Mapping[str, Any]) -> list[int]:
    """The number of open axes of every tensor that goes in, in order."""
    ids = _shapes_of_ids(positional, named)
    values = pytree.tree_leaves((positional, dict(named)))
    return [_open(value, ids) for value in values if isinstance(value, torch.Tensor)]


def name_axes(model: Any, counts: Sequence[int]) -> None:
    """Axes by their meaning, where torch numbers its symbols: one batch for all inputs, then the
    sequence of ids and masks."""
    names: dict[str, str] = {}
    for value, count in zip(model.graph.inputs, counts, strict=False):
        words = ("batch", "sequence", *(f"{value.name}_{axis}" for axis in range(2, count)))
        for size, word in zip(value.shape, words[:count], strict=False):
            if not isinstance(size, int):
                names.setdefault(str(size.value), word)
    values = [*model.graph.inputs, *(out for node in model.graph for out in node.outputs)]
    for value in values:
        for axis, size in enumerate(value.shape or ()):
            if not isinstance(size, int) and size.value is not None:
                value.shape[axis] = _SYMBOL.sub(lambda m: names.get(m[0], m[0]), str(size.value))


def _two(inputs: Inputs) -> Inputs:
    """At least two samples: of a single one torch.export would take that the batch is always 1."""

    def grown(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dim() == 0 or value.shape[0] != 1:
            return value
        return torch.cat([value, value])

    if isinstance(inputs, tuple):
        return tuple(pytree.tree_map(grown, to_tensor(value)) for value in inputs)
    return {name: pytree.tree_map(grown, to_tensor(value)) for name, value in inputs.items()}
