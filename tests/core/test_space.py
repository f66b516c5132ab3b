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


LOW = TensorRule(dtype=("uint8", "int8"))


@pytest.mark.parametrize("turned", [False, True])
def test_an_op_s_own_rule_wins_over_that_of_its_kind(turned: bool) -> None:
    kind = Rule("MatMul", KEEP, KEEP, kind_only=True, path="optype_wise.MatMul")
    own = Rule("encoder/MatMul_1", LOW, path="op_wise.encoder/MatMul_1")
    space = restrict(CAPABILITY, [own, kind] if turned else [kind, own])
    assert HEAD not in space.choices
    assert all(not choice.is_float for choice in space.choices[SECOND])


def test_a_name_wins_over_a_pattern() -> None:
    pattern = Rule("encoder/.*", KEEP, KEEP, path="op_wise.encoder/.*")
    own = Rule("encoder/MatMul_1", LOW, path="op_wise.encoder/MatMul_1")
    assert SECOND in restrict(CAPABILITY, [pattern, own]).choices


def test_two_rules_that_contradict_each_other_are_both_named() -> None:
    rules = [
        Rule("encoder/.*", LOW, path="op_wise.encoder/.*"),
        Rule(".*MatMul_1", KEEP, KEEP, path="op_wise..*MatMul_1"),
    ]
    with pytest.raises(ConfigError, match=r"MatMul_1 \(.*op_wise\.encoder/\.\* \(.*both apply"):
        restrict(CAPABILITY, rules)
    space = restrict(CAPABILITY, rules, lenient=True)
    assert all(not choice.is_float for choice in space.choices[SECOND]), "the first one holds"


def test_what_an_op_can_not_do_is_no_contradiction() -> None:
    rules = [
        Rule("add", TensorRule(algorithm=("minmax",)), path="op_wise.add"),
        Rule("ad.*", TensorRule(algorithm=("kl",)), path="op_wise.ad.*"),
        Rule("a.d", TensorRule(algorithm=("kl",)), path="op_wise.a.d"),
    ]
    with pytest.raises(ConfigError, match="is not available for op add"):
        restrict(CAPABILITY, rules[1:])


def test_names_that_another_tool_gave_match() -> None:
    ops = {HEAD: OpInfo(HEAD, (*FULL, FP32), aliases=("MatMul_quant",))}
    assert HEAD not in restrict(Capability(ops), [Rule("MatMul_quant", KEEP, KEEP)]).choices


def test_broken_regex() -> None:
    with pytest.raises(ConfigError, match="neither an op name nor a valid regular expression"):
        restrict(CAPABILITY, [Rule("conv[", KEEP)])
