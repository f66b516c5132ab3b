"""A copy of the model that tells what flows through it: hooks on ops, steps of captured parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import fx, nn

from lpot.backends.torch.channels import ChannelObserver
from lpot.backends.torch.data import describe
from lpot.backends.torch.files.program import Action, Program, assemble, float_action
from lpot.backends.torch.files.trust import Trust
from lpot.backends.torch.findings import NO_KERNEL_HERE, Findings
from lpot.backends.torch.kernels.choose import choose
from lpot.backends.torch.layout import viewed
from lpot.backends.torch.modules.by_hand import HandObserver
from lpot.backends.torch.modules.rounded import make_rounded
from lpot.backends.torch.norms import NormObserver, confirmed, find_norms
from lpot.backends.torch.passes.capture_graph import Capture
from lpot.backends.torch.passes.equalize_layers import Factors
from lpot.backends.torch.passes.find_chains import Chain, swallowed
from lpot.backends.torch.passes.keep_int8 import is_add, points
from lpot.backends.torch.passes.release_fastpath import release_fastpath
from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.ranges import inlet_name, outlet_name, point_name
from lpot.backends.torch.run import CALL_ERRORS, call, guess, reason
from lpot.core.batch import Inputs
from lpot.core.errors import CalibrationError
from lpot.core.numerics.observations import Observations, copied
from lpot.core.numerics.rounding import TensorStats

# -- What calibration counts: a histogram a tensor, which ops ran, and on what shapes.


MOST_CALLS = 64  # of one op in one batch, told apart
UNLIKE = 4.0  # two bits are lost
SAMPLED = 65536  # values looked at per tensor and batch; extremes are exact


class Tally:
    """Grows with every batch."""

    def __init__(self) -> None:
        self.stats: dict[str, TensorStats] = {}
        self.ran: set[str] = set()
        self.uneven: set[str] = set()  # sums of tensors of different shapes
        self.estranged: set[str] = set()  # ops called in a way that no kernel can serve
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.widths: dict[str, list[float]] = {}  # of an op's input, the widest of each call
        self._calls: dict[str, int] = {}  # in this batch
        self._last: tuple[torch.Tensor, float, Any, float, float] | None = None

    def see_inlet(self, op: str, value: Any) -> None:
        """The input of an op with static ranges."""
        self.add(inlet_name(op), value)
        if self._last is not None and self._last[0] is value:
            self._measure(op, self._last[4] - self._last[3])
        if isinstance(value, torch.Tensor):
            self.shapes.setdefault(op, tuple(value.shape))

    def _measure(self, op: str, width: float) -> None:
        number = self._calls.get(op, 0)
        self._calls[op] = number + 1
        widths = self.widths.setdefault(op, [])
        if number == len(widths) < MOST_CALLS:
            widths.append(width)
        elif number < len(widths):
            widths[number] = max(widths[number], width)

    @property
    def unlike(self) -> set[str]:
        """Ops whose calls have inputs of so different ranges that one scale does not suit all."""
        return {op for op, all_ in self.widths.items() if max(all_) > UNLIKE * min(all_)}

    def add(self, name: str, value: Any) -> None:
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
        stats = self.stats.setdefault(name, TensorStats.empty())
        stats.update(sample, low_value, high_value)

    def forget(self) -> None:
        """Let go of the batch's tensors."""
        self._calls.clear()
        self._last = None


def _sample(value: torch.Tensor) -> Any:
    flat = value.detach().float().reshape(-1)
    # One more than needed: a stride that is a power of two would visit few channels.
    stride = flat.numel() // SAMPLED + 1 if flat.numel() > SAMPLED else 1
    return flat[::stride].numpy()


# -- Calls of an op that no INT8 kernel can serve; it stays FP32 then.


def is_compiled() -> bool:
    """Is torch reading the code (torch.cond reads its branches)? Then nothing may be noted."""
    return bool(torch.compiler.is_compiling())


def is_transformed() -> bool:
    """Under torch.vmap or torch.func.grad tensors have no values that could be read or packed."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_nested(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and bool(value.is_nested)


class Owners:
    """Knows the parameters that ops had at first: torch.func.functional_call puts others there."""

    def __init__(self, ops: Mapping[str, nn.Module]) -> None:
        self._own = {name: dict(module._parameters) for name, module in ops.items()}

    def have_changed(self, name: str, module: nn.Module) -> bool:
        own = self._own[name]
        return any(own.get(key) is not value for key, value in module._parameters.items())


class Observer:
    """A copy of the model with hooks on its ops. The model itself is not touched."""

    def __init__(self, prepared: Prepared, factors: Factors) -> None:
        self._prepared = prepared
        self._factors = factors
        self._tally = Tally()
        self._trust = Trust()
        self._channels = ChannelObserver()
        self._paused = False
        self._op = ""  # begun last
        self._under_way = ""  # the op whose own forward runs
        self._root = prepared.fresh()
        release_fastpath(self._root, prepared.encoders, prepared.names)
        self._modules = dict(self._root.named_modules())
        for name, rounding in (prepared.rounding or {}).items():
            make_rounded(self._modules[name], rounding, widens=True)
        self._norms = NormObserver(find_norms(self._modules))
        self._confirmed: dict[str, str] = {}
        self._viewed: frozenset[str] = frozenset()
        self._owners = Owners({name: self._modules[name] for name in prepared.layers})
        for name in prepared.layers:
            self._modules[name].register_forward_pre_hook(self._before(name), with_kwargs=True)
            self._modules[name].register_forward_hook(self._after(name))
        for captured in prepared.captures:
            self._attach(captured)
        linears = {name: self._modules[name] for name in prepared.layers}
        weights = {id(m.weight): n for n, m in linears.items() if type(m) is nn.Linear}
        self._by_hand = HandObserver(weights, self._used_by_hand)

    def _used_by_hand(self, name: str, value: Any) -> None:
        """Somebody multiplies with a linear's weight without calling the linear."""
        if self._paused or self._under_way == name or not isinstance(value, torch.Tensor):
            return
        self._by_hand.needed = True
        self._tally.ran.add(name)
        self._tally.see_inlet(name, value)

    @property
    def trusted(self) -> set[str]:
        return self._trust.trusted

    def run(self, inputs: Inputs, number: int) -> Any:
        self._trust.begin()
        self._op = ""
        self._norms.begin()
        norms = self._norms if self._norms.has_norms else nullcontext()
        by_hand = self._by_hand if number == 1 or self._by_hand.needed else nullcontext()
        try:
            with norms, by_hand:
                output = call(self._root, inputs)
            self._norms.end(output)
            return output
        except CALL_ERRORS as error:
            where = f" near op {self._op!r}" if self._op else ""
            hint = guess(self._prepared.fresh(), inputs)
            raise CalibrationError(
                f"calibration batch {number} ({describe(inputs)}) failed in "
                f"{type(self._root).__name__}{where}: {reason(error)}{hint}"
            ) from error
        finally:
            self._tally.forget()
            self._channels.forget()

    def confirm(self, inputs: Inputs) -> None:
        """Try on a batch that was run what its norms and its code are thought to allow."""
        self._confirmed = confirmed(self._prepared, self._norms.readers(), inputs)
        self._viewed = viewed(self._prepared, inputs)

    def _norm_readers(self) -> dict[str, str]:
        found = self._norms.readers()
        return {op: norm for op, norm in found.items() if self._confirmed.get(op) == norm}

    def snapshot(self, seen: int, probe: tuple[Inputs, ...]) -> Observations:
        tally, trusted = self._tally, self.trusted
        return Observations(
            seen,
            self._stats(),
            probe,
            channels=self._channels.extremes(),
            powers=self._channels.powers(),
            factors=self._factors,
            shapes=dict(tally.shapes),
            own=Findings(
                frozenset(tally.ran),
                frozenset(trusted),
                frozenset(tally.uneven),
                frozenset(tally.estranged),
                frozenset(tally.unlike),
                self._viewed,
                {name: self._kernel(name, shape) for name, shape in tally.shapes.items()},
                self._norm_readers(),
                dict(self._channels.leaders),
                self._prepared.shown(probe),
            ).named(),
        )

    def _stats(self) -> dict[str, TensorStats]:
        """The outlet of an op in a part that may be used is where its chain ends."""
        stats = copied(self._tally.stats)
        for op, part in self._prepared.home.items():
            end = stats.pop(_end_name(op), None)
            if end is not None and part in self.trusted:
                stats[outlet_name(op)] = end
        return stats

    def _kernel(self, name: str, shape: tuple[int, ...]) -> str:
        """Races are run once per shape and process."""
        inside = self._prepared.home.get(name) in self.trusted
        return choose(self._prepared.layers[name], shape, inside) or NO_KERNEL_HERE

    def _before(self, name: str) -> Callable[..., None]:
        layer = self._prepared.layers[name]
        home = self._prepared.home.get(name)

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if is_compiled():
                return
            self._op = self._under_way = name
            value = args[0] if args else next(iter(kwargs.values()), None)
            if is_transformed() or is_nested(value) or self._owners.have_changed(name, module):
                self._tally.estranged.add(name)
                return
            if self._paused:
                return
            self._tally.ran.add(name)
            self._trust.check_caller(home)
            if layer.spec.static:
                if layer.spec.family == "linear":
                    self._norms.enter(name, value)
                self._tally.see_inlet(name, value)
                if isinstance(value, torch.Tensor):
                    if layer.spec.family == "linear":
                        self._channels.see(name, value)
                    if home is not None and _is_single(layer.module, value):
                        self._trust.refuse(home)  # kernels between int8 ops know batches only

        return hook

    def _after(self, name: str) -> Callable[..., None]:
        layer = self._prepared.layers[name]
        home = self._prepared.home.get(name)

        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if is_compiled():
                return
            self._norms.leave()
            self._under_way = ""
            # Until a part proves right it may be called module by module.
            inside = home is not None and self._trust.is_proven(home)
            unseen = self._paused or name in self._tally.estranged
            if not unseen and layer.spec.family == "conv" and not inside:
                self._tally.add(outlet_name(name), output)

        return hook

    def _attach(self, captured: Capture) -> None:
        """Run a captured part step by step, so that values between modules are seen as well."""
        module = self._modules[captured.name]
        program = self._recorder(captured, module)
        name = captured.name

        def forward(*args: Any, **kwargs: Any) -> Any:
            if is_compiled() or self._trust.refused(name) or self._paused:
                return type(module).forward(module, *args, **kwargs)
            if is_transformed() or program.bind(args, kwargs) is None:
                self._trust.refuse(name)
                return type(module).forward(module, *args, **kwargs)
            with self._trust.inside(name):
                return self._trust.compare(name, program, args, kwargs, self._aside)

        forward.__signature__ = program.__signature__  # type: ignore[attr-defined]
        module.forward = forward

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """What happens here is not of the model: nothing is noted."""
        self._paused = self._norms.paused = True
        try:
            yield
        finally:
            self._paused = self._norms.paused = False

    def _recorder(self, captured: Capture, module: nn.Module) -> Program:
        chains = self._prepared.chains_of(captured)
        ends = {item.last: op for op, item in chains.items()}
        inner = swallowed(chains.values())
        wanted = points(captured, self._modules)
        actions: dict[fx.Node, Action | fx.Node | None] = {}
        for node in captured.graph.nodes:
            if node.op not in ("call_module", "call_function", "call_method"):
                continue
            action = float_action(captured, node, self._modules)
            names = [_end_name(ends[node])] if node in ends else []
            if self._is_repeated(captured.layer_of(node), chains):
                names.append(_end_name(str(captured.layer_of(node))))
            if node in wanted and node not in inner:
                names.append(point_name(captured, node))
            if is_add(node):
                action = Action(self._even(action.run, point_name(captured, node)), action.args, {})
            if names:
                action = Action(self._tap(action.run, names), action.args, action.kwargs)
            actions[node] = action
        return assemble(captured, module, actions)

    def _is_repeated(self, op: str | None, chains: Mapping[str, Chain]) -> bool:
        """Is it a convolution that is called more than once? It then gives floats each time."""
        layer = self._prepared.layers.get(op) if op is not None else None
        return layer is not None and layer.spec.family == "conv" and op not in chains

    def _even(self, run: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Note sums of unlike shapes: kernels that add in place can't do them."""

        def compared(left: Any, right: Any) -> Any:
            if left.shape != right.shape:
                self._tally.uneven.add(name)
            return run(left, right)

        return compared

    def _tap(self, run: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
        def tapped(*args: Any, **kwargs: Any) -> Any:
            value = run(*args, **kwargs)
            for name in names:
                self._tally.add(name, value)
            return value

        return tapped


def _end_name(op: str) -> str:
    """Of an op's value behind the norm and the activation that follow it in a captured part."""
    return f"{op}:end"


def _is_single(module: Any, value: torch.Tensor) -> bool:
    """A sample without a batch dimension, which float modules take as well."""
    lead = len(module.kernel_size) if hasattr(module, "kernel_size") else 0
    return bool(value.dim() == lead + 1)
