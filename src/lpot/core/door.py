"""The words a user wrote: each way into lpot names the same things differently."""

from __future__ import annotations

from dataclasses import dataclass


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


SCRIPT = Door(
    calib="q_dataloader",
    evaluate="eval_func",
    eval_loader="eval_dataloader",
    metric="quantizer.metric",
    train="q_func",
    dynamic="`approach: post_training_dynamic_quant`",
    again="use another workspace",
)
FUNCTION = Door(
    calib="calib",
    evaluate="evaluate",
    eval_loader="eval_loader",
    metric="metric",
    train="train",
    dynamic='approach="dynamic"',
    again="use new_run=True",
)
COMMAND = Door(
    calib="--calib",
    evaluate="--eval",
    eval_loader="`evaluation.accuracy.dataloader` in the yaml",
    metric="`evaluation.accuracy.metric` in the yaml",
    train="`quantization.train` in the yaml",
    dynamic="--approach dynamic",
    again="use --new-run",
)
