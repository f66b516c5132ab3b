"""Packages that only some datasets and transforms need, imported at the moment of need."""

from __future__ import annotations

import importlib
from types import ModuleType

from lpot.core.errors import DataError

# Module name → the name under which the package is installed.
PACKAGES = {
    "PIL.Image": "pillow",
    "PIL.ImageEnhance": "pillow",
    "tokenizers": "tokenizers",
    "transformers": "transformers",
}


def require(module: str, purpose: str) -> ModuleType:
    """Import an optional module, or say which package to install and what for."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = PACKAGES.get(module, module.partition(".")[0])
        raise DataError(
            f"{purpose} needs the package {package!r}, which can't be imported ({error}): "
            f"pip install {package}"
        ) from error
