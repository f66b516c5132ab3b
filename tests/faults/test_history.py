"""The journal: torn, edited, of another run, of another version; and what it never holds."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
import onnx_models
from lpot.core.errors import HistoryError, WorkspaceError
from lpot.core.files.history import History
from lpot.core.progress import Listener
from lpot.core.trial import State, Trial
from lpot.jobs.recover import get_tuning_history

OPTIONS: dict[str, Any] = {"strategy": "random", "max_trials": 4}


class Falling:
    """Scores that fall below the bar and never come back: every trial is run."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, model: Any) -> float:
        self.calls += 1
        return 1.0 if self.calls == 1 else 0.5 - self.calls / 1000


@pytest.fixture
def written(tune: Any) -> lpot.Result:
    result: lpot.Result = tune(evaluate=Falling(), **OPTIONS)
    assert len(result.trials) == 4
    return result


def reopen(path: Path) -> History:
    return History.open(path, History.read(path).fingerprint)


def rewrite(path: Path, change: Any) -> None:
    """Edit the entries of a journal with their checksums right: what another program could do."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for line in lines:
        line.pop("check")
    text = ""
    for line in change(lines):
        body = json.dumps(line, sort_keys=True, ensure_ascii=False)
        check = hashlib.sha256(body.encode()).hexdigest()[:12]
        text += json.dumps({**line, "check": check}, ensure_ascii=False) + "\n"
    path.write_text(text, "utf-8")


def test_cut_at_every_byte_of_the_last_line(tune: Any, tmp_path: Path) -> None:
    written = tune(onnx_models.mlp(layers=1), evaluate=Falling(), **OPTIONS)
    whole = written.history.read_bytes()
    fingerprint = History.read(written.history).fingerprint
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(start, len(whole)):
        path = tmp_path / "cut" / "history.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(whole[:cut])
        history = History.open(path, fingerprint)
        assert history.baseline is not None
        complete = cut == len(whole) - 1  # only the line's end is missing
        assert len(history.trials) == (4 if complete else 3), cut
        assert bool(history.notes) is (cut not in (start, len(whole) - 1)), cut
        history.append(written.trials[-1])
        sound = History.read(path)
        assert sound.notes == [], cut
        assert len(sound.trials) == len(history.trials)
        for file in path.parent.iterdir():
            file.unlink()


@pytest.mark.parametrize("lost", [1, 100, 400])
def test_a_torn_history_is_gone_on_with(tune: Any, written: lpot.Result, lost: int) -> None:
    path = written.history
    path.write_bytes(path.read_bytes()[:-lost])
    judge = Falling()
    judge.calls = 4
    again = tune(evaluate=judge, trust_history=True, **OPTIONS)
    assert [trial.recalled for trial in again.trials] == [True, True, True, lost == 1]
    assert again.recipe == written.recipe
    assert judge.calls == (4 if lost == 1 else 5)
    kept = list(path.parent.glob("history-damaged*.jsonl"))
    assert len(kept) == (0 if lost == 1 else 1)


JUNK = {
    "zeros of a power cut": b"\0" * 512,
    "not text": b"\xff\xfe\x00\x01",
    "a list": b"[]",
    "a word": b'"word"',
    "a number": b"12",
    "no checksum": b'{"kind": "trial"}',
    "deep nesting": b"[" * 200_000,
    "half a character": '{"kind": "é'.encode()[:-1],
    "a foreign kind": b'{"kind": "note", "check": "0"}',
    "NaN": b"NaN",
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_junk_costs_itself_alone(written: lpot.Result, junk: bytes) -> None:
    path = written.history
    lines = path.read_bytes().splitlines()
    # Header, baseline, and two lines for each of two trials.
    path.write_bytes(b"\n".join([*lines[:6], junk, *lines[6:], b""]))
    history = reopen(path)
    assert len(history.trials) == 4
    assert "line 7" in history.notes[0] and "kept as history-damaged" in history.notes[0]
    assert History.read(path).notes == []


def test_one_flipped_bit_costs_one_line_at_most(written: lpot.Result) -> None:
    """In every line, the header included: each of the others is still believed."""
    path = written.history
    whole, fingerprint = path.read_bytes(), History.read(path).fingerprint
    lines = whole.splitlines(keepends=True)
    place = 0
    for line in lines:
        spoilt = bytearray(whole)
        spoilt[place + len(line) // 2] ^= 1 << 3
        place += len(line)
        path.write_bytes(spoilt)
        history = History.open(path, fingerprint)
        kind = json.loads(line)["kind"]
        assert len(history.trials) == (3 if kind == "trial" else 4), kind
        assert (history.baseline is None) is (kind == "baseline")
        assert "kept as history-damaged" in history.notes[0]
        assert History.read(path).notes == []
        for aside in path.parent.glob("history-damaged*"):
            aside.unlink()


def test_a_lost_header_does_not_make_another_runs_history_ours(written: lpot.Result) -> None:
    path = written.history
    path.write_bytes(b"x" + path.read_bytes())
    other = History.open(path, {"model": "another"})
    assert other.trials == [] and "can't be used" in other.notes[0]


def test_an_edited_score_is_noticed(tune: Any, written: lpot.Result) -> None:
    path = written.history
    text = path.read_text("utf-8")
    assert '"accuracy": 0.498' in text
    path.write_text(text.replace('"accuracy": 0.498', '"accuracy": 0.998'), "utf-8")
    again = tune(evaluate=lambda model: 0.4, **OPTIONS)
    assert any("was edited" in note for note in again.notes)
    assert again.accuracy is not None and again.accuracy < 0.9


def test_entries_that_can_not_be_understood_are_left_out(written: lpot.Result) -> None:
    def change(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        del lines[5]["recipe"]  # of the second trial
        return lines

    rewrite(written.history, change)
    history = reopen(written.history)
    assert len(history.trials) == 3
    assert "line 6 of the history can't be understood" in history.notes[0]
    history.append(written.trials[2])
    assert len(reopen(written.history).trials) == 4


def test_another_format_is_kept_aside_and_a_fresh_one_begun(
    tune: Any, written: lpot.Result
) -> None:
    def change(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        lines[0]["format"] = 99
        return lines

    rewrite(written.history, change)
    old = written.history.read_bytes()
    again = tune(evaluate=Falling(), **OPTIONS)
    assert any("another version" in note for note in again.notes)
    assert written.history.with_name("history-unreadable.jsonl").read_bytes() == old
    assert not any(trial.recalled for trial in again.trials)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"hello\n", b"\x80\x04K\x01.", b"{}\n"])
def test_a_file_that_is_no_history(tune: Any, tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "history.jsonl").write_bytes(content)
    result = tune(evaluate=Falling(), **OPTIONS)
    assert len(History.read(result.history).trials) == 4
    aside = list(folder.glob("history-unreadable*"))
    assert [file.read_bytes() for file in aside] == ([content] if content.strip() else [])
    if content.strip():
        with pytest.raises(HistoryError):
            History.read(aside[0])


def test_a_history_that_can_not_be_read_is_said(written: lpot.Result) -> None:
    written.history.unlink()
    written.history.mkdir()
    with pytest.raises(WorkspaceError, match="can't read the history"):
        History.open(written.history, {})


DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"model": onnx_models.mlp(seed=5)}, "the model differs"),
    "goal": ({"goal": 0.2}, "the configuration differs"),
    "seed": ({"seed": 3}, "the configuration differs"),
    "rule": ({"keep_fp32": ["dense0"]}, "the configuration differs"),
    "data": (
        {"calib": onnx_models.feeds(onnx_models.mlp(), seed=9)},
        "the calibration data differ",
    ),
    "length": ({"calib": onnx_models.feeds(onnx_models.mlp())[:3]}, "the calibration data differ"),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_another_run_is_told_apart_and_kept(tune: Any, written: lpot.Result, what: str) -> None:
    changes, word = DIFFERENT[what]
    old = contents(written.workspace)
    judge = Falling()
    other = tune(evaluate=judge, **{**OPTIONS, **changes})
    assert any("another question" in note and word in note for note in other.notes)
    assert not any(trial.recalled for trial in other.trials)
    assert contents(written.workspace) == old
    assert other.workspace.parent == written.workspace
    assert judge.calls == 5
    again = tune(evaluate=judge, **{**OPTIONS, **changes, "trust_history": True})
    assert again.workspace == other.workspace and all(trial.recalled for trial in again.trials)


def contents(folder: Path) -> dict[str, bytes]:
    """What lies in a workspace, but for its lock."""
    files = (path for path in folder.iterdir() if path.is_file() and path.name != "lock")
    return {path.name: path.read_bytes() for path in files}


def test_two_rules_on_other_ops_are_two_runs(tune: Any) -> None:
    tune(evaluate=Falling(), keep_fp32=["dense0"], **OPTIONS)
    other = tune(evaluate=Falling(), keep_fp32=["dense1"], **OPTIONS)
    assert any("the configuration differs" in note for note in other.notes)


def test_versions_that_differ_are_told(
    tune: Any, written: lpot.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lpot.backends.onnx import OnnxBackend

    monkeypatch.setattr(OnnxBackend, "versions", lambda self: {"onnxruntime": "99"})
    other = tune(evaluate=Falling(), **OPTIONS)
    assert any("versions differ" in note for note in other.notes)


def test_coming_back_to_an_earlier_run_takes_its_history_up_again(
    tune: Any, written: lpot.Result
) -> None:
    tune(evaluate=Falling(), goal=0.2, **OPTIONS)
    judge = Falling()
    back = tune(evaluate=judge, trust_history=True, **OPTIONS)
    assert judge.calls == 0
    assert all(trial.recalled for trial in back.trials)
    assert back.recipe == written.recipe
    assert back.workspace == written.workspace


def test_names_and_limits_do_not_make_another_run(tune: Any, written: lpot.Result) -> None:
    config = {"model": {"name": "other"}, "tuning": {"exit_policy": {"max_trials": 4}}}
    again = tune(evaluate=Falling(), config=config, strategy="random")
    assert all(trial.recalled for trial in again.trials)


def test_resume_takes_over_what_another_workspace_knows(
    tune: Any, written: lpot.Result, tmp_path: Path
) -> None:
    judge = Falling()
    config = {"tuning": {"workspace": {"resume": str(written.history)}}}
    options = {**OPTIONS, "trust_history": True}
    taken = tune(evaluate=judge, workspace=tmp_path / "other", config=config, **options)
    assert judge.calls == 0
    assert taken.recipe == written.recipe
    assert taken.path is not None and taken.path.is_file()
    assert len(History.read(taken.history).trials) == 4


def test_resume_of_another_run_or_of_nothing_is_refused_or_told(
    tune: Any, written: lpot.Result, tmp_path: Path
) -> None:
    config = {"tuning": {"workspace": {"resume": str(written.history)}}}
    other = tune(
        evaluate=Falling(),
        workspace=tmp_path / "b",
        config=config,
        goal=0.3,
        really=True,
        **OPTIONS,
    )
    assert any("is not resumed: the configuration differs" in note for note in other.notes)
    config = {"tuning": {"workspace": {"resume": str(tmp_path / "nothing.jsonl")}}}
    with pytest.raises(HistoryError, match="no such history"):
        tune(evaluate=Falling(), workspace=tmp_path / "c", config=config, **OPTIONS)


def test_failed_trials_are_tried_again_in_the_next_run(tune: Any) -> None:
    scores = iter([1.0, MemoryError("for once"), 0.999])

    def flaky(model: Any) -> float:
        score = next(scores)
        if isinstance(score, Exception):
            raise score
        return score

    first = tune(evaluate=flaky, max_trials=1)
    assert first.trials[0].state is State.FAILED
    again = tune(evaluate=flaky, max_trials=1, trust_history=True)
    assert again.trials[0].state is State.DONE
    assert [trial.state for trial in get_tuning_history(first.workspace)] == ["failed", "done"]


# -- races ---------------------------------------------------------------------------------------


class Interrupted(Listener):
    """Stops the run, as kill -9 would, when the so-manieth trial is about to be written down."""

    def __init__(self, number: int) -> None:
        self.number = number

    def trial(self, trial: Trial, best: Trial | None) -> None:
        if trial.number == self.number:
            raise KeyboardInterrupt


def by_sample(model: Any) -> Any:
    """Scores of single samples, drawn from the model's bytes: most trials are left early."""
    raw = model.SerializeToString(deterministic=True)
    draw = np.random.default_rng(list(hashlib.sha256(raw).digest()))
    is_low = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    share = draw.uniform(0.3, 0.9) if is_low else 1.0
    for _ in range(50):
        yield (draw.random(4) < share).astype(float)


def labelled() -> list[tuple[np.ndarray, np.ndarray]]:
    """A loader on which FP32 is nearly always right, and INT8 often is not."""
    model = onnx_models.mlp(layers=4)
    feeds = onnx_models.feeds(model, count=30)
    return [(f["x"], onnx_models.run(model, f)[0].argmax(axis=1)) for f in feeds]


RACES: dict[str, dict[str, Any]] = {
    "a generator": {"evaluate": by_sample, "goal": 0.05},
    "a metric": {"metric": {"topk": 1}, "eval_loader": labelled(), "goal": 1e-9},
}


@pytest.mark.parametrize("kind", RACES)
def test_a_race_that_was_interrupted_ends_as_one_that_was_not(tune: Any, kind: str) -> None:
    """Evaluations that are left early must be left at the same sample after a crash."""
    model = onnx_models.mlp(layers=4)
    options: dict[str, Any] = {"strategy": "random", "max_trials": 6, **RACES[kind]}
    calm = tune(model, new_run=True, **options)
    assert any("stopped early, once the bar was out of reach" in note for note in calm.notes)
    for number in {1, len(calm.trials) // 2}:
        folder = calm.workspace.with_name(f"torn{number}")
        with pytest.raises(KeyboardInterrupt):
            tune(model, workspace=folder, listener=Interrupted(number), **options)
        torn = tune(model, workspace=folder, **options)
        assert torn.recipe == calm.recipe
        assert torn.accuracy == calm.accuracy
        assert {t.recipe.digest: t.accuracy for t in torn.trials} == {
            t.recipe.digest: t.accuracy for t in calm.trials
        }


# -- what is never written -----------------------------------------------------------------------


def test_no_samples_and_no_full_paths_are_kept(tune: Any, tmp_path: Path) -> None:
    calls = itertools.count()

    def judge(model: Any) -> float:
        number = next(calls)
        if number == 1:
            raise ValueError(f"can't open {Path.cwd() / 'labels.txt'} of {Path.home() / 'x'}")
        return 1.0 if number == 0 else 0.5

    marker = np.float32(1.2345679)
    data = [np.full((4, 8), marker), np.full((4, 8), -marker)]
    result = tune(calib=data, evaluate=judge, **OPTIONS)
    text = result.history.read_text("utf-8")
    assert "can't open ./labels.txt of ~/x" in text
    for folder in (Path.cwd(), Path.home(), tmp_path, Path(lpot.__file__).parent):
        assert str(folder) not in text, folder
    assert "1.2345" not in text
    assert not re.search(r'"/[a-z]', text)
    raw = b"".join(path.read_bytes() for path in result.workspace.glob("observations-*"))
    assert marker.tobytes() * 2 not in raw


def test_tokens_of_the_configuration_are_not_kept(tune: Any) -> None:
    config = {"tuning": {"strategy": {"name": "random", "sigopt_api_token": "s3cret"}}}
    result = tune(evaluate=Falling(), config=config, max_trials=2)
    for path in result.workspace.iterdir():
        assert b"s3cret" not in path.read_bytes(), path


def test_endless_error_texts_and_half_characters_are_written(tune: Any) -> None:
    calls = itertools.count()

    def judge(model: Any) -> float:
        if next(calls) > 0:
            raise ValueError("\udcff" + "x" * 100_000)
        return 1.0

    result = tune(evaluate=judge, **OPTIONS)
    assert result.history.stat().st_size < 20_000
    assert all(trial.state is State.FAILED for trial in get_tuning_history(result.history))


@pytest.mark.slow
def test_a_hundred_thousand_trials_open_quickly_in_little_memory(script: Any) -> None:
    out = script(MANY, 100_000).stdout.split()
    assert int(out[0]) == 100_000
    assert float(out[1]) <= 10, "seconds of CPU"
    assert int(out[2]) <= 300, "MiB"


def test_trials_share_what_they_have_in_common(script: Any) -> None:
    """A twentieth of it, by memory alone: a clock would ask how busy the machine is."""
    few, many = (int(script(MANY, count).stdout.split()[2]) for count in (100, 5_000))
    assert many - few <= 12, "MiB"


MANY = """
import os, random, resource, sys, time
from pathlib import Path
from lpot.core.files.history import History
from lpot.core.recipe import OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.trial import Score, State, Trial
path, count, mark = Path("history.jsonl"), int(sys.argv[1]), {"model": "m"}
path.unlink(missing_ok=True)
if os.fork() == 0:
    os.fsync = lambda handle: None
    keys = [OpKey(f"block{number}/conv", "Conv") for number in range(30)]
    low = OpConfig(TensorConfig("uint8", "asym"), TensorConfig("int8", "sym", "per_channel"))
    whole, draw = Recipe({key: low for key in keys}, samples=100), random.Random(1)
    history = History.open(path, mark)
    for number in range(1, count + 1):
        recipe = whole.with_float([key for key in keys if draw.random() < 0.5])
        score = Score(draw.random(), 0.1, 100, None, 0.01, 1000)
        history.begin(number, recipe)
        history.append(Trial(number, recipe, State.DONE, score, False, seconds=0.2))
    os._exit(0)
os.wait()
began = time.process_time()
history = History.open(path, mark)
used = time.process_time() - began
print(len(history.trials), used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""
