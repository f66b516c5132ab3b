"""docs/stability.md lists whatever a framework may take away without a word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lpot
from private_ground import private_names

PAGE = Path(__file__).parents[1] / "docs" / "stability.md"
FOUND = private_names(Path(lpot.__file__).parent)


def test_what_is_private_is_listed() -> None:
    listed = set(re.findall(r"`([\w.]+)`", PAGE.read_text("utf-8")))
    missing = {
        name: place
        for name, place in FOUND.items()
        if name not in listed and name.rpartition(".")[2] not in listed
    }
    assert missing == {}, "say in docs/stability.md what it is for, and what holds without it"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch\ntorch._C.thing(1)", "torch._C.thing"),
        ("from torch import nn\nnn.modules.conv._ConvNd", "torch.nn.modules.conv._ConvNd"),
        ("from torch.utils import _pytree", "torch.utils._pytree"),
        ("import torch\ntorch.ops.onednn.qlinear_prepack(x)", "torch.ops.onednn"),
        ("from tensorflow.python.eager import context", "tensorflow.python.eager.context"),
        ("node('_FusedQuantizedConv2D')", "_FusedQuantizedConv2D"),
        ("make_node('QuickGelu', [x], [y], domain=THEIRS)", "QuickGelu"),
        ("from torch.nn import functional\nself._own(torch.__version__)", None),
    ],
)
def test_the_search_sees(source: str, found: str | None, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(source)
    assert list(private_names(tmp_path)) == ([] if found is None else [found])


def test_there_is_something_to_list() -> None:
    assert len(FOUND) > 20
