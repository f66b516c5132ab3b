"""A copy of the model that tells what flows through it: hooks on ops, steps of captured parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import fx, nn

from lpot.backends.torch.channels import ChannelWatch
from lpot.backends.torch.data import describe, tensors
from lpot.backends.torch.findings import NO_KERNEL_HERE, Findings
from lpot.backends.torch.kernels.choose import choose
from lpot.backends.torch.modules.by_hand import HandWatch
from lpot.backends.torch.modules.rounded import make_rounded
from lpot.backends.torch.norms import NormWatch, confirmed, find_norms
from lpot.backends.torch.passes.capture_graph import Capture
from lpot.backends.torch.passes.equalize_layers import Factors
from lpot.backends.torch.passes.find_chains import swallowed
from lpot.backends.torch.passes.keep_int8 import is_add, points
from lpot.backends.torch.passes.release_fastpath import release_fastpath
from lpot.backends.torch.program import Action, Program, assemble, float_action
from lpot.backends.torch.ranges import inlet_name, outlet_name, point_name
from lpot.backends.torch.run import CALL_ERRORS, call, guess
from lpot.backends.torch.workshop import Workshop
from lpot.core.batch import Inputs
from lpot.core.errors import CalibrationError
from lpot.core.numerics import TensorStats
from lpot.core.observations import Observations, copied

SAMPLED = 65536  # values looked at per tensor and batch; extremes are exact
COMPARED_CALLS = 2  # how often a captured part is compared with the original


class Watch:
    """A copy of the model with hooks on its ops. The model itself is not touched."""

    def __init__(self, workshop: Workshop, factors: Factors) -> None:
        self._workshop = workshop
        self._factors = factors
        self._stats: dict[str, TensorStats] = {}
        self._channels = ChannelWatch()
        self._ran: set[str] = set()
        self._uneven: set[str] = set()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._kernels: dict[str, str] = {}
        self._distrusted: set[str] = set()
        self._compared: dict[str, int] = {}
        self._active: list[str] = []
        self._paused = False
        self._op = ""
        self._inside = ""  # the linear whose own forward is under way
        self._has_hands = False
        self._last: tuple[torch.Tensor, float, Any, float, float] | None = None
        self._root = workshop.fresh()
        release_fastpath(self._root, workshop.encoders, workshop.names)
        self._modules = dict(self._root.named_modules())
        for name, rounding in (workshop.rounding or {}).items():
            make_rounded(self._modules[name], rounding, widens=True)
        self._norms = NormWatch(find_norms(self._modules))
        self._confirmed: dict[str, str] = {}
        for name in workshop.sites:
            self._modules[name].register_forward_pre_hook(self._before(name), with_kwargs=True)
            self._modules[name].register_forward_hook(self._after(name))
        for captured in workshop.captures:
            self._attach(captured)
        linears = {name: self._modules[name] for name in workshop.sites}
        weights = {id(m.weight): n for n, m in linears.items() if type(m) is nn.Linear}
        self._by_hand = HandWatch(weights, self._used_by_hand)

    def _used_by_hand(self, name: str, value: Any) -> None:
        """Somebody multiplies with a linear's weight without calling the linear."""
        if self._paused or self._inside == name or not isinstance(value, torch.Tensor):
            return
        self._has_hands = True
        self._ran.add(name)
        self._add(inlet_name(name), value)
        self._shapes.setdefault(name, tuple(value.shape))

    @property
    def trusted(self) -> set[str]:
        return set(self._compared) - self._distrusted

    def run(self, inputs: Inputs, number: int) -> Any:
        self._active.clear()
        self._op = ""
        self._norms.begin()
        norms = self._norms if self._norms.has_norms else nullcontext()
        by_hand = self._by_hand if number == 1 or self._has_hands else nullcontext()
        try:
            with norms, by_hand:
                output = call(self._root, inputs)
            self._norms.end(output)
            return output
        except CALL_ERRORS as error:
            where = f" near op {self._op!r}" if self._op else ""
            hint = guess(self._workshop.fresh(), inputs)
            raise CalibrationError(
                f"calibration batch {number} ({describe(inputs)}) failed in "
                f"{type(self._root).__name__}{where}: {error}{hint}"
            ) from error
        finally:
            self._last = None
            self._channels.forget()

    def confirm(self, inputs: Inputs) -> None:
        """Try on a batch that was run what its norms are thought to allow."""
        self._confirmed = confirmed(self._workshop, self._norms.readers(), inputs)

    def _norm_readers(self) -> dict[str, str]:
        found = self._norms.readers()
        return {op: norm for op, norm in found.items() if self._confirmed.get(op) == norm}

    def snapshot(self, seen: int, probe: list[Inputs]) -> Observations:
        trusted = self.trusted
        for name, shape in self._shapes.items():
            if name not in self._kernels:
                inside = self._workshop.home.get(name) in trusted
                found = choose(self._workshop.sites[name], shape, inside)
                self._kernels[name] = found or NO_KERNEL_HERE
        return Observations(
            seen,
            copied(self._stats),
            tuple(probe),
            channels=self._channels.extremes(),
            powers=self._channels.powers(),
            factors=self._factors,
            shapes=dict(self._shapes),
            own=Findings(
                frozenset(self._ran),
                frozenset(trusted),
                frozenset(self._uneven),
                dict(self._kernels),
                self._norm_readers(),
                dict(self._channels.leaders),
            ).named(),
        )

    def _before(self, name: str) -> Callable[..., None]:
        site = self._workshop.sites[name]
        home = self._workshop.home.get(name)

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._op = self._inside = name
            if self._paused:
                return
            self._ran.add(name)
            if home is not None and home not in self._active and home not in self._distrusted:
                # Somebody calls this op past the part that it was captured in.
                self._distrust(home)
            if site.spec.static:
                value = args[0] if args else next(iter(kwargs.values()), None)
                if site.spec.family == "linear":
                    self._norms.enter(name, value)
                self._add(inlet_name(name), value)
                if isinstance(value, torch.Tensor):
                    self._shapes.setdefault(name, tuple(value.shape))
                    if site.spec.family == "linear":
                        self._channels.see(name, value)
                    if home is not None and _is_single(site.module, value):
                        self._distrust(home)  # kernels between int8 ops know batches only

        return hook

    def _after(self, name: str) -> Callable[..., None]:
        site = self._workshop.sites[name]
        home = self._workshop.home.get(name)

        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            self._norms.leave()
            self._inside = ""
            inside = home is not None and home not in self._distrusted
            if not self._paused and site.spec.family == "conv" and not inside:
                self._add(outlet_name(name), output)

        return hook

    def _attach(self, captured: Capture) -> None:
        """Run a captured part step by step, so that values between modules are seen as well."""
        module = self._modules[captured.name]
        program = self._recorder(captured, module)
        name = captured.name

        def forward(*args: Any, **kwargs: Any) -> Any:
            if name in self._distrusted or self._paused:
                return type(module).forward(module, *args, **kwargs)
            if program.bind(args, kwargs) is None:
                self._distrust(name)
                return type(module).forward(module, *args, **kwargs)
            self._active.append(name)
            try:
                return self._compare(name, program, args, kwargs)
            finally:
                self._active.pop()

        module.forward = forward

    def _compare(self, name: str, program: Program, args: Any, kwargs: Any) -> Any:
        times = self._compared.get(name, 0)
        if times >= COMPARED_CALLS:
            return program(*args, **kwargs)
        with self._aside():
            copies = [value.clone() for value in args], {k: v.clone() for k, v in kwargs.items()}
            truth = type(program.module).forward(program.module, *copies[0], **copies[1])
        self._compared[name] = times + 1
        try:
            found = program(*args, **kwargs)
        except CALL_ERRORS:
            found = None
        with self._aside():
            if same_outputs(truth, found):
                return found
        self._distrust(name)
        return truth

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """What happens here is not of the model: nothing is noted."""
        self._paused = self._norms.paused = True
        try:
            yield
        finally:
            self._paused = self._norms.paused = False

    def _distrust(self, name: str) -> None:
        self._distrusted.add(name)

    def _recorder(self, captured: Capture, module: nn.Module) -> Program:
        chains = self._workshop.chains_of(captured)
        ends = {item.last: op for op, item in chains.items()}
        inner = swallowed(chains.values())
        wanted = points(captured, self._modules)
        actions: dict[fx.Node, Action | fx.Node | None] = {}
        for node in captured.graph.nodes:
            if node.op not in ("call_module", "call_function", "call_method"):
                continue
            action = float_action(captured, node, self._modules)
            names = [outlet_name(ends[node])] if node in ends else []
            op = captured.site_of(node)
            if op in self._workshop.sites and op not in chains:
                names.append(outlet_name(op))  # called more than once: each time on its own
            if node in wanted and node not in inner:
                names.append(point_name(captured, node))
            if is_add(node):
                action = Action(self._even(action.run, point_name(captured, node)), action.args, {})
            if names:
                action = Action(self._tap(action.run, names), action.args, action.kwargs)
            actions[node] = action
        return assemble(captured, module, actions)

    def _even(self, run: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Note sums of unlike shapes: kernels that add in place can't do them."""

        def compared(left: Any, right: Any) -> Any:
            if left.shape != right.shape:
                self._uneven.add(name)
            return run(left, right)

        return compared

    def _tap(self, run: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
        def tapped(*args: Any, **kwargs: Any) -> Any:
            value = run(*args, **kwargs)
            for name in names:
                self._add(name, value)
            return value

        return tapped

    def _add(self, name: str, value: Any) -> None:
        if (
            not isinstance(value, torch.Tensor)
            or not value.is_floating_point()
            or not value.numel()
        ):
            return
        # Tensors made in inference mode do not count their changes: NaN is never the same.
        version = math.nan if value.is_inference() else value._version
        if self._last is None or self._last[0] is not value or self._last[1] != version:
            # Query, key and value read the same tensor: it is looked at once.
            low, high = torch.aminmax(value)
            self._last = (value, version, _sample(value), float(low), float(high))
        _, _, sample, low_value, high_value = self._last
        stats = self._stats.setdefault(name, TensorStats.empty())
        stats.update(sample, low_value, high_value)


def _is_single(module: Any, value: torch.Tensor) -> bool:
    """A sample without a batch dimension, which float modules take as well."""
    lead = len(module.kernel_size) if hasattr(module, "kernel_size") else 0
    return bool(value.dim() == lead + 1)


def _sample(value: torch.Tensor) -> Any:
    flat = value.detach().float().reshape(-1)
    # One more than needed: a stride that is a power of two would visit few channels.
    stride = flat.numel() // SAMPLED + 1 if flat.numel() > SAMPLED else 1
    return flat[::stride].numpy()


def same_outputs(truth: Any, found: Any) -> bool:
    left, right = list(tensors(truth)), list(tensors(found))
    if len(left) != len(right) or type(truth) is not type(found):
        return False
    return all(
        a.shape == b.shape
        and a.dtype == b.dtype  # under autocast a captured part computes in other precisions
        and torch.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)
        for a, b in zip(left, right, strict=True)
    )
