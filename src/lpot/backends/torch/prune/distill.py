"""Training a smaller module after a larger one: soft outputs and intermediate layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from lpot.backends.torch.data import arguments, tensors, to_tensor
from lpot.backends.torch.kinds import find
from lpot.backends.torch.prune.cut import Skip
from lpot.backends.torch.training.precision import TrainingPrecision
from lpot.core.batch import Inputs, split
from lpot.core.compress.schedule import warm_cosine
from lpot.core.compress.settings import Distill
from lpot.core.compress.training_data import batches_in
from lpot.core.errors import TrainingError
from lpot.core.progress import tracked

LAYERS = 4  # intermediate outputs that are compared
CLIP = 5.0  # of the gradient's norm


def distill(
    student: nn.Module, teacher: nn.Module, loader: Iterable[Any], settings: Distill
) -> nn.Module:
    """Train the student in place; its teacher's values stay as they are."""
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        for root in (student, teacher):
            _lay_out(root, torch.channels_last)  # convolutions are a fifth faster
        trained = _distill(student, teacher.eval(), loader, settings)
        _lay_out(trained, torch.contiguous_format)
        return trained


def _lay_out(root: nn.Module, layout: torch.memory_format) -> None:
    for tensor in root.parameters():
        if tensor.dim() == 4:
            tensor.data = tensor.data.contiguous(memory_format=layout)


def _distill(
    student: nn.Module, teacher: nn.Module, loader: Iterable[Any], settings: Distill
) -> nn.Module:
    student.train()
    for tensor in student.parameters():
        tensor.requires_grad_(tensor.is_floating_point())
    optimizers = optimizers_of(student, settings.learning_rate)
    steps = settings.epochs * batches_in(loader)
    paces = [
        torch.optim.lr_scheduler.LambdaLR(each, lambda step: warm_cosine(step, steps))
        for each in optimizers
    ]
    names = watched_layers(student, teacher)
    precision = TrainingPrecision(student, teacher)
    with Watched(student, names) as small, Watched(teacher, names) as large:
        for epoch in tracked(range(settings.epochs)):
            mixes = settings.mixup and epoch < 0.85 * settings.epochs
            for raw in loader:
                batch = split(raw, None)
                inputs = _mixed(student, batch.inputs) if mixes else batch.inputs
                labels = batch.labels if inputs is batch.inputs else None
                loss = _loss(student, teacher, inputs, labels, small, large, settings, precision)
                _step(student, optimizers, loss)
                for pace in paces:
                    pace.step()
    return student.eval()


def optimizers_of(student: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for convolutions, AdamW for everything else.

    Large matrices take longer to orthogonalize than to train, and the few weights of each channel
    of a depthwise convolution have no directions.
    """
    dense = {
        id(part.weight)
        for part in student.modules()
        if isinstance(part, nn.modules.conv._ConvNd) and part.groups == 1
    }
    weights = [tensor for tensor in student.parameters() if id(tensor) in dense]
    rest = [tensor for tensor in student.parameters() if id(tensor) not in dense]
    found: list[torch.optim.Optimizer] = [Muon(weights, rate)] if weights else []
    return [*found, torch.optim.AdamW(rest, lr=rate)] if rest else found


def _step(
    student: nn.Module, optimizers: Sequence[torch.optim.Optimizer], loss: torch.Tensor
) -> None:
    if not math.isfinite(loss.item()):
        raise TrainingError(f"the distillation loss became {loss.item()}: lower the learning rate")
    student.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(student.parameters(), CLIP)
    for optimizer in optimizers:
        optimizer.step()


def _mixed(module: nn.Module, inputs: Inputs) -> Inputs:
    """Pictures blended with others of the batch, with parts of others put in, or as they are, each
    as often; anything else as it is.

    Zhang et al., "mixup: Beyond Empirical Risk Minimization" (2018); Yun et al., "CutMix" (2019).
    """
    positional, named = arguments(module, inputs)
    values = [*positional, *named.values()]
    if len(values) != 1 or not isinstance(values[0], torch.Tensor):
        return inputs
    value = values[0]
    way = int(torch.randint(0, 3, ()))
    if value.dim() != 4 or not value.is_floating_point() or way == 0:
        return inputs
    share = torch.rand((len(value), 1, 1, 1)) if way == 1 else _window(value)
    blended = share * value + (1 - share) * value.flip(0)
    return {next(iter(named)): blended} if named else (blended,)


def _window(pictures: torch.Tensor) -> torch.Tensor:
    """0 in a part of random size and place, 1 around it."""
    high, wide = pictures.shape[2:]
    side = float(torch.rand(())) ** 0.5
    rows, columns = max(1, int(side * high)), max(1, int(side * wide))
    top = int(torch.randint(0, high - rows + 1, ()))
    left = int(torch.randint(0, wide - columns + 1, ()))
    found = torch.ones((1, 1, high, wide))
    found[:, :, top : top + rows, left : left + columns] = 0.0
    return found


def _loss(
    student: nn.Module,
    teacher: nn.Module,
    inputs: Inputs,
    labels: Any,
    small: Watched,
    large: Watched,
    settings: Distill,
    precision: TrainingPrecision,
) -> torch.Tensor:
    positional, named = arguments(student, inputs)
    with precision(inputs):
        with torch.no_grad():
            wanted = [_wide(item) for item in tensors(teacher(*positional, **named))]
        given = [_wide(item) for item in tensors(student(*positional, **named))]
    pairs = [pair for pair in zip(given, wanted, strict=True) if pair[0].is_floating_point()]
    # Where the width of a block's output was pruned there is nothing to compare with.
    alike = tuple(n for n in small.names if small.seen[n].shape == large.seen[n].shape)
    known = settings.labels > 0 and labels is not None
    terms = []
    # Without the last block among them, nothing but the outputs reaches the layers behind.
    whole = settings.features > 0 and alike != () and alike[-1] == small.names[-1]
    if settings.logits or not (known or whole):
        soft = [soft_loss(one, two, settings.temperature) for one, two in pairs]
        terms.append((settings.logits or 1.0) * torch.stack(soft).sum())
    for name in alike if settings.features else []:
        error = relative_error(_wide(small.seen[name]), _wide(large.seen[name]))
        terms.append(settings.features / len(alike) * error)
    if known:
        truth = to_tensor(labels).long().reshape(-1)
        terms.append(settings.labels * functional.cross_entropy(given[0], truth))
    return torch.stack(terms).sum()


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.is_floating_point() else value


def soft_loss(given: torch.Tensor, wanted: torch.Tensor, temperature: float) -> torch.Tensor:
    """Of scores by class the divergence of softened probabilities, of other outputs the error."""
    if given.dim() != 2 or given.shape[1] < 2:
        return relative_error(given, wanted)
    softened = (given / temperature).log_softmax(1)
    target = (wanted / temperature).log_softmax(1)
    found: torch.Tensor = functional.kl_div(
        softened, target, log_target=True, reduction="batchmean"
    )
    return found * temperature**2


def relative_error(given: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(given, wanted) / wanted.square().mean().clamp_min(1e-12)


class Watched:
    """What some modules gave in the last run."""

    def __init__(self, root: nn.Module, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.seen: dict[str, torch.Tensor] = {}
        self._parts: Mapping[str, nn.Module] = dict(root.named_modules())
        self._hooks: list[Any] = []

    def __enter__(self) -> Watched:
        self._hooks = [
            self._parts[name].register_forward_hook(self._keep(name)) for name in self.names
        ]
        return self

    def __exit__(self, *exception: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _keep(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(part: nn.Module, args: Any, output: Any) -> None:
            self.seen[name] = next(iter(tensors(output)))

        return hook


def watched_layers(student: nn.Module, teacher: nn.Module) -> list[str]:
    """Blocks of layers that both have, evenly spread: those whose outputs are compared.

    A block counts where it is an entry of a list or a sequence, as residual nets and encoders
    have them.
    """
    ops = {id(layer.module) for layer in find(teacher)[0].values()}
    known = dict(student.named_modules())
    found = [
        name
        for name, part in teacher.named_modules()
        if name in known
        and name.rpartition(".")[2].isdigit()
        and sum(id(inner) in ops for inner in part.modules()) > 1
    ]
    outer = [name for name in found if not any(name.startswith(f"{top}.") for top in found)]
    # Before blocks that were removed it is the last one's output that counts; before the first that
    # is left, nothing could give it.
    gone = [isinstance(known[name], Skip) for name in outer]
    outer = [
        name
        for place, name in enumerate(outer)
        if not all(gone[: place + 1]) and not any(gone[place + 1 : place + 2])
    ]
    places = {(index + 1) * len(outer) // LAYERS - 1 for index in range(LAYERS)}
    return [outer[place] for place in sorted(places) if place >= 0]


# -- Muon: steps of equal size in all directions of a weight, for short trainings.
#
# Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024), with steps as
# large as AdamW's (Liu et al., "Muon is Scalable for LLM Training", 2025), so that learning rates
# mean the same. torch has one of its own, in late versions and for matrices alone.


MOMENTUM = 0.95
DECAY = 0.01
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz iteration
STEPS = 5
SIZE = 0.2  # the root mean square of an AdamW step, over the learning rate


class Muon(torch.optim.Optimizer):  # type: ignore[misc]
    """For weights of two dimensions and more: a convolution's is one row for each output."""

    def __init__(self, weights: Iterable[torch.Tensor], lr: float) -> None:
        super().__init__(weights, {"lr": lr})

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        assert closure is None
        for group in self.param_groups:
            alike: dict[torch.Size, list[torch.Tensor]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    alike.setdefault(weight.shape, []).append(weight)
            for weights in alike.values():
                self._move(weights, group["lr"])
        return None

    def _move(self, weights: Sequence[torch.Tensor], rate: float) -> None:
        """Weights of one shape at once: many small products take longer than a few large ones."""
        ahead = torch.stack([self._ahead(weight) for weight in weights])
        size = SIZE * max(ahead.shape[1:]) ** 0.5
        for weight, step in zip(weights, orthogonal(ahead), strict=True):
            weight.mul_(1 - rate * DECAY)
            weight.add_(step.reshape(weight.shape), alpha=-rate * size)

    def _ahead(self, weight: torch.Tensor) -> torch.Tensor:
        known: dict[str, Any] = self.state[weight]
        if not known:
            known["mean"] = torch.zeros_like(weight)
        mean = known["mean"].lerp_(weight.grad, 1 - MOMENTUM)
        return torch.lerp(weight.grad, mean, MOMENTUM).flatten(1)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """The same directions, all of about the same size; of a matrix, or of each of several.

    The iteration is a polynomial of the small square product, so that the long side of the matrix
    is met twice instead of ten times.
    """
    one, two, three = COEFFICIENTS
    tall = matrix.shape[-2] > matrix.shape[-1]
    found = matrix.mT if tall else matrix
    found = found / torch.linalg.matrix_norm(found, keepdim=True).clamp_min(1e-7)
    gram = found @ found.mT
    factor = same = torch.eye(gram.shape[-1])
    for _ in range(STEPS):
        step = one * same + two * gram + three * gram @ gram
        factor, gram = step @ factor, step @ gram @ step
    found = factor @ found
    return found.mT if tall else found
