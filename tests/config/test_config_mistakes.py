"""Every mistake is told with file:line, path, what was given, what is allowed, the nearest word."""

from __future__ import annotations

import pytest

from lpot.config import ConfigMistakes, load
from lpot.core.errors import ConfigError


def test_unknown_key(complaint) -> None:
    said = complaint("tuning:\n  exit_polcy: {timeout: 0}\n")
    assert said.startswith(
        "conf.yaml:5: tuning.exit_polcy: unknown key 'exit_polcy'; allowed here:"
    )
    assert "accuracy_criterion, objective" in said
    assert said.endswith("did you mean 'exit_policy'?")


def test_unknown_top_level_key(complaint) -> None:
    said = complaint("tunning: {}\n")
    assert "conf.yaml:4: tunning: unknown key 'tunning'" in said
    assert "did you mean 'tuning'" in said


def test_misplaced_key_is_told_its_place(complaint) -> None:
    said = complaint("tuning:\n  max_trials: 3\n")
    assert "conf.yaml:5: tuning.max_trials: unknown key" in said
    assert said.endswith("max_trials belongs at tuning.exit_policy.max_trials")


def test_unknown_key_of_an_op(complaint) -> None:
    said = complaint("quantization:\n  op_wise:\n    a/b:0:\n      activaton: {dtype: fp32}\n")
    assert "conf.yaml:7: quantization.op_wise.a/b:0.activaton: unknown key" in said
    assert "allowed here: weight, activation, did you mean 'activation'?" in said


def test_unknown_word(complaint) -> None:
    assert complaint("device: cpuu\n") == (
        "conf.yaml:4: device: given 'cpuu', allowed: cpu | gpu, did you mean 'cpu'?"
    )


def test_unknown_word_in_a_list(complaint) -> None:
    said = complaint("quantization: {model_wise: {weight: {dtype: 'int8, int7'}}}\n")
    assert (
        "conf.yaml:4: quantization.model_wise.weight.dtype: given 'int7', allowed: int8 |" in said
    )
    said = complaint("quantization: {model_wise: {weight: {dtype: [int8, int7]}}}\n")
    assert "quantization.model_wise.weight.dtype[1]: given 'int7'" in said


def test_unknown_framework(complaint) -> None:
    said = complaint("model: {name: a, framework: TensorFlw}\n", model=False)
    assert "conf.yaml:1: model.framework: given 'TensorFlw', allowed: onnx | pytorch | " in said
    assert "tensorflow | mxnet | onnxrt_qlinearops | onnxrt_integerops | " in said
    assert "did you mean 'tensorflow'" in said


@pytest.mark.parametrize("text", ["strategy: basik", "strategy: {name: basik}"])
def test_unknown_strategy(complaint, text: str) -> None:
    said = complaint(f"tuning:\n  {text}\n")
    assert "conf.yaml:5: tuning.strategy" in said
    assert "given 'basik', allowed: basic | auto | random | exhaustive | mse" in said
    assert "did you mean 'basic'" in said


def test_strategy_option_that_is_none(complaint) -> None:
    said = complaint("tuning:\n  strategy:\n    name: basic\n    confidence: 2\n")
    assert "conf.yaml:7: tuning.strategy.confidence: unknown key 'confidence'" in said
    assert "confidence_batches" in said


def test_relative_as_a_whole_number(complaint) -> None:
    said = complaint("tuning:\n  accuracy_criterion:\n    relative: 1\n")
    assert "conf.yaml:6: tuning.accuracy_criterion.relative: given 1, a whole number" in said
    assert "write 0.01 or '1%' for 1 %" in said


@pytest.mark.parametrize("value", ["1.0", "150%", "-1.5"])
def test_relative_out_of_range(complaint, value: str) -> None:
    said = complaint(f"tuning:\n  accuracy_criterion:\n    relative: {value}\n")
    assert "conf.yaml:6: tuning.accuracy_criterion.relative: given " in said
    assert "expected from 0 to below 1" in said


@pytest.mark.parametrize("key", ["relative", "absolute"])
def test_negative_tolerance(complaint, key: str) -> None:
    said = complaint(f"tuning: {{accuracy_criterion: {{{key}: -0.01}}}}\n")
    assert f"conf.yaml:4: tuning.accuracy_criterion.{key}: given -0.01, expected 0 or more" in said
    assert "better than FP32" in said


def test_both_criteria(complaint) -> None:
    said = complaint("tuning:\n  accuracy_criterion:\n    relative: 0.01\n    absolute: 0.01\n")
    assert said == (
        "conf.yaml:7: tuning.accuracy_criterion.absolute: cannot be combined with relative: use "
        "one of them"
    )


def test_sampling_size_zero_and_beside_iterations(complaint) -> None:
    start = "conf.yaml:5: quantization.calibration."
    said = complaint("quantization:\n  calibration: {sampling_size: 0}\n")
    assert said == f"{start}sampling_size: given 0, expected 1 or more"
    said = complaint("quantization:\n  calibration: {sampling_size: 10, iterations: 3}\n")
    assert said.startswith(f"{start}iterations: cannot be combined with sampling_size")
    said = complaint("quantization:\n  calibration: {sampling_size: many}\n")
    assert said == f"{start}sampling_size: given 'many', expected a whole number"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "tuning: {random_seed: 017}",
            "random_seed: given 017, which yaml 1.1 reads in",
        ),
        ("tuning: {random_seed: 1.5}", "random_seed: given 1.5, expected a whole number"),
        ("tuning: {random_seed: -1}", "random_seed: given -1, expected 0 or more"),
        ("tuning: {random_seed: true}", "random_seed: given true, expected a whole number"),
        ("tuning: {random_seed: }", "random_seed: given nothing, expected a whole number"),
        ("tuning: {exit_policy: {timeout: 1h}}", "timeout: given '1h', expected a number"),
        ("tuning: {exit_policy: {timeout: .inf}}", "timeout: given .inf, expected a number"),
        ("tuning: {exit_policy: {timeout: -3}}", "timeout: given -3, expected 0 or more"),
        ("tuning: {exit_policy: {max_trials: 0}}", "max_trials: given 0, expected 1 or more"),
        ("tuning: {tensorboard: 1}", "tensorboard: given 1, expected true or false"),
        ("tuning: {accuracy_criterion: {relative: lots}}", "expected a number such as 0.01 or a"),
        ("tuning: []", "tuning: given [], expected a mapping of strategy, accuracy_criterion"),
        ("tuning: 5", "tuning: given 5, expected a mapping of strategy"),
        ("quantization: {op_wise: [a]}", "op_wise: given ['a'], expected a mapping of names"),
        ("quantization: {quant_level: 2}", "given 2, allowed: auto | 0 | 1"),
        ("quantization: {quant_level: true}", "given 'true', allowed: auto | 0 | 1"),
        (
            "quantization: {model_wise: {weight: {bit: 8}}}",
            "given 8, expected whole numbers from 1",
        ),
        ("quantization: {model_wise: {weight: {bit: 6.5}}}", "given 6.5, expected whole numbers"),
        ("version: 3.0", "version: given 3.0, allowed: 1.0 | 2.0"),
        ("evaluation: {accuracy: {iteration: 0}}", "iteration: given 0, expected a number of"),
        (
            "evaluation: {accuracy: {metric: {topk: 1, F1: }}}",
            "given F1, topk, expected exactly one",
        ),
        ("evaluation: {accuracy: {metric: {}}}", "metric: given nothing, expected exactly one"),
        (
            "evaluation: {accuracy: {metric: {mAP: {iou_thrs: 2}}}}",
            "a number from 0 to 1, or '0.5:0",
        ),
        ("evaluation: {accuracy: {metric: {mine: 3}}}", "metric.mine: given 3, expected a mapping"),
        ("evaluation: {accuracy: {dataloader: {batch_size: 2}}}", "dataloader.dataset: is missing"),
        (
            "evaluation: {accuracy: {postprocess: {transform: {SquadV1: {label_file: a}}}}}",
            "postprocess.transform.SquadV1: SquadV1 needs vocab_file",
        ),
        (
            "evaluation: {accuracy: {metric: F1, multi_metrics: {F1: }}}",
            "cannot be combined with metric: use",
        ),
        (
            "tuning: {objective: accuracy, multi_objectives: {}}",
            "cannot be combined with objective: use one",
        ),
        ("tuning: {multi_objectives: {objective: accuracy, weight: 1 2}}", "given 2 values for 1"),
        (
            "tuning: {multi_objectives: {objective: accuracy, weight: -1}}",
            "weight: given -1, expected",
        ),
        (
            "tuning: {multi_objectives: {objective: footprint, weight: 0}}",
            "at least one of them above",
        ),
        ("tuning: {multi_objectives: {objective: footprint footprint}}", "given footprint twice"),
        (
            "evaluation: {accuracy: {multi_metrics: {F1: , weight: 1 2}}}",
            "multi_metrics.weight: given 2 values for 1 metrics",
        ),
        (
            "pruning: {approach: {weight_compression: {start_epoch: 5, end_epoch: 2}}}",
            "weight_compression.end_epoch: given 2, before start_epoch",
        ),
    ],
)
def test_wrong_values(complaint, text: str, said: str) -> None:
    message = complaint(f"{text}\n")
    assert message.startswith("conf.yaml:4: ")
    assert said in message


def test_name_is_needed_in_a_file(complaint, write) -> None:
    said = complaint("tuning: {random_seed: 1}\n", model=False)
    assert said.startswith("conf.yaml: model.name: is missing: a file must name its model")
    said = complaint("device: cpu\nmodel:\n  framework: onnx\n", model=False)
    assert said.startswith("conf.yaml:2: model.name: is missing")
    assert complaint("model: {name: ''}\n", model=False).startswith(
        "conf.yaml:1: model.name: given an empty string"
    )
    assert complaint("model: {name: true}\n", model=False).startswith(
        "conf.yaml:1: model.name: given true, expected a string: put it in quotes"
    )


def test_all_mistakes_at_once(write) -> None:
    path = write(
        "model: {name: net}\n"
        "tuning:\n"
        "  strategy: basik\n"
        "  random_seed: x\n"
        "device: cpu\n"
        "devise: gpu\n"
        "device: gpu\n"
    )
    with pytest.raises(ConfigMistakes) as info:
        load(path)
    error = info.value
    assert isinstance(error, ConfigError)
    assert [mistake.line for mistake in error.mistakes] == [3, 4, 6, 7]
    assert error.path == "tuning.strategy"
    assert error.where == f"{path}:3"
    lines = str(error).splitlines()
    assert lines[0].startswith(f"{path}:3: tuning.strategy: given 'basik'")
    assert lines[1] == "and 3 more mistakes:"
    assert lines[2].strip().startswith(f"{path}:4: tuning.random_seed: given 'x'")
    assert lines[4].strip() == (f"{path}:7: device: given twice, first on line 5: keep only one")


def test_a_dict_is_told_by_path_alone() -> None:
    with pytest.raises(ConfigMistakes) as info:
        load({"tuning": {"exit_policy": {"max_trails": 3}}})
    assert str(info.value).startswith("tuning.exit_policy.max_trails: unknown key 'max_trails'")
    assert info.value.where == ""


def test_a_secret_is_not_repeated_by_unknown_keys(complaint) -> None:
    said = complaint("tuning:\n  strategy: {name: sigopt, sigopt_api_tokn: s3cret}\n")
    assert "sigopt_api_tokn" in said
    assert "s3cret" not in said


def test_a_misspelt_metric_with_a_plain_argument_is_called_so() -> None:
    config = {"evaluation": {"accuracy": {"metric": {"topkk": 1}}}}
    with pytest.raises(ConfigError, match=r"unknown metric 'topkk', did you mean 'topk'\?"):
        load(config)
