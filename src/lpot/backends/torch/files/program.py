"""A captured forward as a flat list of steps: a trial changes which function a step calls."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, Signature, signature
from typing import Any

import torch
from torch import fx, nn

from lpot.backends.torch.modules.base import PICKLE, refuse_tracing
from lpot.backends.torch.passes.capture_graph import Capture
from lpot.core.errors import UnsupportedModel

Function = Callable[..., Any]

_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_UNKNOWN = object()  # no argument has this value


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in the list of values; stands where a node stood among a call's arguments."""

    index: int


@dataclass(frozen=True, slots=True)
class Step:
    """`plain` holds the slots when the arguments are nothing but slots: the quick way to call."""

    run: Function
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    plain: tuple[int, ...] | None
    out: int
    drop: tuple[int, ...]
    op: str = ""  # the module it computes, or the function's place in the flow


class Program:
    """Runs in place of a module's forward; any call it was not made for goes to that forward."""

    def __init__(
        self,
        module: nn.Module,
        names: Sequence[str],
        steps: Sequence[Step],
        values: Sequence[Any],
        result: Any,
        finish: Function | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.module = module
        self.names = tuple(names)
        self.defaults = dict(defaults or {})
        self.steps = tuple(steps)
        self.values = list(values)  # constants in their places, None elsewhere
        self.result = result
        self.finish = finish

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        """For the copy of the module; functions are shared, modules among them copied."""
        twin = Program.__new__(Program)
        memo[id(self)] = twin
        for name, value in self.__dict__.items():
            setattr(twin, name, copy.deepcopy(value, memo))
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UnsupportedModel(PICKLE)

    @property
    def __signature__(self) -> Signature:
        """The names of the inputs, for whoever asks the module's forward for them."""
        return signature(type(self.module).forward.__get__(self.module))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inputs = self.bind(args, kwargs)
        if inputs is None:
            return type(self.module).forward(self.module, *args, **kwargs)
        refuse_tracing(inputs)
        values = self.values.copy()
        values[: len(inputs)] = inputs
        for step in self.steps:
            if step.plain is not None:
                values[step.out] = step.run(*[values[index] for index in step.plain])
            else:
                given = fill(step.args, values)
                values[step.out] = step.run(*given, **fill(step.kwargs, values))
            for index in step.drop:
                values[index] = None
        result = fill(self.result, values)
        return result if self.finish is None else self.finish(result)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Exactly the captured inputs, all of them tensors, or None. Other arguments may be given
        if they say what leaving them out says."""
        if kwargs or len(args) != len(self.names):
            given = {**dict(zip(self._arguments, args, strict=False)), **kwargs}
            if len(given) != len(args) + len(kwargs):
                return None
            rest = [name for name in given if name not in self.names]
            if not all(self._is_default(name, given[name]) for name in rest):
                return None
            args = tuple(given[name] for name in self.names if name in given)
            if len(args) != len(self.names):
                return None
        return args if all(isinstance(value, torch.Tensor) for value in args) else None

    @cached_property
    def _arguments(self) -> tuple[str, ...]:
        """Those that may be given by their place."""
        known = self.__signature__.parameters
        return tuple(name for name, item in known.items() if item.kind in _BY_PLACE)

    def _is_default(self, name: str, value: Any) -> bool:
        known = self.defaults.get(name, _UNKNOWN)
        return value is known or (type(value) is type(known) and bool(value == known))


def fill(template: Any, values: Sequence[Any]) -> Any:
    """The template with every slot replaced by its value."""
    if isinstance(template, Slot):
        return values[template.index]
    if isinstance(template, tuple):
        return _rebuild(template, [fill(item, values) for item in template])
    if isinstance(template, list):
        return [fill(item, values) for item in template]
    if isinstance(template, dict):
        return {key: fill(item, values) for key, item in template.items()}
    if isinstance(template, slice):
        bounds = (template.start, template.stop, template.step)
        return slice(*(fill(item, values) for item in bounds))
    return template


def _rebuild(template: tuple[Any, ...], items: list[Any]) -> tuple[Any, ...]:
    return type(template)(*items) if hasattr(template, "_fields") else tuple(items)


@dataclass(frozen=True, eq=False)
class Action:
    """What a node becomes: a function and the nodes or values it is called with."""

    run: Function
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    op: str = ""  # the module it computes


def float_action(captured: Capture, node: fx.Node, modules: Mapping[str, nn.Module]) -> Action:
    """The node as it stands in the original."""
    target: Any = node.target
    if node.op == "call_module":
        name = captured.targets[target]
        return Action(modules[name], node.args, node.kwargs, name)
    if node.op == "call_method":
        run = _view if target == "view" else _Method(target)
        return Action(run, node.args, node.kwargs)
    return Action(target, node.args, node.kwargs)


@dataclass(frozen=True, slots=True)
class _Method:
    name: str

    def __call__(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(value, self.name)(*args, **kwargs)


def _view(value: Any, *args: Any, **kwargs: Any) -> Any:
    """A view asks for memory as FP32 has it; kernels put channels last."""
    is_type = isinstance(args[0] if args else kwargs.get("dtype"), torch.dtype)
    return value.view(*args, **kwargs) if is_type else value.reshape(*args, **kwargs)


def assemble(
    captured: Capture,
    module: nn.Module,
    actions: Mapping[fx.Node, Action | fx.Node | None],
    finish: Function | None = None,
) -> Program:
    """A program from what each node becomes.

    A node mapped to another one stands for its value; a node mapped to None is not computed.
    """
    places: dict[fx.Node, int] = {}
    names: list[str] = []
    constants: dict[int, Any] = {}
    order: list[fx.Node] = []
    result: Any = None
    size = 0
    inputs = [node for node in captured.graph.nodes if node.op == "placeholder"]
    for node in (*inputs, *(node for node in captured.graph.nodes if node.op != "placeholder")):
        action = actions.get(node)
        if node.op == "output":
            result = node.args[0]
        elif isinstance(action, fx.Node):
            places[node] = places[action]
        elif action is not None or node.op in ("placeholder", "get_attr"):
            places[node] = size
            size += 1
            if node.op == "placeholder":
                names.append(str(node.target))
            elif node.op == "get_attr":
                known = captured.constants.get(str(node.target))
                constants[places[node]] = (
                    operator.attrgetter(str(node.target))(module) if known is None else known
                )
            else:
                order.append(node)
    return Program(
        module,
        names,
        _steps(order, actions, places, result, f"{captured.name}." if captured.name else ""),
        [constants.get(index) for index in range(size)],
        _slots(result, places),
        finish,
        captured.defaults,
    )


def _steps(
    order: Sequence[fx.Node],
    actions: Mapping[fx.Node, Any],
    places: Mapping[fx.Node, int],
    result: Any,
    prefix: str,
) -> list[Step]:
    last: dict[int, int] = {}
    for number, node in enumerate(order):
        for used in _nodes((actions[node].args, actions[node].kwargs)):
            last[places[used]] = number
    kept = {places[node] for node in _nodes(result)}
    steps = []
    for number, node in enumerate(order):
        action: Action = actions[node]
        args = tuple(_slots(item, places) for item in action.args)
        kwargs = {key: _slots(item, places) for key, item in action.kwargs.items()}
        plain = tuple(item.index for item in args) if _is_plain(args, kwargs) else None
        used = {places[item] for item in _nodes((action.args, action.kwargs))}
        drop = tuple(sorted(i for i in used if last[i] == number and i not in kept))
        # A value that replaces another in the same place must not be dropped with it.
        drop = tuple(index for index in drop if index != places[node])
        name = action.op or f"{prefix}{node.name}"
        steps.append(Step(action.run, args, kwargs, plain, places[node], drop, name))
    return steps


def _is_plain(args: Iterable[Any], kwargs: Mapping[str, Any]) -> bool:
    return not kwargs and all(isinstance(item, Slot) for item in args)


def _slots(template: Any, places: Mapping[fx.Node, int]) -> Any:
    return fx.node.map_arg(template, lambda node: Slot(places[node]))


def _nodes(template: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.node.map_arg(template, lambda node: found.append(node) or node)  # type: ignore[func-returns-value]
    return found
