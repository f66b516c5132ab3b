"""A yaml file to write and load, and the error it gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lpot.config import Config, load
from lpot.core.errors import ConfigError

MODEL = "model:\n  name: net\n  framework: onnx\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str | bytes, name: str = "conf.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def loaded(write: Callable[..., Path]) -> Callable[[str], Config]:
    """The Config of a text that follows a valid model section of three lines."""
    return lambda text: load(write(MODEL + text))


@pytest.fixture
def complaint(write: Callable[..., Path]) -> Callable[..., str]:
    """What is said about a text, the folder of the file left out."""

    def complaint(text: str | bytes, model: bool = True) -> str:
        body = text if isinstance(text, bytes) else (MODEL if model else "") + text
        path = write(body)
        with pytest.raises(ConfigError) as info:
            load(path)
        return str(info.value).replace(f"{path.parent}/", "")

    return complaint
