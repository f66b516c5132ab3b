"""Writes what an older version left behind: `python make.py onnx FOLDER`, run in that version.

The workspaces beside this file were written so before recipes and observations became typed values.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

NET = "wide stream"  # outlier channels, which SmoothQuant mends


def case(framework: str) -> tuple[Any, list[Any], Any]:
    """A model, its calibration batches, and an evaluation."""
    from search.tear import MENDED

    torn = MENDED[NET](0)
    if framework == "onnx":
        return torn.model, torn.batches[:-1], torn.score
    from search.test_torn_elsewhere import FRAMEWORKS

    model, outputs, batches = FRAMEWORKS[framework](torn)
    (unseen,) = batches[-1]
    truth = outputs(model, unseen)

    def score(given: Any) -> float:
        off = outputs(given, unseen) - truth
        return 1.0 - float(np.linalg.norm(off) / np.linalg.norm(truth))

    return model, batches[:-1], score


def main(framework: str, folder: Path) -> None:
    from lpot.core.goal import Goal
    from lpot.jobs.tune.api import tune

    model, batches, score = case(framework)
    result = tune(
        model,
        batches,
        score,
        goal=Goal(absolute=0.1),
        workspace=folder,
        measure_speed=False,
        max_trials=3,
    )
    print(result.recipe.to_json().get("repairs"), [t.score for t in result.trials], result.notes)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
