"""What the user asked for, from whichever door it came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lpot.config.schema import Config
from lpot.core.backend import Backend
from lpot.core.door import SCRIPT, Door
from lpot.core.progress import Listener
from lpot.core.space import Rule
from lpot.core.strategy import Strategy
from lpot.jobs.many.pool import Pool


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
    pool: Pool = field(default_factory=Pool)  # what tunings of one model share
