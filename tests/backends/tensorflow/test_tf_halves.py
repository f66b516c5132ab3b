"""Weights stored as float16, computed in float32: where asked for, or where there is no bf16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")
import tensorflow as tf

import lpot
from lpot.backends.tensorflow import abilities
from lpot.backends.tensorflow.structure.graph import Net
from lpot.experimental import MixedPrecision

TOKENS = np.arange(24, dtype=np.int32).reshape(2, 12)


def net() -> Any:
    tf.keras.utils.set_random_seed(0)
    given = tf.keras.Input((12,), dtype="int32")
    found = tf.keras.layers.Embedding(500, 16)(given)
    found = tf.keras.layers.Conv1D(32, 3, activation="relu")(found)
    found = tf.keras.layers.Flatten()(found)
    return tf.keras.Model(given, tf.keras.layers.Dense(10)(found))


def made(word: str, given: Any, **sections: Any) -> MixedPrecision:
    conf = {"model": {"name": "net", "framework": "tensorflow"}, **sections}
    door = MixedPrecision(conf)
    door.model, door.measure_speed = given, False
    if word:
        door.precisions = word
    door()
    return door


def halves_of(net: Net) -> list[str]:
    half = tf.float16.as_datatype_enum
    return [
        name
        for name, node in net.nodes.items()
        if node.op == "Const" and node.attr["dtype"].type == half
    ]


@pytest.mark.parametrize("word", ["fp16", "bf16"])
def test_the_file_is_half_as_large(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(abilities, "has_bfloat16", lambda: False)
    given = net()
    door = made(word, given)
    assert door.result is not None
    model = door.result.model
    (note,) = [note for note in door.result.notes if "stored as fp16" in note]
    assert note.startswith("bf16 is not available" if word == "bf16" else "weights are stored")
    assert set(model.precisions.values()) == {"fp16"}
    assert len(halves_of(model.net)) == 3  # the table, too
    wanted = given(TOKENS).numpy()
    for name in ("folder", "file.pb"):
        path = model.save(tmp_path / name)
        again = lpot.load(path)
        (found,) = again(TOKENS)
        assert np.array_equal(found, model(TOKENS)[0])
        assert np.abs(found - wanted).max() < 0.01 * np.abs(wanted).max()
        assert again.nbytes < 0.6 * 4 * given.count_params()
    assert path.stat().st_size < 0.6 * 4 * given.count_params()
    # What is stored so can be quantized like any other model.
    result = lpot.tune(str(path), calib=[TOKENS], measure_speed=False)
    assert result.precisions.get("int8", 0) >= 1


def test_rows_are_looked_up_before_they_are_widened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = made("fp16", net()).result.model
    nodes = model.net.nodes
    (lookup,) = [node for node in nodes.values() if node.op.startswith("Gather")]
    assert nodes[lookup.input[0]].op == "Const"
    assert lookup.attr["Tparams"].type == tf.float16.as_datatype_enum


def test_an_op_that_is_kept_in_fp32_keeps_its_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = net()
    everything = made("fp16", given).result.model
    one = next(key.name for key in everything.precisions if "Conv" in key.kind)
    kept = {one: {"activation": {"dtype": ["fp32"]}}}
    wishes = {"graph_optimization": {"precisions": "fp16", "op_wise": kept}}
    model = made("", given, **wishes).result.model
    assert len(halves_of(model.net)) == len(halves_of(everything.net)) - 1
