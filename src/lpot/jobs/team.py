"""One contestant of a benchmark as its parent sees it: awake for its turn, halted between turns."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lpot.core.batch import InputSpec
from lpot.core.benchmark import Settings
from lpot.core.cpu import Cpu, usable_cores
from lpot.jobs.child import Child, ChildFailed
from lpot.jobs.contestant import Contestant

logger = logging.getLogger(__name__)


class Team:
    """The processes of one contestant, one for each instance. Only one team is awake at a time."""

    def __init__(
        self,
        contestant: Contestant,
        settings: Settings,
        cpu: Cpu,
        log: Path,
        environment: Mapping[str, str],
    ) -> None:
        self.contestant = contestant
        self.inputs: tuple[InputSpec, ...] = ()
        self.facts: dict[str, Any] = {}
        self.rounds: list[list[float]] = []
        self.error: str | None = None
        self._timeout = settings.timeout
        self._share = settings.share(cpu)
        self._pinned = settings.instances > 1 or settings.cores_per_instance is not None
        self.instances = settings.instances
        self._log = log
        self._environment = {
            **threading(settings.threads or self._share, settings.inter),
            **environment,
        }
        self._children: list[Child] = []

    def load(self) -> None:
        """Start the processes, let them load, halt them."""
        cores = usable_cores()
        for index in range(self.instances):
            mine = cores[index * self._share : (index + 1) * self._share] if self._pinned else ()
            log = self._log.with_suffix(f".{index}.log")
            self._children.append(Child(self._environment, log, mine))
        contestant = self.contestant.to_json()
        answers = self._ask({"do": "load", "contestant": contestant})
        if answers:
            self.facts = answers[0]
            self.facts["seconds"] = max(answer["seconds"] for answer in answers)
            self.inputs = tuple(InputSpec.from_json(raw) for raw in answers[0]["inputs"])

    def prepare(self, order: Mapping[str, Any], settings: Settings) -> None:
        """Hand over the inputs and warm up."""
        for answer in self._ask(order)[:1]:
            self.facts["seconds"] += answer["seconds"]
        self._ask({"do": "run", "warmup": settings.warmup, "iteration": 1, "seconds": 0})

    def run(self, settings: Settings) -> None:
        """One turn: awake, one run to warm up again, the timed runs, halted."""
        limit = settings.iteration
        done = len(self.rounds)
        iteration = None if limit is None else _part(limit, done, settings.turns)
        seconds = settings.seconds / settings.turns
        answers = self._ask({"do": "run", "warmup": 1, "iteration": iteration, "seconds": seconds})
        if answers:
            self.rounds.append([sample for answer in answers for sample in answer["samples"]])
            self.facts["peak_memory"] = sum(answer["peak_memory"] for answer in answers)

    def end(self) -> None:
        for child in self._children:
            child.end()

    def _ask(self, order: Mapping[str, Any]) -> list[dict[str, Any]]:
        """All instances at once; nothing once the team has fallen."""
        if self.error is not None:
            return []
        try:
            for child in self._children:
                child.wake()
                child.tell(order)
            answers = [child.hear(self._timeout) for child in self._children]
        except ChildFailed as failure:
            self.error = str(failure)
            logger.warning("%s: %s", self.contestant.label, failure)
            self.end()
            return []
        for child in self._children:
            child.halt()
        return answers


def threading(threads: int, inter: int) -> dict[str, str]:
    """Environment that fixes the number of threads of every framework we know."""
    intra = (
        "LPOT_THREADS",
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "TF_NUM_INTRAOP_THREADS",
    )
    return {
        **dict.fromkeys(intra, str(threads)),
        **dict.fromkeys(("LPOT_INTER_THREADS", "TF_NUM_INTEROP_THREADS"), str(inter)),
    }


def _part(total: int, index: int, parts: int) -> int:
    """The share of part `index` when a total is cut as evenly as can be."""
    return total // parts + (index < total % parts)
