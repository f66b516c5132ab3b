"""`lpot.tune`: the whole tool in one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from lpot.core.backend import Backend
from lpot.core.errors import ConfigError, a_kind, did_you_mean
from lpot.core.goal import Goal, share_lost
from lpot.core.progress import Listener
from lpot.core.results.result import Result
from lpot.core.space import Rule, TensorRule
from lpot.core.strategy import Strategy
from lpot.jobs.settings import Conf, change_config, read_config
from lpot.jobs.tune.quantize import Request, quantize
from lpot.jobs.tune.request import FUNCTION
from lpot.report.terminal import progress_listener

KEEP = TensorRule(dtype=("fp32",))
APPROACHES = {
    "static": "post_training_static_quant",
    "dynamic": "post_training_dynamic_quant",
    "auto": "post_training_auto_quant",
    "qat": "quant_aware_training",
    "weight_only": "weight_only",
}
# the key of the yaml that an argument sets → the argument
NAMES = {
    "model.framework": "framework",
    "model.runtime": "runtime",
    "model.trust": "trust",
    "quantization.approach": "approach",
    "quantization.target": "target",
    "quantization.calibration.sampling_size": "sampling_size",
    "tuning.strategy.name": "strategy",
    "tuning.exit_policy.max_trials": "max_trials",
    "tuning.exit_policy.timeout": "timeout",
    "tuning.random_seed": "seed",
    "tuning.executor": "executor",
    "tuning.workspace.trust_history": "trust_history",
    "tuning.accuracy_criterion.relative": "goal",
    "tuning.accuracy_criterion.absolute": "goal",
    "tuning.accuracy_criterion.higher_is_better": "goal",
    "tuning.accuracy_criterion.proven": "goal",
    "tuning.accuracy_criterion.really": "really",
}


def tune(
    model: Any,
    calib: Any = None,
    evaluate: Callable[[Any], Any] | None = None,
    goal: Goal | float | str | None = None,
    *,
    bar: float | str | None = None,
    config: Conf = None,
    framework: str | Backend[Any] | None = None,
    runtime: str | None = None,
    approach: str | None = None,
    strategy: str | Strategy | None = None,
    max_trials: int | None = None,
    timeout: float | None = None,
    sampling_size: int | None = None,
    seed: int | None = None,
    target: str | None = None,
    keep_fp32: str | Sequence[str] = (),
    executor: str | Mapping[str, Any] | None = None,
    eval_loader: Any = None,
    held_out: Any = None,
    metric: Any = None,
    train: Callable[[Any], Any] | None = None,
    train_loader: Any = None,
    output: str | Path | None = None,
    workspace: str | Path | None = None,
    new_run: bool = False,
    trust_history: bool | None = None,
    lenient: bool = False,
    really: bool = False,
    trust: bool | None = None,
    signature: str | None = None,
    measure_speed: bool = True,
    progress: bool | Literal["auto", "plain"] = "auto",
    listener: Listener | None = None,
) -> Result:
    """The best low-precision model that meets the bar.

    Args:
        model: A path, or the framework's own object: `onnx.ModelProto`, `nn.Module`, a Keras model,
            a SavedModel folder …
        calib: Calibration data: any iterable of batches in the form the model takes. Needed for
            static quantization; labels, if any, are ignored.
        evaluate: `evaluate(model)` returns the score; `model` is the framework's own object.
            Without it and without a metric nothing is evaluated.
        goal: The accuracy loss allowed: a relative share such as 0.01 or "1%" (the default), or a
            `Goal`.
        bar: The share of FP32's score to keep instead: "99%", 0.999, or MLPerf's
            "mlperf" (99 %) and "mlperf_high" (99.9 %).
        config: A yaml file, dict or `Config`; the other arguments override it.
        framework: "onnx", "pytorch", "tensorflow" or "mxnet", or your own backend; detected
            from the model if omitted.
        runtime: What runs the tuned model: "native" (the default), "onnxruntime", "openvino", or
            "auto", the fastest of those installed. `evaluate` still gets an object of the model's
            own framework; accuracy and speed are measured in that runtime.
        approach: "static", "dynamic" (needs no calibration), "auto" (both, per op), "qat"
            (quantization-aware training) or "weight_only" (decoders).
        strategy: Name of a strategy, or your own generator function; "auto" by default, "basic"
            with a config that names none.
        max_trials: The maximum number of models to try.
        timeout: Time budget of the search in seconds. It ends earlier if there is nothing left to
            gain; 0 stops at the first model that meets the bar, unless the strategy settles.
        sampling_size: The number of calibration samples, or a list of numbers to try.
        seed: Random seed: the same seed gives the same recipes.
        target: The CPU that the model will run on: "this", "avx2", "vnni" or "amx".
        keep_fp32: Ops to keep in FP32, by name, regular expression or kind: "conv1", ["Softmax"].
        executor: Where trials run: "serial", "process" or "ray", or a dict with its settings.
        eval_loader: Labelled batches for the metric: (inputs, labels).
        held_out: Data that confirms the winner at the end: a loader for the metric, or a function
            like `evaluate`.
        metric: A metric by name, {"topk": 1}, or your own with update, result and reset.
        train: `train(model)`, your training loop for quantization-aware training.
        train_loader: Batches to train a pruned model with (`pruning.approach.structured`).
        output: Where to write the best model, in addition to the workspace.
        workspace: The folder for history, report and best model, or a URL such as s3://bucket/run
            (docs/cluster.md); `./lpot_workspace/<framework>/<name>` by default.
        new_run: Start over instead of resuming the tuning in the same workspace.
        trust_history: Use the scores of an earlier run as they are, without evaluating FP32 again
            to see that the evaluation is still the same.
        lenient: Only warn if a name in `keep_fp32` or in the config matches no op.
        really: Take a bar that lets most of the score go, or an evaluation that looks wrong,
            without a question.
        trust: Trust the model's file: allow ops that read or write files or call Python.
        signature: Which signature of a SavedModel to use, if it has several.
        measure_speed: Time FP32 and the best model at the end, alternately.
        progress: "auto" draws bars in a terminal or notebook and writes plain lines to stderr
            elsewhere; "plain" always writes lines, False nothing.
        listener: A `lpot.core.progress.Listener` that receives every event as well.

    Returns:
        A `Result`: `.model`, `.met`, `.accuracy`, `.speed`, `.recipe`, `.trials`, `.ops` …

    Raises:
        lpot.LpotError: An argument can't be used; the message says which, and what to give.
    """
    # Without a yaml nothing says `basic`: go on from its answer to the best one.
    default = "auto" if config is None and strategy is None else None
    named = strategy if isinstance(strategy, str) else default
    changes = {
        "model.framework": framework if isinstance(framework, str) else None,
        "model.runtime": runtime,
        "model.trust": trust,
        "model.signature": signature,
        "quantization.approach": _approach_word(approach),
        "quantization.target": target,
        "quantization.calibration.sampling_size": sampling_size,
        "tuning.strategy.name": named,
        "tuning.exit_policy.max_trials": max_trials,
        "tuning.exit_policy.timeout": timeout,
        "tuning.random_seed": seed,
        "tuning.executor": executor,
        "tuning.workspace.trust_history": trust_history,
        **_criterion(_one_of(goal, bar)),
        "tuning.accuracy_criterion.really": really or None,
    }
    settled = change_config(read_config(config), changes, NAMES)
    request = Request(
        config=settled,
        model=model,
        calib=calib,
        eval_func=evaluate,
        eval_loader=eval_loader,
        held_out=held_out,
        metric=metric,
        q_func=train,
        train=train_loader,
        backend=framework if framework is not None and not isinstance(framework, str) else None,
        strategy=strategy if strategy is not None and not isinstance(strategy, str) else None,
        rules=tuple(Rule(text, KEEP, KEEP, path="keep_fp32") for text in _several(keep_fp32)),
        output=None if output is None else Path(output),
        workspace=workspace,
        new_run=new_run,
        lenient=lenient,
        measure_speed=measure_speed,
        listener=progress_listener(progress, listener),
        door=FUNCTION,
    )
    with closing(request.listener):
        return quantize(request)


def _several(names: str | Sequence[str]) -> tuple[str, ...]:
    found = (names,) if isinstance(names, str) else tuple(names)
    for name in found:
        if not isinstance(name, str):
            raise ConfigError(f"given {name!r:.80}, expected names of ops", "keep_fp32")
    return found


def _approach_word(word: str | None) -> str | None:
    if word is None or word in APPROACHES.values():
        return word
    if word not in APPROACHES:
        near = did_you_mean(str(word), APPROACHES)
        raise ConfigError(f"given {word!r}, allowed: {' | '.join(APPROACHES)}{near}", "approach")
    return APPROACHES[word]


def _one_of(goal: Goal | float | str | None, bar: float | str | None) -> Goal | float | str | None:
    if bar is None:
        return goal
    if goal is not None:
        raise ConfigError("cannot be combined with goal: use one of them", "bar")
    try:
        return share_lost(bar)
    except ValueError as error:
        raise ConfigError(str(error), "bar") from error


def _criterion(goal: Goal | float | str | None) -> dict[str, Any]:
    place = "tuning.accuracy_criterion"
    if goal is None:
        return {}
    if isinstance(goal, Goal):
        kind = "relative" if goal.relative is not None else "absolute"
        value = goal.relative if goal.relative is not None else goal.absolute
        return {
            f"{place}.{kind}": value,
            f"{place}.higher_is_better": goal.higher_is_better,
            f"{place}.proven": goal.proven,
        }
    if isinstance(goal, bool) or not isinstance(goal, int | float | str):
        raise ConfigError(
            f"given {a_kind(goal)}, expected a share such as 0.01 or '1%', or lpot.Goal",
            "goal",
        )
    return {f"{place}.relative": goal}
