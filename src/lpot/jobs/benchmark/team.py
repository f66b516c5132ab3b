"""One contestant of a benchmark as its parent sees it: awake for its turn, halted between turns."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.batch import InputSpec
from lpot.core.cpu import Cpu, usable_cores
from lpot.core.load import UNKNOWN, Load
from lpot.core.measure import Timing
from lpot.core.results.benchmark import Instance, Settings
from lpot.jobs.benchmark.child import Child, ChildFailed
from lpot.jobs.benchmark.contestant import Contestant

logger = logging.getLogger(__name__)


class Team:
    """The processes of one contestant, one for each instance. Only one team is awake at a time.

    An instance that falls leaves the others running; the team has fallen when none is left.
    """

    def __init__(
        self,
        contestant: Contestant,
        settings: Settings,
        cpu: Cpu,
        log: Path,
        environment: Mapping[str, str],
    ) -> None:
        self.contestant = contestant
        self.settings = settings
        self.inputs: tuple[InputSpec, ...] | None = None  # None: the framework can't tell
        self.facts: dict[str, Any] = {}
        self.instances = settings.instances
        self._share = settings.share(cpu)
        self._pinned = settings.instances > 1 or settings.cores_per_instance is not None
        self._log = log
        self._environment = {
            **threading(settings.threads or self._share, settings.inter),
            **environment,
        }
        self._children: dict[int, Child] = {}  # by number, those that stand
        self._errors: dict[int, str] = {}
        self._samples: dict[int, list[tuple[float, ...]]] = {}  # by number, one entry a round
        self._loads: dict[int, list[Load]] = {}  # the same of what others took
        self._turns = 0
        self._fed: Mapping[str, Any] = {}  # the order that handed over the inputs
        self._resting = False
        self.first_seconds = 0.0  # of one run, once it is warm

    @property
    def error(self) -> str | None:
        """Why the team has fallen; None while one of its instances stands."""
        if not self._errors or len(self._errors) < self.instances:
            return None
        return self._errors[min(self._errors)]

    @property
    def rounds(self) -> list[list[float]]:
        """The timed runs of the instances that stand, by round."""
        standing = [self._samples[number] for number in sorted(self._children)]
        turns = zip(*standing, strict=True)
        return [[sample for part in turn for sample in part] for turn in turns]

    @property
    def paces(self) -> list[list[float]]:
        """Seconds a batch of each round, all instances together: what throughput is judged by."""
        standing = [self._samples[number] for number in self._children]
        turns = zip(*standing, strict=True)
        return [[1 / sum(1 / max(float(np.median(p)), 1e-12) for p in turn)] for turn in turns]

    @property
    def outputs(self) -> Path:
        """Where the outputs of the first run lie, when they are kept."""
        return self._log.with_suffix(".outputs.npz")

    def load(self) -> None:
        """Start the processes, let them load, halt them."""
        self._samples = {number: [] for number in range(self.instances)}
        self._loads = {number: [] for number in range(self.instances)}
        answers = self._start(self._samples)
        if answers:
            first = next(iter(answers.values()))
            self.facts = {**first, "peak_memory": 0}
            self.facts["seconds"] = max(answer["seconds"] for answer in answers.values())
            if first["inputs"] is not None:
                self.inputs = tuple(InputSpec.from_json(raw) for raw in first["inputs"])

    def prepare(self, order: Mapping[str, Any], keep_outputs: bool = False) -> None:
        """Hand over the inputs and warm up. The first run's outputs are written where asked for."""
        more: dict[str, Any] = {"outputs": str(self.outputs)} if keep_outputs else {}
        if order["by_place"] and self.inputs is not None:
            more["names"] = [spec.name for spec in self.inputs]
        self._fed = {**order, **more}
        for answer in list(self.ask(self._fed).values())[:1]:
            self.facts["seconds"] += answer["seconds"]
        answers = self._warm_up()
        for answer in answers.values():
            self.first_seconds = float(answer["samples"][0])
        self._note_memory(answers)

    def rest(self) -> None:
        """Leave the memory to others: the next order starts the processes again."""
        self._resting = self.error is None
        self.end()

    @property
    def loads(self) -> tuple[Load, ...]:
        """What the instances that stand had of the machine, by round."""
        standing = [self._loads[number] for number in self._children]
        return tuple(Load.together(parts) for parts in zip(*standing, strict=True))

    def timing(self, batch_size: int) -> Timing:
        """All rounds of the instances that stand."""
        rounds, paces = tuple(map(tuple, self.rounds)), tuple(map(tuple, self.paces))
        return Timing(rounds, batch_size, self.loads, paces)

    def settle(self, at: int, better: bool) -> None:
        """The latest round takes the place of another one, or is dropped."""
        for number in self._children:
            samples, loads = self._samples[number], self._loads[number]
            latest = samples.pop(), loads.pop()
            if better:
                samples[at], loads[at] = latest

    def run(self) -> Load:
        """One turn: awake, one run to warm up again, the timed runs, halted."""
        settings, done = self.settings, self._turns
        limit = settings.iteration
        iteration = None if limit is None else _part(limit, done, settings.turns)
        order = {
            "do": "run",
            "warmup": 1,
            "iteration": iteration,
            "seconds": settings.seconds / settings.turns,
            "minimum": max(1, _part(settings.minimum, done, settings.turns)),
        }
        answers = self.ask(order)
        self._turns += 1
        for number, answer in answers.items():
            self._samples[number].append(tuple(answer["samples"]))
            self._loads[number].append(
                UNKNOWN if answer["load"] is None else Load(**answer["load"])
            )
        self._note_memory(answers)
        return self.loads[-1] if self._children else UNKNOWN

    def parts(self, batch_size: int) -> tuple[Instance, ...]:
        """What became of each instance; empty when there is but one."""
        if self.instances == 1:
            return ()
        found = []
        for number in range(self.instances):
            error = self._errors.get(number)
            rounds = tuple(self._samples[number])
            loads = tuple(self._loads[number])
            timing = None if error is not None else Timing(rounds, batch_size, loads)
            found.append(Instance(number, self._cores(number), timing, error))
        return tuple(found)

    def end(self) -> None:
        for child in self._children.values():
            child.end()

    def ask(self, order: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        """All instances at once; answers by number, none from those that have fallen."""
        if self._resting:
            self._return()
        told = {}
        for number, child in list(self._children.items()):
            try:
                child.wake()
                child.tell(order)
                told[number] = child
            except ChildFailed as failure:
                self._drop(number, failure)
        answers = {}
        for number, child in told.items():
            try:
                answers[number] = child.hear(self.settings.timeout)
            except ChildFailed as failure:
                self._drop(number, failure)
        for child in self._children.values():
            child.halt()
        return answers

    def _return(self) -> None:
        """From rest to where the team stood."""
        self._resting = False
        self._start(list(self._children))
        if self._fed:
            self.ask(self._fed)
            self._warm_up()

    def _start(self, numbers: Iterable[int]) -> dict[int, dict[str, Any]]:
        for number in numbers:
            log = self._log.with_suffix(f".{number}.log")
            self._children[number] = Child(self._environment, log, self._cores(number))
        return self.ask({"do": "load", "contestant": self.contestant.to_json()})

    def _warm_up(self) -> dict[int, dict[str, Any]]:
        return self.ask({"do": "run", "warmup": self.settings.warmup, "iteration": 1, "seconds": 0})

    def _note_memory(self, answers: Mapping[int, Mapping[str, Any]]) -> None:
        peak = sum(answer["peak_memory"] for answer in answers.values())
        self.facts["peak_memory"] = max(self.facts["peak_memory"], peak)

    def _drop(self, number: int, failure: ChildFailed) -> None:
        self._errors[number] = str(failure)
        which = f" (instance {number})" if self.instances > 1 else ""
        logger.warning("%s%s: %s", self.contestant.label, which, failure)
        self._children.pop(number).end()

    def _cores(self, number: int) -> tuple[int, ...]:
        if not self._pinned:
            return ()
        return usable_cores()[number * self._share : (number + 1) * self._share]


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
