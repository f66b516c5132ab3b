"""`lpot.tune`: the whole tool in one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from lpot.core.backend import Backend
from lpot.core.errors import ConfigError
from lpot.core.goal import Goal, share_lost
from lpot.core.progress import Listener
from lpot.core.result import Result
from lpot.core.space import Rule, TensorRule
from lpot.core.strategy import Strategy
from lpot.jobs.settings import Conf, change_config, read_config
from lpot.jobs.tune.quantize import Request, quantize

KEEP = TensorRule(dtype=("fp32",))


def tune(
    model: Any,
    calib: Any = None,
    evaluate: Callable[[Any], Any] | None = None,
    goal: Goal | float | str | None = None,
    *,
    bar: float | str | None = None,
    config: Conf = None,
    framework: str | Backend[Any] | None = None,
    approach: str | None = None,
    strategy: str | Strategy | None = None,
    max_trials: int | None = None,
    timeout: float | None = None,
    sampling_size: int | None = None,
    seed: int | None = None,
    target: str | None = None,
    keep_fp32: Sequence[str] = (),
    executor: str | Mapping[str, Any] | None = None,
    eval_loader: Any = None,
    held_out: Any = None,
    metric: Any = None,
    train: Callable[[Any], Any] | None = None,
    output: str | Path | None = None,
    workspace: str | Path | None = None,
    new_run: bool = False,
    lenient: bool = False,
    trust: bool | None = None,
    measure_speed: bool = True,
    listener: Listener | None = None,
) -> Result:
    """The best low-precision model that holds the bar.

    Args:
        model: a path or the framework's own object.
        calib: any iterable of batches; needed for static quantization.
        evaluate: `evaluate(model) -> score`; without it and without a metric nothing is evaluated.
        goal: how much may be lost: a relative share such as 0.01 or "1%", or a `Goal`.
        bar: the same the other way round, how much of FP32 must be kept: "99%", 0.999, or MLPerf's
            "mlperf" (99 %) and "mlperf_high" (99.9 %).
        config: yaml file, dict or Config; the other arguments win over it.
        strategy: name of the search, or a generator function; `auto` when there is no config.
        keep_fp32: names or regular expressions of ops to leave in FP32.
        executor: where trials are made: `serial`, `process` or `ray`, or a dict with its settings.
        train: `train(model)`, your training loop: the model is trained with INT8's rounding first.
        held_out: data that confirm the winner in the end: a loader for the metric, or a function
            of the model as `evaluate` is.
        trust: the model's file may act: ops that read and write files or call Python are allowed.
        output: where to write the best model besides the workspace.

    Returns:
        A `Result`: `.model`, `.met`, `.accuracy`, `.speed`, `.faster`, `.recipe`, `.trials`.
    """
    # Without a yaml nothing says `basic`: go on from its answer to the best one.
    default = "auto" if config is None and strategy is None else None
    named = strategy if isinstance(strategy, str) else default
    changes = {
        "model.framework": framework if isinstance(framework, str) else None,
        "model.trust": trust,
        "quantization.approach": _approach_word(approach),
        "quantization.target": target,
        "quantization.calibration.sampling_size": sampling_size,
        "tuning.strategy.name": named,
        "tuning.exit_policy.max_trials": max_trials,
        "tuning.exit_policy.timeout": timeout,
        "tuning.random_seed": seed,
        "tuning.executor": executor,
        **_criterion(_one_of(goal, bar)),
    }
    settled = change_config(read_config(config), changes)
    request = Request(
        config=settled,
        model=model,
        calib=calib,
        eval_func=evaluate,
        eval_loader=eval_loader,
        held_out=held_out,
        metric=metric,
        q_func=train,
        backend=framework if framework is not None and not isinstance(framework, str) else None,
        strategy=strategy if strategy is not None and not isinstance(strategy, str) else None,
        rules=tuple(Rule(text, KEEP, KEEP, path="keep_fp32") for text in keep_fp32),
        output=None if output is None else Path(output),
        workspace=None if workspace is None else Path(workspace),
        new_run=new_run,
        lenient=lenient,
        measure_speed=measure_speed,
        listener=listener or Listener(),
    )
    with closing(request.listener):
        return quantize(request)


def _approach_word(word: str | None) -> str | None:
    return f"post_training_{word}_quant" if word in ("static", "dynamic", "auto") else word


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
        return {f"{place}.{kind}": value, f"{place}.higher_is_better": goal.higher_is_better}
    if isinstance(goal, bool) or not isinstance(goal, int | float | str):
        raise ConfigError(
            f"given a {type(goal).__name__}, expected a share such as 0.01 or '1%', or lpot.Goal",
            "goal",
        )
    return {f"{place}.relative": goal}
