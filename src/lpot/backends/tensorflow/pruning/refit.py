"""The layers of a cut Keras model, fitted to what the full one gave: least squares, layer by layer.

He, Zhang and Sun, "Channel Pruning for Accelerating Very Deep Neural Networks" (2017), with the
asymmetric targets of Zhang et al., "Accelerating Very Deep Convolutional Networks for
Classification and Detection" (2016): each layer sees the inputs of the cut model and is fitted to
the outputs of the full one, so that it makes up for the errors of those before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lpot.backends.tensorflow.pruning.cut import Masks
from lpot.backends.tensorflow.pruning.measure import Values
from lpot.backends.tensorflow.pruning.walk import Seen, Step, kind_of, run
from lpot.backends.tensorflow.pruning.wiring import Wiring, is_sum
from lpot.backends.tensorflow.runtime import tf
from lpot.core.compress.least_squares import ROWS, WIDEST, behind, solved
from lpot.core.progress import tracked

FAINT = 1e-3  # of the largest: channels that a norm scales by less can't make up for anything


def refit(
    student: Any,
    teacher: Any,
    batches: Sequence[Values],
    masks: Masks | None = None,
    most: int | None = None,
) -> list[str]:
    """Fit the student's layers in place, in the order of their run; the paths of those fitted.

    `masks` say what is left of the teacher's tensors. `most` ends it after so many layers behind
    each cut, for a quick look at what cuts cost.
    """
    small, large = Wiring(student), Wiring(teacher)
    names = [name for name in _order(small) if name in large.steps]
    touched = _touched((student, teacher), names, batches[0])
    rows = {
        name: masks[f"{name}.kernel", axis]
        for name in names
        if masks and (f"{name}.kernel", axis := small.steps[name].op.kernel.ndim - 1) in masks
    }
    if most is not None:
        names = behind(_order(large), names, {*rows}, touched, most)
    fitted = []
    for name in names if most is not None else tracked(names):  # a look is part of another count
        if name not in touched:
            continue
        fit = _Fit(small.steps[name].op, large.steps[name].op, rows.get(name), _sum(small, name))
        if fit.gather((student, teacher), name, batches) and fit.solve():
            fitted.append(name)
    return fitted


@dataclass(frozen=True, eq=False)
class _Sum:
    """The sum that a layer's output goes into, maybe through a norm: its path, the place of the
    stream among its operands, and what the norm does to each channel."""

    path: str
    stream: int
    scale: np.ndarray
    shift: np.ndarray


def _sum(wiring: Wiring, name: str) -> _Sum | None:
    layer = wiring.steps[name].op
    if layer.activation is not tf.keras.activations.linear:
        return None
    width = layer.kernel.shape[-1]
    scale, shift = np.ones(width), np.zeros(width)
    path, after = name, wiring.reader(name)
    if after is not None and kind_of(after.op) == "BatchNormalization" and _norms_last(after):
        norm = after.op
        mean, variance = np.asarray(norm.moving_mean), np.asarray(norm.moving_variance)
        gamma = np.asarray(norm.gamma) if norm.scale else 1.0
        scale = np.asarray(gamma / np.sqrt(variance + norm.epsilon), np.float64)
        shift = (np.asarray(norm.beta) if norm.center else 0.0) - mean * scale
        path, after = after.path, wiring.reader(after.path)
    if after is None or not is_sum(after):
        return None
    return _Sum(after.path, 1 - wiring.operand(path, after), scale, shift)


def _norms_last(step: Step) -> bool:
    axis: int = step.op.axis
    return axis % len(step.given[0]) == len(step.given[0]) - 1


class _Fit:
    """One layer, and the normal equations for it."""

    def __init__(self, small: Any, large: Any, kept: np.ndarray | None, ends: _Sum | None) -> None:
        self.small, self.large, self.kept, self.ends = small, large, kept, ends
        size = int(np.prod(small.kernel.shape[:-1])) + 1
        self.gram = np.zeros((size, size))
        self.cross = np.zeros((size, small.kernel.shape[-1]))

    def gather(self, roots: tuple[Any, Any], name: str, batches: Sequence[Values]) -> bool:
        """False where the outputs can't be compared."""
        draw = np.random.default_rng(0)
        for values in batches:
            small, large = (self._seen(root, name, values) for root in roots)
            given, full = small[name].inputs[0], large[name].inputs[0]
            if given.shape[:-1] != full.shape[:-1]:
                return False
            columns = _columns(self.small, given)
            chosen = draw.permutation(len(columns))[:ROWS]
            sources = _columns(self.large, full)[chosen].astype(np.float64)
            wanted = self._wanted(sources, small, large, chosen)
            if wanted.shape[1] != self.cross.shape[1]:
                return False
            rows = np.pad(columns[chosen].astype(np.float64), ((0, 0), (0, 1)), constant_values=1.0)
            self.gram += rows.T @ rows
            self.cross += rows.T @ wanted
        return True

    def _seen(self, root: Any, name: str, values: Values) -> Mapping[str, Seen]:
        found: dict[str, Any] = {name: None}
        if self.ends is not None:
            found[self.ends.path] = None
        run(root, values, seen=found)
        return {path: one for path, one in found.items() if one is not None}

    def _wanted(
        self,
        sources: np.ndarray,
        small: Mapping[str, Seen],
        large: Mapping[str, Seen],
        chosen: np.ndarray,
    ) -> np.ndarray:
        """What the layer should give, before its activation. A residual makes up for what its
        stream lacks."""
        weight, bias = _matrix(self.large)
        made: np.ndarray = sources @ weight + (0.0 if bias is None else bias)
        if self.kept is not None:
            made = np.compress(self.kept, made, axis=1)
        ends = self.ends
        if ends is None or ends.path not in large or ends.path not in small:
            return made
        total, stream = large[ends.path].output, small[ends.path].inputs[ends.stream]
        if total.shape != stream.shape:
            return made
        lacks = np.asarray(total - stream).reshape(-1, total.shape[-1])[chosen].astype(np.float64)
        size = np.abs(ends.scale)
        plain = size > FAINT * size.max()
        wanted = (lacks - ends.shift) / np.where(plain, ends.scale, 1.0)
        return np.where(plain, wanted, made)

    def solve(self) -> bool:
        weight, bias = _matrix(self.small)
        size = len(self.gram) if bias is not None else len(self.gram) - 1
        start = weight if bias is None else np.concatenate([weight, bias[None]])
        made = solved(self.gram[:size, :size], self.cross[:size], start)
        if made is None:
            return False
        self.small.kernel.assign(made[: len(weight)].reshape(self.small.kernel.shape))
        if bias is not None:
            self.small.bias.assign(made[-1])
        return True


def _matrix(layer: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """The weight as a matrix, and the bias."""
    weight = np.asarray(layer.kernel, np.float64)
    bias = np.asarray(layer.bias, np.float64) if layer.use_bias else None
    return weight.reshape(-1, weight.shape[-1]), bias


def _fits(op: Any) -> bool:
    kind = kind_of(op)
    if kind not in ("Dense", "Conv1D", "Conv2D"):
        return False
    if kind != "Dense" and (
        op.groups > 1 or op.data_format != "channels_last" or op.padding not in ("same", "valid")
    ):
        return False
    return int(np.prod(op.kernel.shape[:-1])) <= WIDEST


def _order(wiring: Wiring) -> list[str]:
    """Layers that can be fitted, in the order of their run; those that run twice are left out."""
    return [
        path for path, step in wiring.steps.items() if path not in wiring.twice and _fits(step.op)
    ]


def _touched(roots: tuple[Any, Any], names: Sequence[str], values: Values) -> set[str]:
    """The layers that get something else than in the full model: one sample tells."""
    one = [value[:1] if value.shape.rank else value for value in values]
    small, large = (_inputs_of(root, names, one) for root in roots)
    return {name for name in names if not np.array_equal(small[name], large[name])}


def _inputs_of(root: Any, names: Sequence[str], values: Values) -> dict[str, np.ndarray]:
    seen: dict[str, Any] = dict.fromkeys(names)
    run(root, values, seen=seen)
    return {name: np.asarray(one.inputs[0]) for name, one in seen.items()}


def _columns(layer: Any, given: Any) -> np.ndarray:
    """The inputs of a layer: a row for each output position."""
    if kind_of(layer) == "Dense":
        return np.asarray(given, np.float32).reshape(-1, given.shape[-1])
    # A convolution of one dimension is one of two over a single row.
    picture = given if len(layer.kernel_size) == 2 else given[:, None]
    rows, columns = _two(layer.kernel_size)
    found = tf.image.extract_patches(
        tf.cast(picture, tf.float32),
        sizes=(1, rows, columns, 1),
        strides=(1, *_two(layer.strides), 1),
        rates=(1, *_two(layer.dilation_rate), 1),
        padding=layer.padding.upper(),
    )
    return np.asarray(found).reshape(-1, found.shape[-1])


def _two(sizes: Sequence[int]) -> tuple[int, int]:
    first, last = (1, *sizes)[-2:]
    return first, last
