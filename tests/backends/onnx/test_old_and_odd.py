"""Models as exporters really write them: old opsets, open sizes, odd outputs, local functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
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


def test_a_model_of_another_domain_alone_comes_back_as_it_is(tmp_path: Path) -> None:
    scale = {"offset": [0.0] * 16, "scale": [2.0] * 16, "domain": "ai.onnx.ml"}
    net = onnx_models.Net()
    model = net.model(net.op("Scaler", [net.input("x", ["n", 16])], **scale))
    model.opset_import[0].CopyFrom(helper.make_opsetid("ai.onnx.ml", 2))
    told: list[float] = []
    result = lpot.tune(
        model, [{"x": X}], lambda proto: told.append(0.5) or 0.5, workspace=tmp_path / "ws"
    )
    assert result.met is True and result.recipe.low_ops == ()
    assert str(result).startswith("nothing to quantize")
    np.testing.assert_array_equal(onnx_models.run(result.path, {"x": X})[0], 2 * X)


@pytest.mark.parametrize("kind", [TensorProto.INT32, TensorProto.DOUBLE])
def test_means_of_other_numbers_are_left_alone(kind: int) -> None:
    net = onnx_models.Net()
    mean = net.op("ReduceMean", [net.input("x", [2, 3, 8, 8], kind)], "y", axes=[2, 3])
    loaded = OnnxBackend().load(net.model(mean, kind=kind))
    assert [node.op_type for node in loaded.prepared.nodes] == ["ReduceMean"]


def test_a_weight_of_one_number_throughout_is_a_weight() -> None:
    net = onnx_models.Net()
    source, shape = net.input("x", ["n", 16]), net.const("shape", np.array([16, 16]))
    fill = numpy_helper.from_array(np.array([0.1], np.float32))
    weight = net.op("ConstantOfShape", [shape], value=fill)
    net.op("MatMul", [source, weight], "y", name="product")
    (info,) = OnnxBackend().inspect(OnnxBackend().load(net.model("y"))).low()
    assert info.key.name == "product"


def test_whole_numbers_are_not_written_out_wider() -> None:
    net = onnx_models.Net()
    places = net.const("places", np.arange(1024, dtype=np.int32).reshape(64, 16) % 256)
    wide = net.op("Cast", [places], to=TensorProto.INT64)
    rows = net.op("Gather", [net.weight("table", 256), wide])
    taken = net.op("Transpose", [rows], perm=[1, 0])
    net.op("MatMul", [net.input("x", ["n", 16]), taken], "y")
    loaded = OnnxBackend().load(net.model("y"))
    assert loaded.prepared.nbytes <= loaded.graph.nbytes


@pytest.mark.parametrize("width", [6, 7])
def test_slopes_of_old_models_lie_along_the_channels(width: int) -> None:
    net = onnx_models.Net(6)
    made = net.op("Conv", [net.input("x", ["n", 3, 6, width]), net.weight("w", 6, 3, 1, 1)])
    model = net.model(net.op("PRelu", [made, net.weight("slopes", 6)], "y"), ir=4)
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, 6, width)).astype(np.float32)}
    (found,) = OnnxBackend().load(model).session.run(None, feeds)
    weight, slopes = (numpy_helper.to_array(tensor) for tensor in net.weights)
    plain = np.einsum("oi,nihw->nohw", weight[:, :, 0, 0], feeds["x"])
    np.testing.assert_allclose(
        found, np.where(plain < 0, plain * slopes.reshape(-1, 1, 1), plain), atol=1e-5
    )


def test_a_function_that_calls_itself_is_refused_in_one_sentence() -> None:
    net = onnx_models.Net()
    model = net.model(net.op("Own", [net.input("x", ["n", 16])], domain="mine"))
    body = [helper.make_node("Own", ["a"], ["b"], domain="mine")]
    opsets = [helper.make_opsetid("mine", 1)]
    model.functions.append(helper.make_function("mine", "Own", ["a"], ["b"], body, opsets))
    model.opset_import.extend(opsets)
    with pytest.raises(UnsupportedModel, match="its functions can't be written out"):
        OnnxBackend().load(model)


def test_what_another_quantizer_left_in_floats_is_quantized() -> None:
    net = onnx_models.Net()
    scale, zero = net.const("s", np.float32(0.05)), net.const("z", np.uint8(128))
    low = net.op("QuantizeLinear", [net.input("x", ["n", 16]), scale, zero])
    real = net.op("DequantizeLinear", [low, scale, zero])
    whole = net.const("w", np.ones((16, 16), np.int8))
    stored = net.op("DequantizeLinear", [whole, scale, net.const("zw", np.int8(0))])
    first = net.op("MatMul", [real, stored], name="low already")
    again = net.op("QuantizeLinear", [net.op("Softmax", [first]), scale, zero])
    net.op("MatMul", [net.op("DequantizeLinear", [again, scale, zero]), net.weight("v", 16, 16)],
           "y", name="left in floats")  # fmt: skip
    able = OnnxBackend().inspect(OnnxBackend().load(net.model("y")))
    assert [info.key.name for info in able.low()] == ["left in floats"]
    assert {info.reason for key, info in able.ops.items() if key.name == "low already"} == {
        "already quantized"
    }


@pytest.mark.parametrize("form", ["ort", "layout"])
def test_files_of_the_runtimes_own_are_told_by_what_to_give(form: str, tmp_path: Path) -> None:
    net = onnx_models.Net()
    image = net.input("x", [1, 16, 8, 8])
    model = net.model(net.op("Conv", [image, net.weight("w", 16, 16, 3, 3)]))
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / f"made.{'ort' if form == 'ort' else 'onnx'}")
    if form == "ort":
        options.add_session_config_entry("session.save_model_format", "ORT")
    ort.InferenceSession(model.SerializeToString(), options)
    if form == "ort":
        with pytest.raises(UnsupportedModel, match=r"give the \.onnx file"):
            lpot.tune(options.optimized_model_filepath, [{"x": np.ones((1, 16, 8, 8), "f")}])
        return
    loaded = OnnxBackend().load(options.optimized_model_filepath)
    laid_out = {node.name for node in loaded.graph.nodes if "nchwc" in node.domain}
    assert laid_out, "the runtime no longer lays it out: this test is void"
    found = OnnxBackend().inspect(loaded).ops
    told = {info.reason for key, info in found.items() if key.name in laid_out}
    assert all("give the model that this file was made from" in reason for reason in told)


def test_a_file_that_grew_is_told(tmp_path: Path) -> None:
    net = onnx_models.Net()
    model = net.model(net.op("MatMul", [net.input("x", ["n", 2]), net.weight("w", 2, 2)]))
    grown = tuned(model, tmp_path, [{"x": X[:, :2]}])
    assert grown.sizes is not None and grown.sizes[1] > grown.sizes[0]
    assert any("it is larger than FP32" in note for note in grown.notes)
