"""Rules cut the capability down, and nothing is dropped silently."""

from __future__ import annotations

import pytest

from lpot.core.errors import ConfigError
from lpot.core.recipe import FP32, OpConfig, OpKey, TensorConfig
from lpot.core.space import Capability, OpInfo, Rule, TensorRule, restrict


def static(algorithm: str, granularity: str) -> OpConfig:
    return OpConfig(
        TensorConfig("uint8", "asym", "per_tensor", algorithm, 8),
        TensorConfig("int8", "sym", granularity, "minmax", 8),
    )


FULL = tuple(static(a, g) for g in ("per_channel", "per_tensor") for a in ("minmax", "kl"))
CONV, HEAD, ADD, SOFT = (
    OpKey("layer/conv", "Conv"),
    OpKey("MatMul", "MatMul"),
    OpKey("add", "Add"),
    OpKey("softmax", "Softmax"),
)
SECOND = OpKey("encoder/MatMul_1", "MatMul")
CAPABILITY = Capability(
    {
        CONV: OpInfo(CONV, (*FULL, FP32)),
        HEAD: OpInfo(HEAD, (*FULL, FP32)),
        SECOND: OpInfo(SECOND, (*FULL, FP32)),
        ADD: OpInfo(
            ADD, (OpConfig(TensorConfig("uint8", algorithm="minmax")), FP32), follower=True
        ),
        SOFT: OpInfo(SOFT, reason="slower in INT8"),
    }
)
KEEP = TensorRule(dtype=("fp32",))


def test_without_rules_every_able_op_is_in_the_space() -> None:
    space = restrict(CAPABILITY, ())
    assert set(space.choices) == {CONV, HEAD, SECOND, ADD}
    assert space.followers == {ADD}
    assert not space.default().float_ops


def test_a_name_selects_that_op_alone_before_its_type() -> None:
    space = restrict(CAPABILITY, [Rule("MatMul", KEEP, KEEP, path="op_wise.MatMul")])
    assert HEAD not in space.choices
    assert SECOND in space.choices
    assert "matched 1 op(s) by name" in " ".join(space.notes)


def test_a_regex_then_a_type() -> None:
    assert SECOND not in restrict(CAPABILITY, [Rule("encoder/.*", KEEP)]).choices
    space = restrict(CAPABILITY, [Rule("Conv", KEEP)])
    assert CONV not in space.choices
    assert "by kind" in " ".join(space.notes)


def test_activation_alone_in_fp32_takes_the_whole_op_back() -> None:
    assert CONV not in restrict(CAPABILITY, [Rule("layer/conv", KEEP)]).choices


def test_bare_granularity_leaves_the_way_back_open() -> None:
    rule = Rule("", weight=TensorRule(granularity=("per_tensor",)), path="model_wise")
    space = restrict(CAPABILITY, [rule])
    assert all(
        option.is_float or option.weight is None or option.weight.granularity == "per_tensor"
        for options in space.choices.values()
        for option in options
    )
    assert space.float_config(CONV) == FP32


def test_unmatched_name_is_an_error_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"op_wise\.x.*'layer/conv'"):
        restrict(CAPABILITY, [Rule("layer/conf", KEEP, path="op_wise.x")])
    space = restrict(CAPABILITY, [Rule("layer/conf", KEEP, path="op_wise.x")], lenient=True)
    assert any("warning" in note and "layer/conf" in note for note in space.notes)


def test_impossible_wish_is_refused_with_what_there_is() -> None:
    rule = Rule("softmax", TensorRule(dtype=("uint8",)), path="op_wise.softmax")
    with pytest.raises(ConfigError, match="slower in INT8"):
        restrict(CAPABILITY, [rule])


def test_model_wide_wish_that_some_ops_cannot_have_is_told() -> None:
    rule = Rule("", TensorRule(algorithm=("kl",)), path="model_wise")
    space = restrict(CAPABILITY, [rule])
    assert space.choices[CONV][0].activation.algorithm == "kl"
    assert space.choices[ADD] == CAPABILITY.ops[ADD].choices, "Add offers minmax alone: it keeps it"
    assert any("is not available for 1 op(s) (Add)" in note for note in space.notes)


def test_the_narrower_wish_wins() -> None:
    wide = Rule("", TensorRule(algorithm=("minmax",)), path="model_wise")
    narrow = Rule("layer/conv", TensorRule(algorithm=("kl",)), path="op_wise.layer/conv")
    space = restrict(CAPABILITY, [wide, narrow])
    assert space.choices[CONV][0].activation.algorithm == "kl"
    assert space.choices[HEAD][0].activation.algorithm == "minmax"


def test_broken_regex() -> None:
    with pytest.raises(ConfigError, match="neither an op name nor a valid regular expression"):
        restrict(CAPABILITY, [Rule("conv[", KEEP)])
