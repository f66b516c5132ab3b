"""Wishes about ops: by name, pattern or kind; those that match nothing or is not available."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
import onnx_models
from lpot.core.errors import ConfigError

FP32 = {"activation": {"dtype": ["fp32"]}, "weight": {"dtype": ["fp32"]}}


def op_wise(**rules: Any) -> dict[str, Any]:
    return {"quantization": {"op_wise": rules}}


def low(result: lpot.Result) -> set[str]:
    followers = ("Relu", "Add", "MaxPool", "GlobalAveragePool", "Flatten")
    return {key.name for key in result.recipe.low_ops if key.kind not in followers}


ALL = {"stem_conv", "body_conv", "depthwise", "head"}


@pytest.mark.parametrize(
    ("pattern", "left", "how"),
    [
        ("head", ALL - {"head"}, "matched 1 op(s) by name"),
        ("(stem|body)_conv", {"depthwise", "head"}, "matched 2 op(s) by regex"),
        (".*_conv$", {"depthwise", "head"}, "matched 2 op(s) by regex"),
        ("Conv", {"head"}, "matched 3 op(s) by kind"),
        ("Gemm", ALL - {"head"}, "matched 1 op(s) by kind"),
    ],
)
def test_ops_are_found_by_name_then_pattern_then_kind(
    tune: Any, pattern: str, left: set[str], how: str
) -> None:
    result = tune(onnx_models.cnn(), config=op_wise(**{pattern: FP32}))
    assert low(result) == left
    assert any(how in note for note in result.notes)


def test_a_name_wins_over_a_kind_of_the_same_word(tune: Any) -> None:
    """In one tutorial the op named MatMul is a single one of many of that kind."""
    model = onnx_models.tied()
    model.graph.node[0].name = "MatMul"
    result = tune(model, config=op_wise(MatMul=FP32))
    assert low(result) == {"second", "third"}


def test_a_kind_that_is_meant_as_a_kind(tune: Any) -> None:
    model = onnx_models.tied()
    model.graph.node[0].name = "MatMul"
    config = {"quantization": {"optype_wise": {"MatMul": FP32}}}
    assert low(tune(model, config=config)) == {"third"}


@pytest.mark.parametrize(
    "rule",
    [
        {"activation": {"dtype": ["fp32"]}},
        {"weight": {"dtype": ["fp32"]}},
        {"activation": {"dtype": "fp32"}},
        FP32,
    ],
)
def test_float_on_one_side_is_the_whole_op_in_float(tune: Any, rule: Any) -> None:
    """The tutorials name the activation alone and mean the op."""
    assert low(tune(onnx_models.cnn(), config=op_wise(head=rule))) == ALL - {"head"}


def test_the_op_kept_in_float_reads_floats(tune: Any) -> None:
    model = onnx_models.cnn()
    made = tune(model, config=op_wise(head=FP32)).model.native
    head = next(node for node in made.graph.node if node.name == "head")
    before = {tensor.name: tensor.raw_data for tensor in model.graph.initializer}
    after = {tensor.name: tensor.raw_data for tensor in made.graph.initializer}
    assert after[head.input[1]] == before["head_w"]


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        ("stem_cnov", "'stem_conv'"),
        ("Stem_Conv", "'stem_conv'"),
        ("hed", "'head'"),
        ("gemm", "'Gemm'"),
        ("no_such_op_.*", "nearest"),
    ],
)
def test_a_name_that_matches_nothing_is_an_error_with_the_nearest(
    tune: Any, pattern: str, near: str
) -> None:
    calls: list[Any] = []
    with pytest.raises(ConfigError, match=near) as caught:
        tune(onnx_models.cnn(), evaluate=calls.append, config=op_wise(**{pattern: FP32}))
    assert pattern in str(caught.value)
    assert calls == []


def test_lenient_makes_it_a_warning(tune: Any) -> None:
    result = tune(onnx_models.cnn(), config=op_wise(stem_cnov=FP32), lenient=True)
    assert low(result) == ALL
    assert any("warning" in note and "'stem_conv'" in note for note in result.notes)


def test_keep_fp32_speaks_the_same_language(tune: Any) -> None:
    result = tune(onnx_models.cnn(), keep_fp32=["stem_.*", "Gemm"])
    assert low(result) == {"body_conv", "depthwise"}
    with pytest.raises(ConfigError, match="'head'"):
        tune(onnx_models.cnn(), keep_fp32=["heads"], new_run=True)


def test_names_of_the_model_as_given_match_even_where_they_are_folded(tune: Any) -> None:
    """A BatchNormalization is gone by the time anything is quantized; its name is still right."""
    result = tune(onnx_models.cnn(), config=op_wise(stem_bn={"activation": {"dtype": ["fp32"]}}))
    assert any("matched 1 op(s) by name" in note for note in result.notes)


@pytest.mark.parametrize("pattern", ["(", "[a", "*conv", "a{2"])
def test_a_pattern_that_is_none(tune: Any, pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"regular expression|matches no op"):
        tune(onnx_models.cnn(), config=op_wise(**{pattern: FP32}))


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "softmax in int8": {"soft": {"activation": {"dtype": ["uint8"]}}},
    "bf16": {"head": {"activation": {"dtype": ["bf16"]}, "weight": {"dtype": ["bf16"]}}},
    "asymmetric weights": {"head": {"weight": {"dtype": ["int8"], "scheme": ["asym"]}}},
    "a folded op": {"stem_bn": {"activation": {"dtype": ["uint8"]}}},
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_wishes_that_can_not_be_had_are_refused_with_what_can(tune: Any, name: str) -> None:
    model = onnx_models.no_compute() if "softmax" in name else onnx_models.cnn()
    with pytest.raises(ConfigError, match=r"is not available for op .*available:"):
        tune(model, config=op_wise(**IMPOSSIBLE[name]))
    result = tune(model, config=op_wise(**IMPOSSIBLE[name]), lenient=True)
    assert any("warning" in note and "is not available" in note for note in result.notes)


def test_a_wish_for_the_whole_model_that_some_ops_can_not_fulfil_is_told(tune: Any) -> None:
    """ConvTranspose has no way to the wish, the others have."""
    config = {"quantization": {"model_wise": {"weight": {"granularity": "per_channel"}}}}
    result = tune(onnx_models.cnn(), config=config)
    weights = [config.weight for config in result.recipe.ops.values() if config.weight]
    assert {weight.granularity for weight in weights} == {"per_channel"}


def test_a_wish_for_the_whole_model_that_no_op_can_fulfil_is_told(tune: Any) -> None:
    config = {"quantization": {"model_wise": {"activation": {"dtype": ["int8"]}}}}
    result = tune(onnx_models.cnn(), config=config)
    assert {item.activation.dtype for item in result.recipe.ops.values()} == {"uint8"}
    assert any("activation.dtype" in n and "which keep static" in n for n in result.notes)
    config = {"quantization": {"model_wise": {"weight": {"dtype": ["uint8"]}}}}
    assert {w.dtype for w in weights_of(tune(onnx_models.cnn(), config=config))} == {"int8"}


def weights_of(result: Any) -> list[Any]:
    return [config.weight for config in result.recipe.ops.values() if config.weight]


def onnx_net() -> tuple[Any, list[Any]]:
    batch = np.random.default_rng(0).random((4, 3, 8, 8), dtype=np.float32)
    return onnx_models.cnn(), [batch]


def torch_net() -> tuple[Any, list[Any]]:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 4))
    return net.eval(), [torch.rand(4, 3, 8, 8)]


def keras_net() -> tuple[Any, list[Any]]:
    tf = pytest.importorskip("tensorflow")
    given = tf.keras.Input((8, 8, 3))
    x = tf.keras.layers.Flatten()(tf.keras.layers.Conv2D(4, 3)(given))
    batch = np.random.default_rng(0).random((4, 8, 8, 3), dtype=np.float32)
    return tf.keras.Model(given, tf.keras.layers.Dense(4)(x)), [batch]


# What LPOT's own template says of the whole model, one by one.
WISHES = {
    ("weight", "scheme"): "asym",
    ("activation", "dtype"): "int8",
    ("activation", "scheme"): "sym",
    ("weight", "granularity"): "per_tensor",
    ("activation", "algorithm"): "kl",
}


@pytest.mark.parametrize("net", [onnx_net, torch_net, keras_net])
@pytest.mark.parametrize("side, key", list(WISHES))
def test_model_wise_is_honoured_or_noted_in_every_framework(
    net: Any, side: str, key: str, tmp_path: Path
) -> None:
    model, data = net()
    wish = WISHES[side, key]
    config = {"quantization": {"model_wise": {side: {key: wish}}}}
    options: dict[str, Any] = {"workspace": tmp_path, "measure_speed": False, "progress": False}
    result = lpot.tune(model, data, config=config, **options)
    ops = [config for config in result.recipe.ops.values() if not config.is_float]
    found = {getattr(getattr(item, side), key) for item in ops if getattr(item, side) is not None}
    noted = any(f"model_wise.{side}.{key}" in note for note in result.notes)
    assert ops and (found <= {wish, None} or noted), found


def test_a_narrow_wish_wins_over_a_wide_one(tune: Any) -> None:
    config = {
        "quantization": {
            "model_wise": {"activation": {"algorithm": "kl"}},
            "op_wise": {"head": {"activation": {"dtype": ["uint8"], "algorithm": ["minmax"]}}},
        }
    }
    result = tune(onnx_models.cnn(), config=config)
    algorithms = {key.name: item.activation.algorithm for key, item in result.recipe.ops.items()}
    assert algorithms["head"] == "minmax"
    assert algorithms["stem_conv"] == "kl"


def test_ops_that_may_not_fall_back_are_named_when_the_bar_is_missed(tune: Any) -> None:
    config = op_wise(head={"activation": {"dtype": ["uint8"]}, "weight": {"dtype": ["int8"]}})
    scores = iter([1.0, *[0.5] * 20])
    result = tune(onnx_models.cnn(), evaluate=lambda m: next(scores), config=config)
    assert result.met is False
    assert any("may not stay in FP32 under your rules: head" in n for n in result.notes)


def test_the_yaml_line_is_named(tune: Any, tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(
        "model:\n  name: net\n  framework: onnxrt_qlinearops\n"
        "quantization:\n  op_wise:\n    hed:\n      activation:\n        dtype: [fp32]\n"
    )
    with pytest.raises(ConfigError, match=r"conf\.yaml:6.*'head'"):
        tune(onnx_models.cnn(), config=path)
