"""Models as exporters really write them: old opsets, open sizes, odd outputs, local functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime")

import lpot
import onnx_models
from lpot.backends.onnx import OnnxBackend
from lpot.core.errors import UnsupportedModel
from lpot.core.ptq.distance import distance

X = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)


def tuned(model: onnx.ModelProto, folder: Path, data: list[dict[str, np.ndarray]]) -> lpot.Result:
    return lpot.tune(model, data, workspace=folder / "ws", measure_speed=False)


def dense(net: onnx_models.Net, source: str, rows: int = 16, columns: int = 16) -> str:
    return net.op("MatMul", [source, net.weight(f"w{len(net.nodes)}", rows, columns)])


@pytest.mark.parametrize("opset", [5, 7, 8, 9, 10, 11, 12])
def test_old_opsets_are_raised(opset: int, tmp_path: Path) -> None:
    net = onnx_models.Net(opset)
    hidden = net.op("Relu", [dense(net, net.input("x", ["n", 16]))])
    net.op("Softmax", [dense(net, hidden)], "y", name="answer", axis=1)
    model = net.model("y", ir=4)
    result = tuned(model, tmp_path, [{"x": X}])
    assert result.precisions["int8"] >= 2
    (made,) = onnx_models.run(result.path, {"x": X})
    newer = onnx.version_converter.convert_version(model, 13)
    assert np.abs(made - onnx_models.run(newer, {"x": X})[0]).max() < 0.05


@pytest.mark.parametrize("opset", [11, 12])
def test_a_named_softmax_keeps_its_name_alone(opset: int) -> None:
    net = onnx_models.Net(opset)
    net.op("Softmax", [net.input("x", ["n", 4, 16])], "y", name="answer", axis=1)
    backend = OnnxBackend()
    model = backend.load(net.model("y"))
    names = [node.name for node in model.prepared.nodes]
    assert len(set(names)) == len(names) > 1
    kinds = {node.name: node.op_type for node in model.prepared.nodes}
    assert kinds["answer"] == "Softmax"
    backend.observe(model, [{"x": np.ones((2, 4, 16), np.float32)}])


def test_an_opset_that_no_converter_knows_is_refused_in_one_sentence() -> None:
    net = onnx_models.Net(9)
    net.nodes.append(helper.make_node("Scan", ["x"], ["y"], name="scan", num_scan_inputs=1))
    net.input("x", ["n", 16])
    with pytest.raises(UnsupportedModel):
        OnnxBackend().load(net.model("y"))


@pytest.mark.parametrize("size", [-1, 0])
def test_sizes_below_one_are_open(size: int, tmp_path: Path) -> None:
    net = onnx_models.Net()
    dense(net, net.input("x", [size, 16]))
    net.op("Relu", [f"t{len(net.nodes) - 1}"], "y")
    result = tuned(net.model("y"), tmp_path, [{"x": X}, {"x": X[:3]}])
    assert result.precisions["int8"] >= 1
    assert onnx_models.run(result.path, {"x": X[:5]})[0].shape == (5, 16)


def test_scalar_outputs(tmp_path: Path) -> None:
    net = onnx_models.Net()
    net.op("ReduceSum", [dense(net, net.input("x", ["n", 16]))], "y", keepdims=0)
    result = tuned(net.model("y"), tmp_path, [{"x": X}])
    assert result.precisions["int8"] == 1


def test_distance_of_scalars_sequences_and_maps() -> None:
    assert distance([np.float32(2.0)], [np.float32(3.0)]) == pytest.approx(0.25)
    assert distance([[np.ones(2), np.ones(3)]], [[np.ones(2), np.zeros(3)]]) == pytest.approx(1.0)
    assert distance([[{0: 3.0, 1: 4.0}]], [[{1: 4.0, 0: 3.0}]]) == 0.0
    assert distance([[np.ones(2)]], [[np.ones(2), np.ones(2)]]) == float("inf")


def sequence(net: onnx_models.Net) -> onnx.ModelProto:
    net.op("SplitToSequence", [dense(net, net.input("x", ["n", 16]))], "y", axis=1)
    model = net.model("y")
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    model.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(element))
    return model


def zip_map(net: onnx_models.Net) -> onnx.ModelProto:
    scores = net.op("Softmax", [dense(net, net.input("x", ["n", 16]))])
    net.op("ZipMap", [scores], "y", domain="ai.onnx.ml", classlabels_int64s=list(range(16)))
    model = net.model("y")
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    floats = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    pairs = helper.make_map_type_proto(TensorProto.INT64, floats)
    model.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(pairs))
    return model


@pytest.mark.parametrize("make", [sequence, zip_map])
def test_outputs_that_are_no_tensors_are_saved(make: Any, tmp_path: Path) -> None:
    model = make(onnx_models.Net())
    result = tuned(model, tmp_path, [{"x": X}])
    assert result.precisions["int8"] >= 1
    before, after = (onnx_models.run(given, {"x": X}) for given in (model, result.path))
    assert distance(before, after) < 0.05


def test_local_functions_are_looked_into(tmp_path: Path) -> None:
    net = onnx_models.Net()
    net.weight("w", 16, 16)
    net.op("Dense", [net.input("x", ["n", 16]), "w"], "y", domain="mine")
    model = net.model("y")
    body = [helper.make_node("MatMul", ["a", "b"], ["c"]), helper.make_node("Relu", ["c"], ["d"])]
    opsets = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("mine", "Dense", ["a", "b"], ["d"], body, opsets))
    model.opset_import.append(helper.make_opsetid("mine", 1))
    result = tuned(model, tmp_path, [{"x": X}])
    assert result.precisions["int8"] >= 1
    kinds = {tensor.data_type for tensor in onnx.load(str(result.path)).graph.initializer}
    assert TensorProto.INT8 in kinds
    assert numpy_helper.to_array(model.graph.initializer[0]).dtype == np.float32


@pytest.mark.parametrize("name", ["Gemm_174", "Gemm_174_MatMul", "Gemm_174_quant"])
def test_names_of_lpot_1_match_their_op(name: str, tmp_path: Path) -> None:
    net = onnx_models.Net()
    net.op("Gemm", [net.input("x", ["n", 16]), net.weight("w", 16, 16)], "y", name="Gemm_174")
    result = lpot.tune(
        net.model("y"), [{"x": X}], workspace=tmp_path, measure_speed=False, keep_fp32=[name]
    )
    assert not result.recipe or not result.recipe.low_ops


def test_a_model_that_draws_random_numbers_is_saved_every_time(tmp_path: Path) -> None:
    net = onnx_models.Net()
    x = net.input("x", ["n", 16])
    noise = net.op("RandomNormalLike", [x], scale=1.0)
    dense(net, net.op("Add", [x, noise]))
    model = net.model(f"t{len(net.nodes) - 1}")
    for number in range(3):
        result = tuned(model, tmp_path / str(number), [{"x": X}])
        assert result.precisions["int8"] == 1 and Path(result.path).is_file()
