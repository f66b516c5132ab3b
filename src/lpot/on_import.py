"""What lpot adds to a library at the moment that library is imported, and not before.

`import lpot` imports no framework. Who imports transformers, before or after, finds in it the
reader of folders that lpot saved. A module of lpot that is not there is told, with a page to read.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

# A module of a library → the module of ours whose `register` is called with it.
SEAMS = {"transformers.quantizers.auto": "lpot.backends.pretrained"}


# Read by a library once, when it is imported: TensorFlow's INT8 kernels are oneDNN's.
ENVIRONMENT = {"tensorflow": ("TF_ENABLE_ONEDNN_OPTS", "1")}


def install() -> None:
    """Register what can be registered now; wait for the rest."""
    if not any(isinstance(item, _Told) for item in sys.meta_path):
        sys.meta_path.append(_Told())
    for library, (name, value) in ENVIRONMENT.items():
        if library not in sys.modules:
            os.environ.setdefault(name, value)
    for name in SEAMS:
        module = sys.modules.get(name)
        if module is not None:
            _register(module)
        elif not any(isinstance(item, _Waiting) and item.name == name for item in sys.meta_path):
            sys.meta_path.insert(0, _Waiting(name))


def _register(module: ModuleType) -> None:
    importlib.import_module(SEAMS[module.__name__]).register(module)


class _Told(MetaPathFinder):
    """Asked last: nobody has found the module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        if fullname.startswith("lpot."):
            raise ModuleNotFoundError(
                f"No module named {fullname!r}; if it is an inner module of LPOT 1.x, "
                "docs/migration.md says what replaces it",
                name=fullname,
            )


class _Waiting(MetaPathFinder):
    """Stands among the finders until its module is imported."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _register(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
