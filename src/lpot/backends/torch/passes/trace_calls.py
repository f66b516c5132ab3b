"""Reads a module's forward with stand-ins for tensors, out of sight of all other threads.

torch.fx's own `trace` replaces `nn.Module.__call__` for the whole process while it reads, so models
that other threads run meanwhile fail. Here the modules that are read get classes of their own.
"""

from __future__ import annotations

import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from inspect import get_annotations, unwrap
from typing import Any

import torch
from torch import fx, nn
from torch.fx import _symbolic_trace as innards

# The user's code runs on stand-ins and may fail in any way that Python code does.
TRACE_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)

_TRACER = "_lpot_tracer"  # in the fields of a module that is being read
# Functions that are wrapped while code is read lie in the globals of modules: one reader at a time.
_one_reader = threading.RLock()


class _Proxy(fx.Proxy):  # type: ignore[misc]
    """A stand-in that knows its length where the code tells it."""

    def __len__(self) -> int:
        count = _parts(self.node)
        return int(super().__len__()) if count is None else count


class _NoNames(dict[str, Any]):
    """Empty, and not taken apart by torch.fx as a plain dictionary would be."""


class _NoValues(tuple[Any, ...]):
    """The same in place of a tuple."""

    __slots__ = ()


class _Read:
    """In front of the class of a module that is read: calls and parameters go to the tracer."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Classes that keep a list of those derived from them are not told of this one."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        plain: Callable[..., Any] = super().__call__  # type: ignore[misc]
        tracer = self.__dict__.get(_TRACER)
        return (
            plain(*args, **kwargs) if tracer is None else tracer.called(self, plain, args, kwargs)
        )

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)  # type: ignore[misc]
        tracer = self.__dict__.get(_TRACER)
        return value if tracer is None else tracer.getattr(name, value, tracer.known)


def _read_class(cls: type) -> type:
    def fill(namespace: dict[str, Any]) -> None:
        namespace.update(__module__=cls.__module__, __qualname__=cls.__qualname__)

    return types.new_class(cls.__name__, (_Read, cls), exec_body=fill)


class Tracer(fx.Tracer):  # type: ignore[misc]
    """Walks into containers and the user's own modules."""

    known: dict[str, Any]  # parameter → its stand-in

    def trace(self, root: nn.Module, concrete_args: Mapping[str, Any] | None = None) -> fx.Graph:
        """The graph of a module's forward. The module must be a copy that nobody else uses: its
        parts change their classes."""
        self.root, self.known = root, {}
        self.root_module_name = root._get_name()
        self.submodule_paths = {module: name for name, module in root.named_modules()}
        self.graph = fx.Graph(tracer_cls=type(self))
        self.tensor_attrs = {
            value: f"{path}.{name}" if path else name
            for path, module in root.named_modules(remove_duplicate=False)
            for name, value in module.__dict__.items()
            if isinstance(value, torch.Tensor | torch.ScriptObject)
        }
        forward = type(root).forward
        code: Any = unwrap(forward)
        function, args = self.create_args_for_root(forward, True, dict(concrete_args or {}))
        with self._reading(), _one_reader, innards._new_patcher() as self._patcher:
            innards._patch_wrapped_functions(self._patcher)
            self._wrap_in(forward)
            for module in self._autowrap_search:
                innards._autowrap_check(self._patcher, module.__dict__, self._autowrap_function_ids)
            hint = get_annotations(code).get("return")
            output = (self.create_arg(function(*args)),)
            self.create_node("output", "output", output, {}, type_expr=hint)
        self.submodule_paths = {}
        graph: fx.Graph = self.graph
        return graph

    @contextmanager
    def _reading(self) -> Iterator[None]:
        modules = [m for m in self.submodule_paths if not isinstance(m, torch.jit.ScriptModule)]
        made: dict[type, type] = {}
        for module in modules:
            kind: Any = type(module)
            if not issubclass(kind, _Read):
                if kind not in made:
                    made[kind] = _read_class(kind)
                module.__class__ = made[kind]
            module.__dict__[_TRACER] = self
        try:
            yield
        finally:
            for module in modules:
                del module.__dict__[_TRACER]

    def _wrap_in(self, function: Any) -> None:
        """`math.sqrt` and the like, called with a stand-in, become steps of the graph."""
        innards._autowrap_check(
            self._patcher, getattr(function, "__globals__", {}), self._autowrap_function_ids
        )

    def called(
        self, module: Any, plain: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._wrap_in(getattr(module, "forward", module))
        return self.call_module(module, plain, args, kwargs)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def _proxy_placeholder(self, name: str, *details: Any) -> Any:
        """Nothing more is given to a forward that takes any arguments."""
        if name.startswith("*"):
            return _NoNames() if name.startswith("**") else _NoValues()
        return super()._proxy_placeholder(name, *details)

    def create_arg(self, a: Any) -> Any:
        """As torch.fx does, but what is more than a plain dictionary stays so: an OrderedDict, the
        outputs of transformers."""
        if is_dataclass(a) and isinstance(a, dict):
            given = {item.name: getattr(a, item.name) for item in fields(a)}
            made = {name: self.create_arg(value) for name, value in given.items()}
            return self.create_node("call_function", type(a), (), made)
        if type(a) is OrderedDict:
            items = [(key, self.create_arg(value)) for key, value in a.items()]
            return self.create_node("call_function", OrderedDict, (items,), {})
        return super().create_arg(a)

    def iter(self, obj: fx.Proxy) -> Any:
        """Parts whose number stands in the code can be gone through: list(x.chunk(2, 1))."""
        count = _parts(obj.node)
        return super().iter(obj) if count is None else iter([obj[i] for i in range(count)])


def _parts(node: fx.Node) -> int | None:
    """How many tensors a call gives, where its arguments tell. Chunks can be fewer: comparing with
    the original will show."""
    if node.target not in ("chunk", "split", torch.chunk, torch.split):
        return None
    words = ("input", "chunks") if node.target in ("chunk", torch.chunk) else ("input", "sizes")
    given = {**dict(zip(words, node.args, strict=False)), **node.kwargs}
    if node.target in ("chunk", torch.chunk):
        count = given.get("chunks")
        return count if isinstance(count, int) else None
    sizes = next((given[key] for key in ("sizes", "split_size_or_sizes") if key in given), None)
    return len(sizes) if isinstance(sizes, list | tuple) else None
