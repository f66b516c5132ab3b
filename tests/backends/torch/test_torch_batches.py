"""Batches in the forms that models of all kinds want: the reading that runs is taken, and said."""

from __future__ import annotations

from collections import UserDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import lpot
from lpot.backends.torch.data import to_tensor
from lpot.core.errors import DataError

Pair = namedtuple("Pair", "left right")


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.other = nn.Linear(8, 4), nn.Linear(8, 4)


class Listing(Base):
    """Like torchvision's detectors: a list of images, and targets in training."""

    def forward(self, images: list[torch.Tensor], targets: Any = None) -> list[Any]:
        assert isinstance(images, list) and all(image.dim() == 1 for image in images)
        assert targets is None or isinstance(targets[0], dict)
        return [{"boxes": self.other(self.fc(image).repeat(2))} for image in images]


class Whole(Base):
    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.fc(batch["x"]) + self.other(batch["z"])


class Optional(Base):
    def forward(self, x: torch.Tensor, ctx: torch.Tensor | None = None) -> torch.Tensor:
        return self.fc(x) if ctx is None else self.fc(x) + self.other(ctx)


class Needed(Base):
    def forward(self, left: torch.Tensor, right: torch.Tensor, gain: float = 1.0) -> torch.Tensor:
        return self.fc(left) + gain * self.other(right)


def rows(count: int = 5) -> torch.Tensor:
    return torch.randn(count, 8)


CASES: dict[str, tuple[type[Base], Any, str]] = {
    "list": (Listing, lambda: [rows(1)[0], rows(1)[0]], "one argument"),
    "list of three": (Listing, lambda: [rows(1)[0]] * 3, "one argument"),
    "list and targets": (
        Listing,
        lambda: ([rows(1)[0], rows(1)[0]], [{"boxes": 1}, {"boxes": 2}]),
        "one argument and its labels",
    ),
    "dict as one argument": (Whole, lambda: {"x": rows(), "z": rows()}, "one argument"),
    "named tuple": (Needed, lambda: Pair(rows(), rows()), "names of their fields"),
    "two inputs": (Needed, lambda: (rows(), rows()), "all of them"),
    "context or label": (Optional, lambda: (rows(), rows()), "taken as labels"),
    "label": (Optional, lambda: (rows(), torch.arange(5)), ""),
    "dict": (Optional, lambda: {"x": rows(), "ctx": rows()}, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_the_reading_that_runs_is_taken_and_said(name: str, tmp_path: Path) -> None:
    kind, make, note = CASES[name]
    torch.manual_seed(0)
    result = lpot.tune(
        kind().eval(),
        calib=[make() for _ in range(3)],
        workspace=tmp_path / "run",
        measure_speed=False,
    )
    said = [text for text in result.notes if text.startswith("calibration:")]
    assert len(said) == bool(note) and note in "".join(said)
    both = name not in ("context or label", "label")
    assert len(result.recipe.low_ops) - len(result.model.skipped) == 1 + both


def test_a_batch_that_fits_in_no_way_is_said_as_before(tmp_path: Path) -> None:
    with pytest.raises(lpot.LpotError, match="could not run on a batch"):
        lpot.tune(Needed().eval(), calib=[torch.randn(2, 3)], workspace=tmp_path / "run")


class Graph:
    """Holds tensors, and answers to the verbs of one, as graphs and encodings do."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def to(self, *how: Any) -> Graph:
        return Graph(self.x.to(*how))

    def detach(self) -> Graph:
        return Graph(self.x.detach())


class Encoding(UserDict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        if name == "data" or name not in self.data:
            raise AttributeError(name)
        return self.data[name]


class Reading(Base):
    def forward(self, held: Any) -> torch.Tensor:
        return self.fc(held.x) + self.other(held.x)


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("make", [Graph, lambda x: Encoding(x=x)])
def test_objects_that_hold_tensors_are_given_as_they_are(
    make: Any, labels: bool, tmp_path: Path
) -> None:
    held = [make(torch.randn(4, 8)) for _ in range(2)]
    loader = [(item, torch.zeros(4)) for item in held] if labels else held
    module = Reading().eval()

    def evaluate(model: Any) -> float:
        with torch.no_grad():
            return float(1 - (model(held[0]) - module(held[0])).abs().mean())

    result = lpot.tune(
        module,
        loader,
        evaluate=evaluate,
        workspace=tmp_path,
        goal=0.5,
        really=True,
        measure_speed=False,
    )
    assert result.met and set(result.model.precisions.values()) == {"int8"}


@pytest.mark.parametrize("form", [">f4", ">f8", "O"])
def test_arrays_of_every_form_become_tensors(form: str) -> None:
    base = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = to_tensor(base.astype(form)[::-1])
    assert made.dtype == torch.float32
    np.testing.assert_array_equal(made.numpy(), base[::-1])
    with pytest.raises(DataError, match="are masked"):
        to_tensor(np.ma.masked_greater(base, 3))
