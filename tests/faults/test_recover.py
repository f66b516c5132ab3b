"""A trial of an earlier tuning built again from its history: the same, or a clear refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lpot
import onnx_models
from lpot.core.errors import HistoryError

OPTIONS: dict[str, Any] = {"strategy": "random", "max_trials": 4}


def falling() -> Any:
    """Scores that fall below the bar and never come back: every trial is run."""
    scores = iter([1.0, 0.5, 0.49, 0.48, 0.47])
    return lambda model: next(scores)


def model_bytes(model: Any) -> bytes:
    return bytes(model.native.SerializeToString(deterministic=True))


def test_recover_gives_each_trial_bit_for_bit(tune: Any) -> None:
    model = onnx_models.cnn()
    seen: list[bytes] = []

    def judge(given: Any) -> float:
        seen.append(given.SerializeToString(deterministic=True))
        return 1.0 if len(seen) == 1 else 0.5

    result = tune(model, evaluate=judge, **OPTIONS)
    for number in range(1, 5):
        assert model_bytes(lpot.recover(model, result.history, number)) == seen[number]
    assert model_bytes(lpot.recover(model, str(result.workspace), 2)) == seen[2]


def test_recover_finds_its_own_statistics_after_another_run(tune: Any) -> None:
    model = onnx_models.cnn()
    first = tune(model, evaluate=falling(), **OPTIONS)
    expected = model_bytes(lpot.recover(model, first.history, 1))
    wide = [{"image": feed["image"] * 100} for feed in onnx_models.feeds(model)]
    other = tune(model, calib=wide, evaluate=falling(), **OPTIONS)
    assert model_bytes(lpot.recover(model, first.history, 1)) == expected
    assert model_bytes(lpot.recover(model, other.history, 1)) != expected


def test_recover_says_what_is_wrong(tune: Any) -> None:
    written = tune(evaluate=falling(), **OPTIONS)
    model = onnx_models.mlp()
    with pytest.raises(HistoryError, match="no trial 9; there are: 1, 2, 3, 4"):
        lpot.recover(model, written.history, 9)
    with pytest.raises(HistoryError, match="belongs to a different model"):
        lpot.recover(onnx_models.mlp(seed=3), written.history, 1)
    with pytest.raises(HistoryError, match="no such history"):
        lpot.recover(model, written.history.with_name("gone.jsonl"), 1)
    (statistics,) = written.workspace.glob("observations-*.npz")
    data = statistics.read_bytes()
    for cut in (0, 1, 30, len(data) // 2, len(data) - 1):
        statistics.write_bytes(data[:cut])
        with pytest.raises(HistoryError, match="damaged"):
            lpot.recover(model, written.history, 1)
    statistics.unlink()
    with pytest.raises(HistoryError, match="statistics are missing"):
        lpot.recover(model, written.history, 1)


def test_a_pickle_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trap = tmp_path / "history.snapshot"
    trap.write_bytes(b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0ctouch pwned\x85R.")
    with pytest.raises(HistoryError, match="not a history"):
        lpot.recover(onnx_models.mlp(), trap, 1)
    assert not Path("pwned").exists()
