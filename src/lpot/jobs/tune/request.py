"""What the user asked for, from whichever door it came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lpot.config.schema import Config
from lpot.core.backend import Backend
from lpot.core.progress import Listener
from lpot.core.space import Rule
from lpot.core.strategy import Strategy
from lpot.jobs.many.pool import Pool

# -- The words a user wrote: each way into lpot names the same things differently.


@dataclass(frozen=True)
class Door:
    """What errors and notes call the things that were given, or should have been."""

    calib: str
    evaluate: str
    eval_loader: str
    metric: str
    train: str
    dynamic: str  # how to ask for what needs no calibration
    again: str  # how to start over
    runtime: str  # how to name a runtime
    loss: str  # how a bar is given: relative, absolute, or as what is to be kept
    absolute: str
    bar: str
    lower: str  # how to say which way is up
    higher: str
    small: str  # how to ask for a small model, be it slow
    really: str  # how to say that an odd bar, or an odd evaluation, is meant


SCRIPT = Door(
    calib="q_dataloader",
    evaluate="eval_func",
    eval_loader="eval_dataloader",
    metric="quantizer.metric",
    train="q_func",
    dynamic="`approach: post_training_dynamic_quant`",
    again="use another workspace",
    runtime="`model.runtime: {}` in the yaml",
    loss="tuning.accuracy_criterion.relative",
    absolute="tuning.accuracy_criterion.absolute",
    bar="`accuracy_criterion: {bar: 99%}` in the yaml",
    lower="`accuracy_criterion: {higher_is_better: false}` in the yaml",
    higher="`accuracy_criterion: {higher_is_better: true}` in the yaml",
    small="`tuning.objective: modelsize` in the yaml",
    really="`accuracy_criterion: {really: true}` in the yaml",
)
FUNCTION = Door(
    calib="calib",
    evaluate="evaluate",
    eval_loader="eval_loader",
    metric="metric",
    train="train",
    dynamic='approach="dynamic"',
    again="use new_run=True",
    runtime='runtime="{}"',
    loss="goal",
    absolute="goal",
    bar='bar="99%"',
    lower="goal=lpot.Goal(…, higher_is_better=False)",
    higher="goal=lpot.Goal(…, higher_is_better=True)",
    small='config={"tuning": {"objective": "modelsize"}}',
    really="really=True",
)
COMMAND = Door(
    calib="--calib",
    evaluate="--eval",
    eval_loader="`evaluation.accuracy.dataloader` in the yaml",
    metric="`evaluation.accuracy.metric` in the yaml",
    train="`quantization.train` in the yaml",
    dynamic="--approach dynamic",
    again="use --new-run",
    runtime="--runtime {}",
    loss="--relative",
    absolute="--absolute",
    bar="--bar 99%",
    lower="--lower-is-better",
    higher="leave out --lower-is-better, and `higher_is_better: false` in the yaml",
    small="--objective modelsize",
    really="--really",
)


@dataclass(frozen=True, eq=False)
class Request:
    """Objects given here win over what the config says."""

    config: Config
    model: Any
    calib: Any = None
    eval_func: Callable[[Any], Any] | None = None
    eval_loader: Any = None
    held_out: Any = None
    metric: Any = None
    postprocess: Any = None
    q_func: Callable[[Any], Any] | None = None
    train: Any = None  # batches that a pruned model is trained with
    backend: Backend | None = None
    strategy: Strategy | None = None
    rules: tuple[Rule, ...] = ()
    output: Path | None = None
    workspace: str | Path | None = None  # a folder, or a URL that fsspec knows
    new_run: bool = False
    lenient: bool = False
    measure_speed: bool = True
    listener: Listener = field(default_factory=Listener)
    door: Door = SCRIPT
    remarks: tuple[str, ...] = ()  # what was found out about it before it was planned
    pool: Pool = field(default_factory=Pool)  # what tunings of one model share
