"""The layers of a cut model, fitted to what the full one gave: least squares, layer by layer.

He, Zhang and Sun, "Channel Pruning for Accelerating Very Deep Neural Networks" (2017), with the
asymmetric targets of Zhang et al., "Accelerating Very Deep Convolutional Networks for
Classification and Detection" (2016): each layer sees the inputs of the cut model and is fitted to
the outputs of the full one, so that it makes up for the errors of those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from lpot.backends.torch.data import arguments
from lpot.backends.torch.prune.merge import merger_of
from lpot.backends.torch.prune.record import one_sample
from lpot.core.batch import Inputs
from lpot.core.compress.least_squares import RIDGE, ROWS, WIDEST, behind
from lpot.core.progress import tracked

ROUNDS = 12  # for a layer that stands for a block
VALUES = 1 << 26  # of the inputs that are held for it

Rows = Mapping[str, Sequence[int]]  # weight → the outputs of the full model that are left


def refit(
    student: nn.Module,
    teacher: nn.Module,
    batches: Sequence[Inputs],
    rows: Rows | None = None,
    most: int | None = None,
) -> list[str]:
    """Fit the student's layers in place, in the order of their run; the names of those fitted.

    `most` ends it after so many behind each cut, for a quick look at what cuts cost; those that
    stand for a whole block are nothing before they are fitted.
    """
    left = rows or {}
    known = dict(teacher.named_modules())
    names = [name for name in _order(student, batches[0]) if _fits(known.get(name))]
    alone = {
        f"{block}.{merger.name}": (block, merger.relu)
        for block, part in student.named_modules()
        if (merger := merger_of(part)) is not None
    }
    touched = _touched((student, teacher), names, batches[0])
    if most is not None:
        cut = {*alone, *(name for name in names if f"{name}.weight" in left)}
        names = behind(_order(teacher, batches[0]), names, cut, touched, most)
    fitted: list[str] = []
    for name in names if most is not None else tracked(names):  # a look is part of another count
        kept = left.get(f"{name}.weight")
        if name in alone:
            block, relu = alone[name]
            _fit_block((student, teacher), (name, block), relu, batches, kept)
            fitted.append(name)
            continue
        if name not in touched:
            continue
        pair = student.get_submodule(name), known[name]
        sums = _Sums.gather((student, teacher), pair, batches, kept)
        if sums is not None:
            sums.solve(pair[0])
            fitted.append(name)
    return fitted


def layers_in_order(root: nn.Module, inputs: Inputs) -> list[str]:
    """Linears and plain convolutions that run once, in the order of their run."""
    return _order(root, inputs)


def normal_equations(
    student: nn.Module, teacher: nn.Module, name: str, batches: Sequence[Inputs]
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Of one layer, with a row for its bias: X'X and X'Y, from its inputs in the student and what
    it should give. None where the outputs can't be compared."""
    pair = student.get_submodule(name), teacher.get_submodule(name)
    sums = _Sums.gather((student, teacher), pair, batches, None)
    return None if sums is None else (sums.gram, sums.cross)


def _fit_block(
    roots: tuple[nn.Module, nn.Module],
    names: tuple[str, str],
    relu: bool,
    batches: Sequence[Inputs],
    kept: Sequence[int] | None,
) -> None:
    """One convolution for what a block gave. Where a relu cut the block's outputs off, nobody knows
    what they were: the prediction counts, as far as it is below zero, and improves from round to
    round (Tobin's censored regression, by expectation and maximization)."""
    conv: Any = roots[0].get_submodule(names[0])
    draw = torch.Generator().manual_seed(0)
    inputs, outputs = [], []
    for batch in batches:
        small, large = (_seen(root, root.get_submodule(names[1]), batch) for root in roots)
        columns, wanted = _columns(conv, small.given), _targets(conv, large.made)
        most = max(1, min(8 * ROWS, VALUES // columns.shape[1]) // len(batches))
        chosen = torch.randperm(len(columns), generator=draw)[:most]
        inputs.append(functional.pad(columns[chosen], (0, 1), value=1.0))
        outputs.append(wanted[chosen] if kept is None else wanted[chosen][:, torch.tensor(kept)])
    given, truth = torch.cat(inputs), torch.cat(outputs)
    gram = (given.T @ given).double()
    wanted = truth
    for _ in range(ROUNDS if relu else 1):
        _Sums(gram, (given.T @ wanted).double()).solve(conv)
        guess = given[:, :-1] @ conv.weight.detach().flatten(1).T + conv.bias.detach()
        wanted = torch.where(truth > 0, truth, guess.clamp(max=0))


class _Sums:
    """The normal equations of one layer."""

    def __init__(self, gram: torch.Tensor, cross: torch.Tensor) -> None:
        self.gram, self.cross = gram, cross

    @classmethod
    def gather(
        cls,
        roots: tuple[nn.Module, nn.Module],
        layers: tuple[nn.Module, nn.Module],
        batches: Sequence[Inputs],
        kept: Sequence[int] | None,
    ) -> _Sums | None:
        """None where the outputs can't be compared."""
        found: _Sums | None = None
        draw = torch.Generator().manual_seed(0)
        for inputs in batches:
            small, large = (_seen(*pair, inputs) for pair in zip(roots, layers, strict=True))
            columns, targets = _columns(layers[0], small.given), _wanted(layers, small, large, kept)
            if len(columns) != len(targets) or targets.shape[1] != len(layers[0].weight):
                return None
            chosen = torch.randperm(len(columns), generator=draw)[:ROWS]
            columns = functional.pad(columns[chosen], (0, 1), value=1.0)
            gram = (columns.T @ columns).double()
            cross = (columns.T @ targets[chosen]).double()
            if found is not None:
                gram, cross = found.gram + gram, found.cross + cross
            found = cls(gram, cross)
        return found

    def solve(self, layer: Any) -> None:
        weight = layer.weight.detach().flatten(1).double()
        bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().double()
        start = torch.cat([weight, bias[:, None]], 1).T
        size = len(self.gram) if layer.bias is not None else len(self.gram) - 1
        gram, cross, start = self.gram[:size, :size], self.cross[:size], start[:size]
        hold = RIDGE * gram.diagonal().mean().clamp_min(1e-12)
        held = gram + hold * torch.eye(size, dtype=gram.dtype)
        made = torch.linalg.solve(held, cross + hold * start).T.float()
        if not bool(torch.isfinite(made).all()):
            return
        inputs = weight.shape[1]
        with torch.no_grad():
            layer.weight.copy_(made[:, :inputs].reshape(layer.weight.shape))
            if layer.bias is not None:
                layer.bias.copy_(made[:, inputs])


def _fits(layer: Any) -> bool:
    if type(layer) is nn.Linear:
        return bool(layer.in_features <= WIDEST)
    if type(layer) not in (nn.Conv1d, nn.Conv2d) or layer.groups > 1:
        return False
    plain = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return plain and layer.weight[0].numel() <= WIDEST


def _order(root: nn.Module, inputs: Inputs) -> list[str]:
    """Layers in the order of their run; those that run twice are left out."""
    ran: list[str] = []

    def note(name: str) -> Callable[..., None]:
        return lambda part, args, output: ran.append(name)

    parts = [(name, part) for name, part in root.named_modules() if _fits(part)]
    hooks = [part.register_forward_hook(note(name)) for name, part in parts]
    try:
        _run(root, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return [name for name in dict.fromkeys(ran) if ran.count(name) == 1]


def _touched(roots: tuple[nn.Module, nn.Module], names: Sequence[str], inputs: Inputs) -> set[str]:
    """The layers that get something else than in the full model: one sample tells."""
    small, large = (_inputs_of(root, names, one_sample(inputs)) for root in roots)
    return {
        name
        for name in names
        if name not in large
        or small[name].shape != large[name].shape
        or not torch.equal(small[name], large[name])
    }


def _inputs_of(root: nn.Module, names: Sequence[str], inputs: Inputs) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(part: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            # A copy: what comes after it may work in place.
            found[name] = (args[0] if args else next(iter(kwargs.values()))).clone()

        return hook

    hooks = [
        root.get_submodule(name).register_forward_hook(keep(name), with_kwargs=True)
        for name in names
    ]
    try:
        _run(root, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found


class _Enough(Exception):
    """What was wanted has been seen."""


@dataclass(frozen=True, eq=False)
class _Seen:
    """A layer's input and output; and, where the output is added to a stream, that and the sum."""

    given: torch.Tensor
    made: torch.Tensor
    stream: torch.Tensor | None = None
    total: torch.Tensor | None = None


class _Adding(TorchDispatchMode):  # type: ignore[misc]
    """Waits for the sum that the watched layer's output goes into: it comes next, or never."""

    PATIENCE = 3  # ops after the layer

    def __init__(self) -> None:
        super().__init__()
        self.pair: tuple[torch.Tensor, torch.Tensor] | None = None
        self.found: _Seen | None = None
        self._ops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.pair is None:
            return out
        given, made = self.pair
        self._ops += 1
        if func.overloadpacket in (torch.ops.aten.add, torch.ops.aten.add_) and len(args) == 2:
            others = [item for item in args if item is not made]
            plain = not kwargs and func.overloadpacket is torch.ops.aten.add
            if len(others) == 1 and plain and getattr(others[0], "shape", None) == made.shape:
                self.found = _Seen(given, made, others[0], out)
                raise _Enough
        if self._ops >= self.PATIENCE:
            raise _Enough
        return out


def _seen(root: nn.Module, layer: nn.Module, inputs: Inputs) -> _Seen:
    """What one layer gets and gives; what comes after is not run."""
    watch = _Adding()

    def keep(part: nn.Module, args: Any, kwargs: Any, output: torch.Tensor) -> None:
        watch.pair = (args[0] if args else next(iter(kwargs.values())), output)

    hook = layer.register_forward_hook(keep, with_kwargs=True)
    try:
        with watch:
            _run(root, inputs)
    except _Enough:
        pass
    finally:
        hook.remove()
    assert watch.pair is not None  # it ran before
    return watch.found or _Seen(*watch.pair)


def _run(root: nn.Module, inputs: Inputs) -> None:
    positional, named = arguments(root, inputs)
    with torch.no_grad():
        root(*positional, **named)


def _columns(layer: Any, given: torch.Tensor) -> torch.Tensor:
    """The inputs of a layer: a row for each output position."""
    if isinstance(layer, nn.Linear):
        return given.reshape(-1, given.shape[-1]).float()
    # A convolution of one dimension is one of two over a single row.
    picture = given if len(layer.kernel_size) == 2 else given.unsqueeze(-2)
    unfolded = functional.unfold(
        picture.float(),
        _two(layer.kernel_size, 1),
        _two(layer.dilation, 1),
        _two(layer.padding, 0),
        _two(layer.stride, 1),
    )
    return unfolded.transpose(1, 2).reshape(-1, unfolded.shape[1])


def _two(sizes: tuple[int, ...], other: int) -> tuple[int, ...]:
    return sizes if len(sizes) == 2 else (other, *sizes)


def _wanted(
    layers: tuple[nn.Module, nn.Module],
    small: _Seen,
    large: _Seen,
    kept: Sequence[int] | None,
) -> torch.Tensor:
    """What the layer should give. A residual makes up for what its stream lacks."""
    stream, total = small.stream, large.total
    if stream is not None and total is not None and stream.shape == total.shape:
        return _targets(layers[1], total - stream)
    found = _targets(layers[1], large.made)
    return found if kept is None else found[:, torch.tensor(kept)]


def _targets(layer: Any, wanted: torch.Tensor) -> torch.Tensor:
    if isinstance(layer, nn.Linear):
        return wanted.reshape(-1, wanted.shape[-1]).float()
    return wanted.flatten(2).transpose(1, 2).reshape(-1, wanted.shape[1]).float()
