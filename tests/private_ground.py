"""What lpot's source uses of frameworks that nobody promises: private modules, names and ops."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOTS = {"torch": "torch", "nn": "torch.nn", "fx": "torch.fx", "tf": "tensorflow"}
ROOTS |= {name: name for name in ("tensorflow", "onnxruntime", "onnx", "keras", "transformers")}
ROOTS |= {"ort": "onnxruntime", "functional": "torch.nn.functional"}
INSIDE = ("tensorflow.python", "onnxruntime.capi", "keras.src")
# Ops that stand under no name of Python's: by namespace.
OPS = ("torch.ops.onednn", "torch.ops.quantized", "torch.ops.quantized_decomposed")
TF_OP = re.compile(r"_(FusedQuantized|Quantized|Mkl)[A-Z]\w+")


def private_names(folder: Path) -> dict[str, str]:
    """Dotted name, or op → a place where it is used."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        for name, line in _names(ast.parse(path.read_text("utf-8"))):
            found.setdefault(name, f"{path.relative_to(folder)}:{line}")
    return found


def _names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if (name := _private(f"{node.module}.{alias.name}")) is not None:
                    yield name, node.lineno
        elif isinstance(node, ast.Attribute) and id(node) not in inner:
            if (name := _private(_dotted(node))) is not None:
                yield name, node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if TF_OP.fullmatch(node.value):
                yield node.value, node.lineno
        elif isinstance(node, ast.Call):
            first = node.args[0] if node.args else None
            owned = any(word.arg == "domain" for word in node.keywords)
            if owned and isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value, node.lineno


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return ROOTS.get(node.id, "")
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def _private(name: str) -> str | None:
    """The name as far as it says what is private; None for what is not."""
    parts = name.split(".")
    if parts[0] not in ROOTS.values():
        return None
    for space in OPS:
        if name == space or name.startswith(f"{space}."):
            return space
    if name.startswith(INSIDE):
        return name
    for at, part in enumerate(parts):
        if part.startswith("_") and not part.endswith("__"):
            return ".".join(parts[: at + 2])
    return None
