"""Sources that `load` takes, spellings of values, and what a Config promises."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from lpot.config import Config, load, override
from lpot.config.schema_tuning import TuningSection
from lpot.core.errors import ConfigError


def test_defaults() -> None:
    config = load()
    assert config == Config() == load({})
    assert config.model.name == "model"
    assert config.model.framework is None
    assert config.tuning.exit_policy.timeout == 0
    assert config.tuning.exit_policy.max_trials == 100
    assert config.tuning.accuracy_criterion.relative == 0.01
    assert config.tuning.random_seed == 1978
    assert config.quantization.target == "this"
    assert config.evaluation.performance.warmup == 5


def test_a_config_is_returned_as_it_is() -> None:
    config = load({"device": "cpu"})
    assert load(config) is config


def test_sections_may_be_objects() -> None:
    config = load({"tuning": TuningSection(random_seed=3)})
    assert config.tuning.random_seed == 3


@pytest.mark.parametrize("source", [3, ["a"], b"conf.yaml"])
def test_other_sources(source: object) -> None:
    with pytest.raises(ConfigError, match="expected the path of a yaml file, a dict or a Config"):
        load(source)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["model:\n  name: a\n", ""])
def test_yaml_text_is_no_path(text: str) -> None:
    with pytest.raises(ConfigError, match="a string that is not a path"):
        load(text)


def test_endless_dict_is_refused() -> None:
    data: dict[str, object] = {}
    data["nas"] = data
    with pytest.raises(ConfigError, match="nested deeper"):
        load(data)


def test_frozen_all_the_way() -> None:
    config = load({"quantization": {"op_wise": {"a": {}}}, "nas": {"b": [1, {"c": 2}]}})
    with pytest.raises(ValidationError, match="frozen"):
        config.tuning.random_seed = 5  # type: ignore[misc]
    for change in (
        lambda: config.quantization.op_wise.update(b=1),
        lambda: config.quantization.op_wise.__setitem__("a", 1),
        lambda: config.nas.pop("b"),
        lambda: config.nas["b"][1].clear(),
    ):
        with pytest.raises(TypeError, match="can't be changed"):
            change()
    assert config.nas["b"] == (1, {"c": 2})
    assert isinstance(hash(config), int)


def test_pickled_and_equal_wherever_it_came_from(write) -> None:
    path = write("model: {name: a}\nquantization: {op_wise: {x: {weight: {bit: 7.0}}}}\n")
    config = load(path)
    again = pickle.loads(pickle.dumps(config))
    plain = load(
        {"model": {"name": "a"}, "quantization": {"op_wise": {"x": {"weight": {"bit": 7}}}}}
    )
    assert config == again == plain
    assert again.where("quantization.op_wise.x.weight.bit") == f"{path}:2"
    assert plain.where("quantization") == ""
    assert config.where("tuning.strategy") == str(path)


def test_where_of_a_key_below_the_last_one_written(write) -> None:
    path = write("model: {name: a}\ntuning:\n  strategy: basic\n")
    assert load(path).where("tuning.strategy.name") == f"{path}:3"


def test_dump_loads_again(write) -> None:
    config = load(
        write(
            "model: {name: a, inputs: x y}\n"
            "tuning: {accuracy_criterion: {absolute: 1%}, strategy: random}\n"
            "evaluation: {accuracy: {metric: {topk: 5}}}\n"
        )
    )
    assert load(config.model_dump(exclude_unset=True)) == config
    assert load(config.model_dump(mode="json", exclude_unset=True)) == config


def test_override() -> None:
    config = load({"tuning": {"strategy": {"name": "mine", "depth": 3}}}, extra_strategies=["mine"])
    changed = override(config, {"tuning.exit_policy.max_trials": 5, "model.name": "b"})
    assert changed.tuning.exit_policy.max_trials == 5
    assert changed.model.name == "b"
    assert changed.tuning.strategy.options == {"depth": 3}
    assert config.tuning.exit_policy.max_trials == 100
    with pytest.raises(ConfigError, match=r"tuning\.exit_policy\.max_trials: given 0"):
        override(config, {"tuning.exit_policy.max_trials": 0})


def test_override_takes_the_rival_away() -> None:
    config = override(load(), {"tuning.accuracy_criterion.absolute": 0.5})
    assert config.tuning.accuracy_criterion.relative is None
    assert config.tuning.accuracy_criterion.absolute == 0.5
    config = load({"quantization": {"calibration": {"iterations": 3}}})
    config = override(config, {"quantization.calibration.sampling_size": 7})
    assert config.quantization.calibration.sampling_size == (7,)
    assert override(config, {"quantization.calibration.sampling_size": None}) == load()


def test_override_keeps_lines(write) -> None:
    path = write("model: {name: a}\ntuning:\n  random_seed: 3\n")
    changed = override(load(path), {"tuning.random_seed": 4})
    assert changed.where("tuning.random_seed") == f"{path}:3"


def test_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("tensorflow_itex", "pytorch_fx", "pytorch_ipex", "onnxrt_integerops", "mxnet"):
        assert load({"model": {"framework": word}}).model.framework == word
    with pytest.raises(ConfigError, match=r"'toy', allowed: .* \| mxnet"):
        load({"model": {"framework": "toy"}})
    from importlib.metadata import EntryPoint

    found = EntryPoint("toy", "toy_backend:Toy", "lpot.backends")
    monkeypatch.setattr("lpot.core.framework.entry_points", lambda group: [found])
    assert load({"model": {"framework": "toy"}}).model.framework == "toy"
    with pytest.raises(ConfigError, match="did you mean 'toy'"):
        load({"model": {"framework": "toyy"}})


def test_a_strategy_of_ones_own_has_its_own_options() -> None:
    config = load({"tuning": {"strategy": {"name": "mine", "depth": 3}}}, extra_strategies=["mine"])
    assert config.tuning.strategy.options == {"depth": 3}


@pytest.mark.parametrize(
    "text", ["x, y", "'x,y'", "x y", "[x, y]", "\n    - x\n    - y", "'x, y,'"]
)
def test_inputs(write, text: str) -> None:
    config = load(write(f"model:\n  name: net\n  inputs: {text}\n"))
    assert config.model.inputs == ("x", "y")


def test_bare_values_and_lists_of_ops(loaded) -> None:
    config = loaded(
        "quantization:\n"
        "  model_wise: {activation: {algorithm: kl, dtype: uint8 fp32}, weight: {bit: 7.0}}\n"
        "  op_wise:\n"
        "    conv: {activation: {dtype: fp32}}\n"
        "    fc: {activation: {dtype: [uint8, fp32]}}\n"
    )
    section = config.quantization
    assert section.model_wise.activation.algorithm == ("kl",)
    assert section.model_wise.activation.dtype == ("uint8", "fp32")
    assert section.model_wise.weight.bit == (7.0,)
    assert section.op_wise["conv"].activation.dtype == ("fp32",)
    assert section.op_wise["fc"].activation.dtype == ("uint8", "fp32")


@pytest.mark.parametrize(
    ("text", "sizes"), [("100", (100,)), ("100, 200", (100, 200)), ("[100, 200]", (100, 200)),
                        ("100 200", (100, 200)), ("'50'", (50,)), ("1e3", (1000,)), ("", ())]
)  # fmt: skip
def test_sampling_sizes(loaded, text: str, sizes: tuple[int, ...]) -> None:
    config = loaded(f"quantization: {{calibration: {{sampling_size: {_flow(text)}}}}}\n")
    assert config.quantization.calibration.sampling_size == sizes


def _flow(text: str) -> str:
    return f"'{text}'" if "," in text and "[" not in text else text


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.01", 0.01), ("1e-2", 0.01), ("1%", 0.01), ("'0.5 %'", 0.005), ("0", 0.0), ("0.0", 0.0)],
)
def test_relative(loaded, text: str, value: float) -> None:
    config = loaded(f"tuning: {{accuracy_criterion: {{relative: {text}}}}}\n")
    assert config.tuning.accuracy_criterion.relative == pytest.approx(value)
    assert config.tuning.accuracy_criterion.absolute is None


def test_absolute_and_direction(loaded) -> None:
    criterion = loaded("tuning: {accuracy_criterion: {absolute: 1}}\n").tuning.accuracy_criterion
    assert criterion.absolute == 1.0
    assert criterion.relative is None
    criterion = loaded(
        "tuning: {accuracy_criterion: {higher_is_better: no}}\n"
    ).tuning.accuracy_criterion
    assert criterion.relative == 0.01
    assert criterion.higher_is_better is False


@pytest.mark.parametrize("text", ["1.0", "1", "'1.0'", "2.0"])
def test_version(loaded, text: str) -> None:
    assert loaded(f"version: {text}\n").version in (1.0, 2.0)


@pytest.mark.parametrize(
    ("text", "name"),
    [("NO", "NO"), ("off", "off"), ("017", "017"), ("1.10", "1.10"), ("1e3", "1e3"),
     ("0x10", "0x10"),
     ("2021-01-01", "2021-01-01"), ("12:30", "12:30"), ("'true'", "true"), ("a b", "a b")],
)  # fmt: skip
def test_texts_keep_their_spelling(write, text: str, name: str) -> None:
    assert load(write(f"model: {{name: {text}}}\n")).model.name == name


SWITCHES = {"yes": True, "on": True, "True": True, "no": False, "OFF": False, "'false'": False}


@pytest.mark.parametrize(("word", "flag"), SWITCHES.items())
def test_switches(loaded, word: str, flag: bool) -> None:
    config = loaded(f"tuning: {{exit_policy: {{performance_only: {word}}}}}\n")
    assert config.tuning.exit_policy.performance_only is flag


def test_free_arguments_are_plain_values(loaded) -> None:
    config = loaded(
        "evaluation:\n"
        "  accuracy:\n"
        "    dataloader:\n"
        "      dataset:\n"
        "        CIFAR10: {root: /data, download: no, train: 'no', size: 1e2, n: 3}\n"
        "      transform:\n"
        "        Resize: {size: [224, 224]}\n"
        "        ParseDecodeImagenet:\n"
        "        CenterCrop: {size: 200}\n"
    )
    loader = config.evaluation.accuracy.dataloader
    assert loader.dataset.name == "CIFAR10"
    assert loader.dataset.args == {
        "root": "/data", "download": False, "train": "no", "size": 100.0, "n": 3,
    }  # fmt: skip
    assert type(loader.dataset.args["n"]) is int
    assert type(loader.dataset.args["size"]) is float
    assert list(loader.transform) == ["Resize", "ParseDecodeImagenet", "CenterCrop"]
    assert loader.transform["Resize"] == {"size": (224, 224)}
    assert loader.batch_size == 1


@pytest.mark.parametrize(
    ("text", "name", "args"),
    [
        ("{topk: 5}", "topk", {"k": 5}),
        ("{topk: }", "topk", {}),
        ("topk", "topk", {}),
        ("{SquadF1: }", "SquadF1", {}),
        ("{MSE: {compare_label: false}}", "MSE", {"compare_label": False}),
        ("{mAP: {iou_thrs: '0.5:0.05:0.95'}}", "mAP", {"iou_thrs": "0.5:0.05:0.95"}),
        ("{mine: {a: 1}}", "mine", {"a": 1}),
        ("mine", "mine", {}),
        ("{name: {a: 1}}", "name", {"a": 1}),
    ],
)
def test_metrics(loaded, text: str, name: str, args: dict[str, object]) -> None:
    metric = loaded(f"evaluation: {{accuracy: {{metric: {text}}}}}\n").evaluation.accuracy.metric
    assert metric.name == name
    assert metric.args == args


def test_empty_sections_and_null_lists(loaded) -> None:
    config = loaded(
        "quantization:\n  op_wise:\n  model_wise:\n    weight:\n    activation:\n"
        "tuning:\n  exit_policy:\nevaluation:\n"
    )
    assert config.quantization.op_wise == {}
    assert config.quantization.model_wise.weight is None
    assert config.tuning == load().tuning


def test_ops_named_by_numbers(loaded) -> None:
    config = loaded("quantization:\n  op_wise:\n    0: {}\n    1.0: {}\n    no: {}\n")
    assert list(config.quantization.op_wise) == ["0", "1.0", "no"]
    assert list(load({"quantization": {"op_wise": {0: {}}}}).quantization.op_wise) == ["0"]


@pytest.mark.parametrize("key", ["metric", "metrics"])
def test_metric_under_tuning(loaded, complaint, key: str) -> None:
    config = loaded(f"tuning:\n  {key}:\n    topk: 1\n  random_seed: 3\n")
    assert config.evaluation.accuracy.metric.name == "topk"
    assert config.tuning.random_seed == 3
    assert config.where("evaluation.accuracy.metric").endswith(":5")
    said = complaint(f"tuning:\n  {key}:\n    MSE: {{compare: true}}\n")
    assert f"conf.yaml:6: tuning.{key}.MSE.compare: unknown key" in said
    said = complaint(f"evaluation: {{accuracy: {{metric: F1}}}}\ntuning:\n  {key}: {{topk: 1}}\n")
    assert f"conf.yaml:6: tuning.{key}: means the same as evaluation.accuracy.metric" in said


def test_metric_and_metrics_under_tuning(complaint) -> None:
    said = complaint("tuning:\n  metric: F1\n  metrics: F1\n")
    told = "tuning.metrics: means the same as tuning.metric, which is also given"
    assert f"conf.yaml:6: {told}" in said


def test_metric_under_tuning_beside_a_wrong_evaluation(complaint) -> None:
    assert "evaluation: given 5, expected a mapping" in complaint(
        "evaluation: 5\ntuning: {metric: F1}\n"
    )


def test_quant_level_at_the_top(loaded) -> None:
    assert loaded("quant_level: 0\n").quantization.quant_level == 0


def test_dict_is_not_changed() -> None:
    data = {"tuning": {"metric": {"topk": 1}}, "quantization": {"op_wise": {"a": {}}}}
    load(data)
    assert data == {"tuning": {"metric": {"topk": 1}}, "quantization": {"op_wise": {"a": {}}}}


def test_paths_may_be_path_objects(tmp_path: Path) -> None:
    config = load({"tuning": {"workspace": {"path": tmp_path}}})
    assert config.tuning.workspace.path == str(tmp_path)
