"""Two profiles side by side: gains, what converting costs, and who loses for which reason."""

from __future__ import annotations

import json

import pytest

from lpot.core.results.profile import COLUMNS, OpTime, Profile, contrast, quickest

FP32 = [
    OpTime("conv1", "Conv", 40e-6),
    OpTime("conv2", "Conv", 400e-6),
    OpTime("small", "Gemm", 6e-6),
    OpTime("relu", "Relu", 5e-6),
    OpTime("float", "Softmax", 30e-6),
    OpTime("out", "ReorderOutput", 9e-6, role="convert"),
]
INT8 = [
    OpTime("conv1", "QLinearConv", 90e-6, "int8"),
    OpTime("conv2", "QLinearConv", 100e-6, "int8"),
    OpTime("small", "QGemm", 15e-6, "int8"),
    OpTime("float", "Softmax", 50e-6),
    OpTime("x", "QuantizeLinear", 20e-6, "int8", "convert"),
    OpTime("layout", "Transpose", 12e-6, "fp32", "convert"),
]


def test_gains_overhead_and_losers() -> None:
    found = contrast(FP32, INT8, "onnx")
    rows = {row.name: row for row in found.rows}
    assert found.rows[0].name == "conv2" and rows["conv2"].gain == 4.0
    assert rows["relu"].after is None and rows["relu"].gain is None and not rows["relu"].loses
    assert found.overhead == pytest.approx(32e-6)
    assert {row.name for row in found.losing} == {"conv1", "small", "float", "x", "layout"}
    assert found.losing[0].name == "conv1"
    assert "FP32 kernel (Conv) is faster" in rows["conv1"].reason
    assert "too little work" in rows["small"].reason
    assert "stays in FP32" in rows["float"].reason
    assert "between FP32 and INT8" in rows["x"].reason
    assert "order" in rows["layout"].reason
    assert "Slower than before: conv1" in found.summary()
    assert all(len(cells) == len(COLUMNS) for cells in found.table())


def test_it_survives_json() -> None:
    found = contrast(FP32, INT8, "onnx", ["a note"])
    assert Profile.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_no_op_at_all_and_one_against_itself() -> None:
    assert contrast([], []).summary().startswith("ops take 0 µs")
    assert contrast(FP32, FP32).losing == ()


def test_differences_below_the_clock_are_no_loss() -> None:
    one = [OpTime("a", "Add", 5e-6)]
    assert not contrast(one, [OpTime("a", "QLinearAdd", 7e-6, "int8")]).losing


def test_kernels_of_one_op_count_together() -> None:
    parts = [OpTime("fc", "MatMulInteger", 30e-6, "int8"), OpTime("fc", "Cast", 5e-6)]
    (row,) = contrast([OpTime("fc", "MatMul", 70e-6)], parts).rows
    assert row.gain == pytest.approx(2.0) and row.kind == "MatMulInteger"


def test_the_quickest_turn_counts_and_twins_add_up() -> None:
    turns = [[OpTime("r", "Reorder", s), OpTime("r", "Reorder", s)] for s in (3.0, 1.0, 2.0)]
    (one,) = quickest(turns)
    assert one.seconds == 2.0
