"""`lpot tune`: the best low-precision model that meets the bar."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lpot.cli.output import BEST_EFFORT, INTERRUPTED, OK, WRONG_CALL, Output, command
from lpot.cli.place import KEPT
from lpot.core.errors import ConfigError

if TYPE_CHECKING:
    from lpot.config.schema import Config
    from lpot.core.progress import Listener
    from lpot.core.results.result import Result
    from lpot.jobs.tune.quantize import Request

# option → the yaml key it sets
KEYS = {
    "name": "model.name",
    "framework": "model.framework",
    "runtime": "model.runtime",
    "approach": "quantization.approach",
    "target": "quantization.target",
    "sampling_size": "quantization.calibration.sampling_size",
    "relative": "tuning.accuracy_criterion.relative",
    "absolute": "tuning.accuracy_criterion.absolute",
    "lower_is_better": "tuning.accuracy_criterion.higher_is_better",
    "proven": "tuning.accuracy_criterion.proven",
    "really": "tuning.accuracy_criterion.really",
    "objective": "tuning.objective",
    "strategy": "tuning.strategy.name",
    "max_trials": "tuning.exit_policy.max_trials",
    "timeout": "tuning.exit_policy.timeout",
    "seed": "tuning.random_seed",
    "trust_history": "tuning.workspace.trust_history",
}
EPILOG = """\b
Examples:
  lpot tune --model net.onnx --calib my_data:calib --eval my_eval:accuracy
  lpot tune conf.yaml --model net.onnx --output net_int8.onnx --eval my_eval:accuracy
  lpot tune conf.yaml --model net.onnx --dry-run
  generate_conf | lpot tune - --model net.onnx

\b
Exit status: 0 the bar is met, or there was nothing to evaluate; 3 the bar is not met, the best
model found is kept; 2 bad usage, config, model or data; 1 internal error; 130 interrupted.
"""


@click.command(epilog=EPILOG)
@click.argument("conf", required=False, type=click.Path(path_type=Path))
@click.option("--model", required=True, metavar="FILE|PKG.MOD:FACTORY", help="The FP32 model.")
@click.option("--output", type=click.Path(path_type=Path), help="Where to write the best model.")
@click.option("--eval", "evaluate", metavar="PKG.MOD:FUNC", help="FUNC(model) returns the score.")
@click.option(
    "--calib",
    metavar="PKG.MOD:NAME",
    help="A data loader, a function that returns one, or a .txt file for a decoder.",
)
@click.option("--name", help="Model name; it sets the default workspace.")
@click.option("--framework", help="Detected from the model if omitted.")
@click.option("--runtime", help="native, onnxruntime, openvino or auto: the fastest.  [native]")
@click.option("--approach", help="static, dynamic, auto, qat or weight_only.")
@click.option("--relative", metavar="SHARE", help="Accuracy loss allowed, e.g. 0.01 or 1%.  [0.01]")
@click.option("--bar", metavar="SHARE", help="Accuracy to keep instead: 99%, 99.9%, mlperf …")
@click.option("--absolute", metavar="LOSS", help="Accuracy loss allowed, in the metric's own unit.")
@click.option("--lower-is-better", is_flag=True, help="The metric is a loss: lower is better.")
@click.option("--proven", is_flag=True, help="Search until the samples prove that the bar is met.")
@click.option("--really", is_flag=True, help="Take an odd bar or evaluation without a question.")
@click.option("--objective", help="Optimize performance, modelsize, footprint or accuracy.")
@click.option("--strategy", metavar="NAME", help="auto, basic, mse, tpe …  [auto; basic with CONF]")
@click.option("--max-trials", metavar="N", help="Maximum number of models to try.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    help="Time budget; 0 stops at the first model that meets the bar, unless the strategy settles.",
)
@click.option(
    "--sampling-size",
    metavar="N[,N…]",
    help="Number of calibration samples; several are tried in turn.",
)
@click.option("--seed", metavar="N", help="Random seed.")
@click.option("--target", help="CPU the model will run on: this, avx2, vnni or amx.")
@click.option(
    "--keep-fp32", multiple=True, metavar="REGEX", help="Ops to keep in FP32; repeatable."
)
@click.option("--workspace", type=KEPT, help="Folder or URL for history and results.")
@click.option("--new-run", is_flag=True, help="Start over instead of resuming from the history.")
@click.option("--trust-history", is_flag=True, help="Recall scores without evaluating FP32 again.")
@click.option("--lenient", is_flag=True, help="Warn instead of failing when a name matches no op.")
@click.option("--no-speed", is_flag=True, help="Don't measure speed.")
@click.option(
    "--mlflow",
    metavar="URI",
    help="Log to this MLflow store or server; `default` for MLflow's own.",
)
@click.option("--dry-run", is_flag=True, help="Check everything without evaluating.")
@click.option(
    "--progress",
    type=click.Choice(["auto", "plain", "json", "none"]),
    default="auto",
    help="Progress format on stderr.",
)
@command
def tune(out: Output, dry_run: bool, progress: Any, **options: Any) -> int:
    """Find the best low-precision model that meets the accuracy bar.

    CONF is a yaml file, or - for standard input; options override it. Run the same command again
    to resume where it stopped.
    """
    from lpot.cli.resolve import run_elsewhere

    config = make_config(options)
    status = run_elsewhere(config.model.framework, options["model"])
    if status is not None:
        return status
    with out.progress(progress) as listener:
        request = make_request(config, options, listener)
        if dry_run:
            from lpot.jobs.tune.preflight import preflight

            found = preflight(request)
        else:
            from lpot.jobs.tune.quantize import quantize

            with closing(request.listener):  # logs beside ours get to their end, too
                result = quantize(request)
    return _show_preflight(out, found) if dry_run else show_result(out, result)


def make_request(config: Config, options: dict[str, Any], listener: Listener) -> Request:
    """What the command line asks for; mistakes in it are found here."""
    from lpot.cli.resolve import calibration_source, model_source, resolve
    from lpot.core.evaluation.eval_func import check_function
    from lpot.core.space import Rule
    from lpot.jobs.tune.api import KEEP
    from lpot.jobs.tune.quantize import Request
    from lpot.jobs.tune.request import COMMAND

    evaluate = None if options["evaluate"] is None else resolve(options["evaluate"], "--eval")
    if evaluate is not None:
        check_function(evaluate, "--eval")
    return Request(
        config=config,
        model=model_source(options["model"]),
        calib=None if options["calib"] is None else calibration_source(options["calib"]),
        eval_func=evaluate,
        rules=tuple(Rule(text, KEEP, KEEP, path="--keep-fp32") for text in options["keep_fp32"]),
        output=options["output"],
        workspace=options["workspace"],
        new_run=options["new_run"],
        lenient=options["lenient"],
        measure_speed=not options["no_speed"],
        door=COMMAND,
        listener=_with_mlflow(listener, options["mlflow"], config.model.name),
    )


def _with_mlflow(listener: Listener, uri: str | None, name: str) -> Listener:
    if uri is None:
        return listener
    from lpot.core.progress import Chorus
    from lpot.jobs.callbacks.aside import Aside
    from lpot.jobs.callbacks.mlflow import MlflowListener

    store = None if uri == "default" else uri
    return Chorus(listener, Aside(MlflowListener(store, name=name)))


def make_config(options: dict[str, Any]) -> Config:
    """The file's configuration with the options over it; mistakes are told by the option's name."""
    from lpot.cli.resolve import model_name
    from lpot.jobs.settings import change_config, read_config
    from lpot.jobs.tune.api import APPROACHES

    config = read_config(options["conf"])
    changes = {
        path: options[name] for name, path in KEYS.items() if options[name] not in (None, False)
    }
    if options["lower_is_better"]:
        changes[KEYS["lower_is_better"]] = False
    if options["approach"] is not None:
        changes[KEYS["approach"]] = APPROACHES.get(options["approach"], options["approach"])
    if options["bar"] is not None:
        changes[KEYS["relative"]] = _loss(options)
    if options["relative"] is not None and options["absolute"] is not None:
        raise ConfigError("cannot be combined with --relative: use one of them", "--absolute")
    if options["conf"] is None and options["strategy"] is None:
        changes[KEYS["strategy"]] = "auto"
    if options["conf"] is None and options["name"] is None:
        changes[KEYS["name"]] = model_name(options["model"])
    names = {path: f"--{name.replace('_', '-')}" for name, path in KEYS.items()}
    return change_config(config, changes, names)


def _loss(options: dict[str, Any]) -> float:
    from lpot.core.goal import share_lost

    rival = next((name for name in ("relative", "absolute") if options[name] is not None), None)
    if rival is not None:
        raise ConfigError(f"cannot be combined with --{rival}: use one of them", "--bar")
    try:
        return share_lost(options["bar"])
    except ValueError as error:
        raise ConfigError(str(error), "--bar") from error


def show_result(out: Output, result: Result) -> int:
    """The verdict, and the exit status that goes with it."""
    from lpot.report.verdict import headline, verdict

    status = OK if result.met is not False else BEST_EFFORT
    status = INTERRUPTED if result.interrupted else status
    out.show(headline(result) if out.quiet else verdict(result))
    if result.interrupted:
        out.show("Run the same command again to resume.")
    out.tell({**as_json(result), "exit": status})
    return status


def as_json(result: Result) -> dict[str, Any]:
    """A Result for programs, with the paths and the measurement behind `speed`."""
    places = {"model": result.path, "workspace": result.workspace, "history": result.history}
    return {
        **result.to_json(),
        "interrupted": result.interrupted,
        "paths": {name: None if path is None else str(path) for name, path in places.items()},
        "benchmark": None if result.benchmark is None else result.benchmark.to_json(),
    }


def _show_preflight(out: Output, found: Any) -> int:
    from lpot.report.table import checks

    out.show(checks((check.name, check.state, check.text) for check in found.checks))
    out.show("ready" if found.ok else "not ready: see the failed checks above")
    status = OK if found.ok else WRONG_CALL
    out.tell({**found.to_json(), "exit": status})
    return status
