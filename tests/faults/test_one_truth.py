"""A tuning, then one thing changed: what is said is what a fresh run in an empty folder says."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
import onnx_models
from lpot.core.files.card import read_card

torch = pytest.importorskip("torch")
COMMON: dict[str, Any] = {"measure_speed": False, "progress": False, "max_trials": 3}


@dataclass(frozen=True)
class Question:
    """One tuning, as data: any of it can be changed."""

    kind: str = "onnx"
    model: int = 0
    data: int = 0
    samples: int = 60
    goal: float = 0.2
    calibration: int = 0
    seed: int = 1
    form: str = "samples"  # one score per sample, or one number

    def run(self, folder: Path, output: Path | None = None) -> lpot.Result:
        arguments: dict[str, Any] = {"goal": self.goal, "seed": self.seed, "output": output}
        return KINDS[self.kind](self)(workspace=folder, **COMMON, **arguments)

    @property
    def images(self) -> np.ndarray:
        random = np.random.default_rng(self.data)
        return random.normal(size=(self.samples, 8)).astype(np.float32)

    @property
    def calibrating(self) -> list[np.ndarray]:
        """The first batch is the same whatever is changed."""
        found = [np.random.default_rng(at).normal(size=(8, 8)) for at in (0, 1 + self.calibration)]
        return [batch.astype(np.float32) for batch in found]

    def judged(self, answers: Callable[[Any, np.ndarray], np.ndarray], exact: Any) -> Any:
        """Against FP32's answers, of which every tenth is said to be wrong."""
        images = self.images
        labels = answers(exact, images)
        labels[::10] = (labels[::10] + 1) % 4

        def by_sample(model: Any) -> Iterator[np.ndarray]:
            for start in range(0, len(images), 20):
                found = answers(model, images[start : start + 20])
                yield (found == labels[start : start + 20]).astype(float)

        def number(model: Any) -> float:
            return float((answers(model, images) == labels).mean())

        return by_sample if self.form == "samples" else number


def onnx_run(asked: Question) -> Callable[..., lpot.Result]:
    import onnxruntime

    def answers(model: Any, images: np.ndarray) -> np.ndarray:
        session = onnxruntime.InferenceSession(model.SerializeToString())
        found: np.ndarray = session.run(None, {"x": images})[0].argmax(1)
        return found

    model = onnx_models.mlp(layers=2, seed=asked.model)
    calib = [{"x": batch} for batch in asked.calibrating]
    return lambda **options: lpot.tune(model, calib, asked.judged(answers, model), **options)


def torch_net(asked: Question) -> Any:
    torch.manual_seed(asked.model)
    made = torch.nn.Sequential(
        torch.nn.Linear(8, 16),
        torch.nn.ReLU(),
        torch.nn.Linear(16, 16),
        torch.nn.ReLU(),
        torch.nn.Linear(16, 4),
    )
    return made.eval()


def torch_answers(model: Any, images: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(images)).argmax(1).numpy()  # type: ignore[no-any-return]


def torch_run(asked: Question) -> Callable[..., lpot.Result]:
    net = torch_net(asked)
    judge = asked.judged(torch_answers, copy.deepcopy(net))
    calib = [(torch.from_numpy(batch),) for batch in asked.calibrating]
    return lambda **options: lpot.tune(net, calib, judge, **options)


KINDS = {"onnx": onnx_run, "torch": torch_run}
CHANGES: dict[str, Callable[[Question], Question]] = {
    "nothing": lambda asked: asked,
    "evaluation data": lambda asked: replace(asked, data=asked.data + 1),
    "more data": lambda asked: replace(asked, samples=asked.samples + 40),
    "model": lambda asked: replace(asked, model=asked.model + 1),
    "goal": lambda asked: replace(asked, goal=asked.goal / 2),
    "calibration": lambda asked: replace(asked, calibration=asked.calibration + 1),
    "seed": lambda asked: replace(asked, seed=asked.seed + 1),
}


def said(result: lpot.Result) -> dict[str, Any]:
    """What a user takes home."""
    raw = result.to_json()
    kept = ("met", "goal", "accuracy", "proven", "interval", "recipe", "precisions", "bytes")
    assert result.baseline is not None
    return {**{name: raw[name] for name in kept}, "fp32": result.baseline.accuracy}


def check_disk(result: lpot.Result, folder: Path) -> None:
    """The folder's own words are those of the result, and of the model in it."""
    assert result.workspace is not None
    written = json.loads((folder / "result.json").read_text())
    assert written["accuracy"] == result.accuracy
    card = read_card(folder / str(written["model"]))
    assert card["recipe"] == json.loads(json.dumps(result.recipe.to_json()))
    assert card["accuracy"] == result.accuracy


def change_one_thing(asked: Question, change: str, tmp_path: Path) -> None:
    first = asked.run(tmp_path / "ws")
    assert first.workspace is not None
    before = said(first)
    kept = (tmp_path / "ws" / "result.json").read_bytes()
    other = CHANGES[change](asked)
    again = other.run(tmp_path / "ws")
    fresh = other.run(tmp_path / "fresh")
    assert said(again) == said(fresh)
    assert again.workspace is not None
    check_disk(again, again.workspace)
    if again.workspace != first.workspace:
        assert (tmp_path / "ws" / "result.json").read_bytes() == kept
        check_disk(first, tmp_path / "ws")
    assert said(asked.run(tmp_path / "ws")) == before, "and back again"


def move_the_folder(asked: Question, tmp_path: Path) -> None:
    first = asked.run(tmp_path / "ws")
    shutil.move(tmp_path / "ws", tmp_path / "moved")
    check_disk(first, tmp_path / "moved")
    again = asked.run(tmp_path / "moved")
    assert said(again) == said(first) and all(trial.recalled for trial in again.trials)


def write_elsewhere(asked: Question, tmp_path: Path) -> None:
    output = tmp_path / ("named.onnx" if asked.kind == "onnx" else "named")
    result = asked.run(tmp_path / "ws", output)
    assert result.path == output
    check_disk(result, tmp_path / "ws")
    module = None if asked.kind == "onnx" else torch_net(asked)
    for place in (output, tmp_path / "ws", tmp_path / "ws" / "deploy.yaml"):
        assert lpot.load(place, module=module).recipe == result.recipe


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_one_thing_is_changed(kind: str, change: str, tmp_path: Path) -> None:
    change_one_thing(Question(kind), change, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_folder_is_moved_or_the_model_written_elsewhere(kind: str, tmp_path: Path) -> None:
    move_the_folder(Question(kind), tmp_path / "a")
    write_elsewhere(Question(kind), tmp_path / "b")


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("form", ["samples", "number"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", range(8))
def test_many_questions(kind: str, form: str, change: str, start: int, tmp_path: Path) -> None:
    asked = Question(kind, model=start, data=10 * start, goal=(0.01, 0.3)[start % 2], form=form)
    change_one_thing(asked, change, tmp_path)
