"""Names that came with the original's successor: datasets, transforms and a postprocess."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import record_files
from lpot.core.errors import ConfigError, DataError
from lpot.data import DataLoader, compose, get_dataset
from lpot.data.postprocess import as_postprocess

PIXELS = np.random.default_rng(2).integers(0, 256, (5, 6, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ({"KerasRescale": {"rescale": [127.5, 1]}}, PIXELS / 127.5 - 1),
        ({"KerasRescale": {}}, PIXELS),
        ({"TransposeLastChannel": {}}, PIXELS.transpose(2, 0, 1)),
        ({"ShiftRescale": {}}, (PIXELS - 127.5) / 127.5),
    ],
)
def test_images(steps: dict[str, Any], expected: np.ndarray) -> None:
    image, label = compose(steps)((PIXELS, 4))
    np.testing.assert_allclose(image, expected, atol=1e-6)
    assert label == (3 if "ShiftRescale" in steps else 4)


@pytest.mark.parametrize("value", [[1], [0, 1], "a", [1, 2, 3]])
def test_keras_rescale_takes_two_numbers(value: Any) -> None:
    with pytest.raises(ConfigError, match="rescale"):
        compose({"KerasRescale": {"rescale": value}})


@pytest.mark.parametrize("ratio", [0.0, 0.75, 1.0])
def test_sparse_samples(ratio: float) -> None:
    dataset = get_dataset(
        "sparse_dummy_v2", dense_shape=[4, 5], label_shape=[1], sparse_ratio=ratio
    )
    for (places, values), label in islice(dataset, 3):
        assert places.shape == (round(20 * (1 - ratio)), 2) and len(values) == len(places)
        assert label.shape == (1,)
        assert (places >= 0).all() and (places < [4, 5]).all()
        flat = places[:, 0] * 5 + places[:, 1]
        assert (np.diff(flat) > 0).all()
    first, again = (next(iter(dataset))[0][1] for _ in range(2))
    assert np.array_equal(first, again)


def test_several_sparse_inputs_in_batches() -> None:
    dataset = get_dataset("sparse_dummy_v2", dense_shape=[[4, 5], [6]], sparse_ratio=[0.5, 0.5])
    batch = next(iter(DataLoader(dataset, batch_size=2)))
    assert [part.shape for part in batch] == [(2, 10, 2), (2, 10), (2, 3, 1), (2, 3)]
    with pytest.raises(ConfigError, match="sparse_ratio should be between 0 and 1"):
        get_dataset("sparse_dummy_v2", dense_shape=[4, 5], sparse_ratio=1.5)


# -- windows of a record file -------------------------------------------------------------------

COLUMNS = ("input_ids", "input_mask", "segment_ids")


def windows(folder: Path, **change: Any) -> Any:
    rows = []
    for number in range(3):
        features = {name: np.arange(4) + number for name in COLUMNS} | change
        rows.append(record_files.serialize({k: v for k, v in features.items() if v is not None}))
    record_files.write(folder / "eval.record", rows)
    question = {"id": "q", "question": "?", "answers": [{"text": "a", "answer_start": 0}]}
    articles = [{"title": "t", "paragraphs": [{"context": "a", "qas": [question]}]}]
    (folder / "dev.json").write_text(json.dumps({"version": "1.1", "data": articles}))
    return get_dataset(
        "mzbert", root=str(folder / "eval.record"), label_file=str(folder / "dev.json")
    )


def test_bert_records(tmp_path: Path) -> None:
    inputs, label = windows(tmp_path)[2]
    assert [part.tolist() for part in inputs] == [[2, 3, 4, 5]] * 3
    assert label == 1_000_000_002
    assert windows(tmp_path, unique_ids=np.asarray([7]))[0][1] == 7


@pytest.mark.parametrize(
    "change", [{"segment_ids": None}, {"input_mask": np.arange(3)}, {"input_ids": [b"x"]}]
)
def test_bert_records_of_something_else(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"eval\.record: record 0: should hold input_ids"):
        windows(tmp_path, **change)[0]


def test_bert_records_only_of_squad(tmp_path: Path) -> None:
    windows(tmp_path)
    with pytest.raises(ConfigError, match="task should be 'squad', not 'classifier'"):
        get_dataset(
            "mzbert",
            root=str(tmp_path / "eval.record"),
            label_file=str(tmp_path / "dev.json"),
            task="classifier",
        )


def test_collect_leaves_out_what_is_padded() -> None:
    chain = as_postprocess({"Collect": {"length": 5}})
    for _ in range(2):  # a second evaluation begins anew
        chain.reset()
        seen = [chain((np.ones((2, 4, 2)), np.asarray([n, n + 1]))) for n in (0, 2, 4, 6)]
        assert [None if one[0] is None else len(one[0]) for one in seen] == [2, 2, 1, None]
        assert seen[2][1].tolist() == [4]
    both = as_postprocess({"Collect": 1})(([np.ones((2, 3)), np.ones((2, 3))], [7, 8]))
    assert [one.shape for one in both[0]] == [(1, 3), (1, 3)] and both[1] == [7]
    with pytest.raises(ConfigError, match="length is 0"):
        as_postprocess({"Collect": {"length": 0}})
