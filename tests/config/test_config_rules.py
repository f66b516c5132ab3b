"""From configuration to the core's own types; availability; identity."""

from __future__ import annotations

import json

import pytest

from lpot.config import identity, load, unavailable
from lpot.config.availability import GONE, LATER
from lpot.config.outline import dotted, walk
from lpot.config.rules import approach, goal, limits, model_spec, rules, sampling_sizes, trains
from lpot.core.backend import ModelSpec
from lpot.core.goal import Goal
from lpot.core.limits import Limits
from lpot.core.space import Rule, TensorRule


def _quantization(**section: object) -> tuple[Rule, ...]:
    return rules(load({"quantization": section}))


def test_no_wishes() -> None:
    assert rules(load()) == ()
    assert _quantization(model_wise={"weight": {}, "activation": None}) == ()


def test_rules_have_their_places() -> None:
    found = _quantization(
        model_wise={"activation": {"algorithm": "minmax kl", "scheme": "sym"}},
        optype_wise={"Conv": {"weight": {"granularity": "per_channel"}}},
        op_wise={"block1.*": {"activation": {"dtype": ["fp32"]}}, "lone": {}},
    )
    assert found == (
        Rule(
            activation=TensorRule(algorithm=("minmax", "kl"), scheme=("sym",)),
            path="quantization.model_wise",
        ),
        Rule(
            "Conv",
            weight=TensorRule(granularity=("per_channel",)),
            kind_only=True,
            path="quantization.optype_wise.Conv",
        ),
        Rule(
            "block1.*",
            activation=TensorRule(dtype=("fp32",)),
            path="quantization.op_wise.block1.*",
        ),
        Rule("lone", path="quantization.op_wise.lone"),
    )


def test_default_qconfig_is_for_the_whole_model() -> None:
    (rule,) = _quantization(op_wise={"default_qconfig": {"activation": {"dtype": "fp32"}}})
    assert rule.pattern == ""
    assert rule.path == "quantization.op_wise.default_qconfig"


@pytest.mark.parametrize(
    ("bit", "bits"),
    [(7.0, (8, 7)), (6.0, (7,)), ([7.0, 6.0], (8, 7)), ([3], (4,)), ("6, 4", (7, 5))],
)
def test_bits_beside_the_sign(bit: object, bits: tuple[int, ...]) -> None:
    (rule,) = _quantization(model_wise={"weight": {"bit": bit}})
    assert rule.weight == TensorRule(bits=bits)


def test_placeholder_leaves_open() -> None:
    (rule,) = _quantization(
        model_wise={"activation": {"algorithm": "placeholder", "scheme": "placeholder",
                                   "dtype": "uint8"}}
    )  # fmt: skip
    assert rule.activation == TensorRule(dtype=("uint8",))


def test_goal() -> None:
    assert goal(load()) == Goal(relative=0.01)
    criterion = {"absolute": "1%", "higher_is_better": False}
    config = load({"tuning": {"accuracy_criterion": criterion}})
    assert goal(config) == Goal(absolute=0.01, higher_is_better=False)


def test_limits_and_spec() -> None:
    policy = {"timeout": 1.5, "max_trials": 7, "performance_only": True}
    config = load({"tuning": {"exit_policy": policy}, "model": {"name": "n", "outputs": "a, b"}})
    assert limits(config) == Limits(timeout=1.5, max_trials=7, performance_only=True)
    assert model_spec(config) == ModelSpec("n", (), ("a", "b"))


def test_sampling_sizes() -> None:
    assert sampling_sizes(load()) == (0,)
    config = load({"quantization": {"calibration": {"sampling_size": "100, 200"}}})
    assert sampling_sizes(config, batch_size=8) == (100, 200)
    config = load({"quantization": {"calibration": {"iterations": [5, 10]}}})
    assert sampling_sizes(config, batch_size=8) == (40, 80)


@pytest.mark.parametrize(
    ("word", "short"),
    [
        ("post_training_static_quant", "static"),
        ("post_training_dynamic_quant", "dynamic"),
        ("post_training_auto_quant", "auto"),
        ("quant_aware_training", "static"),
    ],
)
def test_approach(word: str, short: str) -> None:
    assert approach(load({"quantization": {"approach": word}})) == short


def test_approach_left_open() -> None:
    assert approach(load()) is None


@pytest.mark.parametrize(
    ("word", "has_loop", "wanted"),
    [
        ("quant_aware_training", False, True),
        ("post_training_static_quant", True, False),
        (None, True, True),
        (None, False, False),
    ],
)
def test_who_trains(word: str | None, has_loop: bool, wanted: bool) -> None:
    section = {} if word is None else {"quantization": {"approach": word}}
    assert trains(load(section), has_loop) is wanted


# What the first version promises to act upon; flipping a later key must not touch these.
AVAILABLE = (
    "model.name",
    "model.framework",
    "model.inputs",
    "model.outputs",
    "version",
    "device",
    "quantization.approach",
    "quantization.target",
    "quantization.calibration.sampling_size",
    "quantization.calibration.iterations",
    "quantization.calibration.dataloader",
    "quantization.model_wise",
    "quantization.op_wise",
    "quantization.optype_wise",
    "tuning.strategy.name",
    "tuning.accuracy_criterion.relative",
    "tuning.accuracy_criterion.absolute",
    "tuning.accuracy_criterion.higher_is_better",
    "tuning.objective",
    "tuning.exit_policy.timeout",
    "tuning.exit_policy.max_trials",
    "tuning.exit_policy.performance_only",
    "tuning.random_seed",
    "tuning.workspace.path",
    "tuning.workspace.resume",
    "evaluation.accuracy.metric",
    "evaluation.accuracy.dataloader",
    "evaluation.accuracy.postprocess",
    "evaluation.accuracy.iteration",
    "evaluation.accuracy.configs",
    "evaluation.performance",
)


def test_what_is_promised_is_not_later() -> None:
    keys = {dotted(key.path) for key in walk()}
    for path in AVAILABLE:
        assert path in keys
        parts = path.split(".")
        assert not any(".".join(parts[:end]) in LATER for end in range(1, len(parts) + 1))
    assert not any(entry.startswith("tuning.strategy") for entry in LATER)


def test_the_table_names_only_what_there_is() -> None:
    kinds = {dotted(key.path): key.kind for key in walk()}
    for entry in (*LATER, *GONE):
        path, _, word = entry.partition("=")
        assert path in kinds, entry
        assert not word or word in kinds[path].words, entry


def test_unavailable_names_what_was_set(write) -> None:
    path = write(
        "model: {name: a}\n"
        "device: gpu\n"
        "tuning:\n"
        "  strategy: sigopt\n"
        "  tensorboard: true\n"
        "  diagnosis: false\n"
        "quantization:\n"
        "  recipes: {weight_correction: yes, scale_propagation_concat: false}\n"
        "  op_wise: {fc: {activation: {compute_dtype: uint8}}}\n"
        "nas: {}\n"
    )
    assert unavailable(load(path)) == [
        f"{path}:2: device: 'gpu' is not available yet; models run on the CPU",
        f"{path}:8: quantization.recipes.scale_propagation_concat: false: it has no effect: scales "
        "are shared wherever the kernels support it",
        f"{path}:9: quantization.op_wise.fc.activation.compute_dtype is not available yet; "
        "remove it",
        f"{path}:4: tuning.strategy.name: 'sigopt': the SigOpt service has ended: basic is used "
        "instead; bayesian and tpe are the closest alternatives",
        f"{path}:10: nas is not available yet; remove it",
    ]


def test_unavailable_by_default() -> None:
    assert unavailable(load()) == []
    assert unavailable(load({"tuning": {"strategy": "exhaustive", "objective": "modelsize"}})) == []


def test_no_secret_in_messages_or_identity() -> None:
    strategy = {"name": "sigopt", "sigopt_api_token": "s3cret", "sigopt_project_id": "p"}
    config = load({"tuning": {"strategy": strategy}})
    assert "s3cret" not in "".join(unavailable(config))
    assert "s3cret" not in json.dumps(identity(config))
    assert "s3cret" not in repr(config)
    assert identity(config)["tuning"]["strategy"] == {"name": "sigopt", "sigopt_project_id": "p"}


def test_identity_is_json_and_content() -> None:
    data = {
        "model": {"name": "a", "framework": "onnx", "inputs": "x"},
        "quantization": {"op_wise": {"fc": {"activation": {"dtype": "fp32"}}}},
        "tuning": {"random_seed": 3, "strategy": "random"},
        "evaluation": {"accuracy": {"metric": {"SquadF1": None}}},
    }
    found = identity(load(data))
    assert json.loads(json.dumps(found)) == found
    assert found == {
        "model": {"framework": "onnx", "inputs": ["x"]},
        "quantization": {"op_wise": {"fc": {"activation": {"dtype": ["fp32"]}}}},
        "tuning": {
            "random_seed": 3,
            "strategy": {"name": "random"},
            "accuracy_criterion": {"relative": 0.01},
        },
        "evaluation": {"accuracy": {"metric": {"SquadF1": {}}}},
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"name": "b"}},
        {"version": 2.0},
        {"tuning": {"exit_policy": {"max_trials": 7, "timeout": 60}}},
        {"tuning": {"workspace": {"path": "/elsewhere"}}},
        {"tuning": {"random_seed": 1978, "objective": "performance"}},
        {"tuning": {"accuracy_criterion": {"relative": "1%"}}},
        {"quantization": {"target": "this", "calibration": {"sampling_size": []}}},
        {"evaluation": {"accuracy": {"iteration": -1, "configs": {"num_of_instance": 1}}}},
    ],
)
def test_identity_does_not_change(changes: dict[str, object]) -> None:
    assert identity(load(changes)) == identity(load())


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"framework": "onnx"}},
        {"model": {"outputs": "y"}},
        {"quantization": {"target": "avx2"}},
        {"quantization": {"calibration": {"sampling_size": 5}}},
        {"quantization": {"op_wise": {"a": {}}}},
        {"tuning": {"strategy": "random"}},
        {"tuning": {"accuracy_criterion": {"relative": 0.02}}},
        {"tuning": {"accuracy_criterion": {"higher_is_better": False}}},
        {"tuning": {"random_seed": 1}},
        {"tuning": {"objective": "modelsize"}},
        {"evaluation": {"accuracy": {"metric": "F1"}}},
        {"evaluation": {"accuracy": {"metric": "MSE"}}},
    ],
)
def test_identity_changes(changes: dict[str, object]) -> None:
    assert identity(load(changes)) != identity(load())


def test_identity_of_an_object() -> None:
    config = load({"tuning": {"strategy": {"name": "hawq_v2", "hawq_v2_loss": object()}}})
    assert identity(config)["tuning"]["strategy"]["hawq_v2_loss"] == "builtins.object"
