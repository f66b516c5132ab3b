"""The demo as a request like any other."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from lpot.config.load import load
from lpot.core.evaluation.evaluate import takes_session
from lpot.core.files.workspace import ROOT, fresh_folder
from lpot.core.progress import Listener
from lpot.demo import DemoData, demo_data, demo_model_path
from lpot.jobs.tune.request import Request

NAME = "demo"
BATCH = 50
CONFIG = {
    "model": {"name": "digits", "framework": "onnx"},
    "tuning": {"accuracy_criterion": {"relative": 0.01}},
}


def demo_request(workspace: Path, listener: Listener) -> Request:
    """What a user would write: a model, calibration batches, an evaluation, a bar."""
    images = _data().calib_images
    return Request(
        config=load(CONFIG),
        model=demo_model_path(),
        calib=[images[at : at + BATCH] for at in range(0, len(images), BATCH)],
        eval_func=accuracy,
        workspace=workspace,
        listener=listener,
    )


@takes_session
def accuracy(session: Any) -> float:
    """The share of digits read correctly."""
    data = _data()
    (logits,) = session.run(None, {"image": data.images})
    return float((logits.argmax(axis=1) == data.labels).mean())


@cache
def _data() -> DemoData:
    return demo_data()


def demo_folder(resume: bool) -> Path:
    """A folder that nobody used yet, or the last one."""
    first = ROOT / NAME
    if not first.exists():
        return first
    if not resume:
        return fresh_folder(first)
    runs = {
        int(found[1]): path
        for path in ROOT.glob(f"{NAME}-run*")
        if (found := re.fullmatch(rf"{NAME}-run(\d+)", path.name))
    }
    return runs[max(runs)] if runs else first
