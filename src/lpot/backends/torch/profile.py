"""Time of every module and of the functions between them, while the model runs as it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import nn

from lpot.backends.torch.files.program import Program, Step, assemble, float_action
from lpot.backends.torch.files.trust import same_outputs
from lpot.backends.torch.lower import Floated, floats
from lpot.backends.torch.model import TorchModel
from lpot.backends.torch.modules import LowConv, LowLinear, LowModule
from lpot.backends.torch.modules.half import HalfModule
from lpot.backends.torch.passes.capture_graph import Capture
from lpot.backends.torch.run import CALL_ERRORS, call
from lpot.core.batch import Inputs
from lpot.core.results.profile import OpTime, Role, quickest

WARMUP = 2


def profile(model: TorchModel, inputs: Inputs, runs: int) -> tuple[OpTime, ...]:
    """The shortest time of each op over so many runs.

    What an int8 module does to the floats it is given (quantize) is part of its own time.
    """
    clock = _Clock()
    with _watched(model, clock, inputs):
        turns = []
        for _ in range(WARMUP + runs):
            clock.ops = []
            call(model.native, inputs)
            turns.append(clock.ops)
    return quickest(turns[WARMUP:])


class _Clock:
    """Collects times. What runs inside of something timed is part of that."""

    def __init__(self) -> None:
        self.ops: list[OpTime] = []
        self._inside = 0
        self._start = 0.0

    def enter(self) -> None:
        self._inside += 1
        if self._inside == 1:
            self._start = time.perf_counter()

    def leave(self, name: str, kind: str, precision: str, role: Role = "op") -> None:
        self._inside -= 1
        if self._inside == 0:
            spent = time.perf_counter() - self._start
            self.ops.append(OpTime(name, kind, spent, precision, role))


@contextmanager
def _watched(model: TorchModel, clock: _Clock, inputs: Inputs) -> Iterator[None]:
    """Hooks and timed programs in the model's own module; it is as before afterwards."""
    native = model.native
    modules = dict(native.named_modules())
    handles = []
    for name, module in modules.items():
        if isinstance(module, LowModule | HalfModule) or not any(module.children()):
            handles += [
                module.register_forward_pre_hook(lambda *_: clock.enter()),
                module.register_forward_hook(_after(clock, name, module)),
            ]
    held: dict[nn.Module, Any] = {}
    try:
        for module, program in _programs(model, modules, inputs).items():
            held[module] = module.__dict__.get("forward")
            module.__dict__["forward"] = _timed(program, clock, modules)
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module, forward in held.items():
            del module.__dict__["forward"]
            if forward is not None:
                module.__dict__["forward"] = forward


def _after(clock: _Clock, name: str, module: nn.Module) -> Callable[..., None]:
    kind, precision = _kind(module)
    return lambda *_: clock.leave(name or "(the whole)", kind, precision)


def _kind(module: nn.Module) -> tuple[str, str]:
    if isinstance(module, LowModule):
        kernel = module.settings.kernel if isinstance(module, LowLinear | LowConv) else ""
        return f"{module.kind} {kernel}".strip(), "int8"
    if isinstance(module, HalfModule):
        return type(module.inner).__name__, "bf16"
    return type(module).__name__, "fp32"


def _programs(
    model: TorchModel, modules: Mapping[str, nn.Module], inputs: Inputs
) -> dict[nn.Module, Program]:
    """The parts that run as steps; of a float model those that could, where they compute the same.

    Without them the functions between modules would have no time of their own.
    """
    known = {
        module: module.__dict__["forward"]
        for module in modules.values()
        if isinstance(module.__dict__.get("forward"), Program)
    }
    prepared = model.origin or model.prepared
    if known or prepared is None or model.is_quantized:
        return known
    found = {}
    for captured in prepared.captures:
        if captured.name in modules:
            found[modules[captured.name]] = _float_program(captured, modules)
    return found if _same(model, found, inputs) else {}


def _float_program(captured: Capture, modules: Mapping[str, nn.Module]) -> Program:
    actions = {
        node: float_action(captured, node, modules)
        for node in captured.graph.nodes
        if node.op.startswith("call")
    }
    return assemble(captured, modules[captured.name], actions)


def _same(model: TorchModel, programs: Mapping[nn.Module, Program], inputs: Inputs) -> bool:
    truth = call(model.native, inputs)
    try:
        for module, program in programs.items():
            module.__dict__["forward"] = program
        return same_outputs(truth, call(model.native, inputs))
    except CALL_ERRORS:
        return False
    finally:
        for module in programs:
            module.__dict__.pop("forward", None)


def _timed(program: Program, clock: _Clock, modules: Mapping[str, nn.Module]) -> Program:
    steps = [replace(step, run=_timed_step(step, clock, modules)) for step in program.steps]
    finish = program.finish
    if finish is not None:
        finish = _timed_convert(finish, clock, "outputs")
    names, values, result = program.names, program.values, program.result
    return Program(program.module, names, steps, values, result, finish, program.defaults)


def _timed_step(step: Step, clock: _Clock, modules: Mapping[str, nn.Module]) -> Callable[..., Any]:
    module = modules.get(step.op)
    inner = step.run.run if isinstance(step.run, Floated) else step.run
    kind, precision = _kind(module) if module is not None else _function(inner)
    convert = _timed_convert(floats, clock, step.op) if isinstance(step.run, Floated) else None

    def run(*args: Any, **kwargs: Any) -> Any:
        if convert is not None:
            args, kwargs = convert((args, kwargs))
        clock.enter()
        try:
            return inner(*args, **kwargs)
        finally:
            clock.leave(step.op, kind, precision)

    return run


def _timed_convert(run: Callable[[Any], Any], clock: _Clock, name: str) -> Callable[[Any], Any]:
    def timed(value: Any) -> Any:
        clock.enter()
        try:
            return run(value)
        finally:
            clock.leave(name, "dequantize", "int8", "convert")

    return timed


def _function(run: Any) -> tuple[str, str]:
    op = getattr(run, "op", None)  # one of torch's own quantized ops, with its scale
    if op is not None:
        return str(getattr(op, "__name__", op)).rpartition(".")[2], "int8"
    name = getattr(run, "__name__", None) or getattr(run, "name", None) or type(run).__name__
    return str(name).lstrip("_"), "fp32"
