"""What a benchmark is told and what it found: plain values, for tables, JSON and reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from lpot.core.batch import InputSpec
from lpot.core.cpu import Cpu
from lpot.core.errors import ConfigError
from lpot.core.measure import ROUNDS, Comparison, Timing, rounds_needed
from lpot.core.results.profile import Profile


@dataclass(frozen=True)
class Settings:
    """How to measure. `iteration` counts the timed runs of one model over all rounds."""

    warmup: int = 5
    iteration: int | None = None  # None: as many as `seconds` have room for
    minimum: int = 1  # timed runs at least, however long they take
    rounds: int = ROUNDS
    seconds: float = 3.0  # timed seconds of one model over all rounds
    threads: int | None = None  # of one operator; None: an instance's cores
    inter: int = 1  # operators side by side
    instances: int = 1
    cores_per_instance: int | None = None  # None: not pinned when alone, an even share otherwise
    timeout: float = 600.0  # seconds for one step of a child
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"warmup": 0, "rounds": 1, "inter": 1, "instances": 1, "minimum": 1}
        least |= {"iteration": 1, "threads": 1, "cores_per_instance": 1}
        for name, given in vars(self).items():
            if given is not None and given < least.get(name, given):
                raise ConfigError(f"given {given}, expected at least {least[name]}", name)
            if name in ("seconds", "timeout") and not given > 0:
                raise ConfigError(f"given {given}, expected more than 0", name)

    def check(self, cpu: Cpu, models: int) -> None:
        """Refuse what this machine, or this number of models, can't have."""
        wanted = self.instances * (self.cores_per_instance or 1)
        if wanted > cpu.cores:
            raise ConfigError(
                f"{self.instances} instance(s) of {self.cores_per_instance or 1} core(s) need "
                f"{wanted} cores, but this process may use {cpu.cores}",
                "instances",
            )
        needed = rounds_needed()
        if models > 1 and self.turns < needed:
            rounds = self.rounds < needed
            raise ConfigError(
                f"given {self.rounds if rounds else self.iteration}, but comparing models takes at "
                f"least {needed}",
                "rounds" if rounds else "iteration",
            )

    @property
    def turns(self) -> int:
        """Rounds really taken: none may be without a timed run."""
        return self.rounds if self.iteration is None else min(self.rounds, self.iteration)

    def share(self, cpu: Cpu) -> int:
        """Cores of one instance."""
        return self.cores_per_instance or max(1, cpu.cores // self.instances)

    def laid_out(self, layout: Layout, cpu: Cpu) -> Settings:
        """The same with this many instances of this many cores."""
        settings = replace(self, instances=layout.instances, cores_per_instance=layout.cores)
        settings.check(cpu, 1)
        return settings


@dataclass(frozen=True)
class Layout:
    """How the cores are shared out: so many instances of so many cores.

    >>> Layout.parse("2x1"), str(Layout(1, 2))
    (Layout(instances=2, cores=1), '1x2')
    """

    instances: int
    cores: int

    @classmethod
    def parse(cls, text: str) -> Layout:
        found = re.fullmatch(r"\s*([1-9]\d*)\s*[x×*]\s*([1-9]\d*)\s*", text)
        if found is None:
            raise ConfigError(
                f"given {text!r}, expected INSTANCESxCORES, e.g. 2x1 for two instances of one core "
                "each",
                "layouts",
            )
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.instances}x{self.cores}"


@dataclass(frozen=True)
class Instance:
    """One of several processes of a model. With an `error` it fell, and there is no timing."""

    number: int
    cores: tuple[int, ...] = ()  # it is pinned to; empty: not pinned
    timing: Timing | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        timing = None if self.timing is None else self.timing.to_json()
        return {**vars(self), "cores": list(self.cores), "timing": timing}


@dataclass(frozen=True)
class Measured:
    """One model's figures. With an `error` there is no timing."""

    label: str
    framework: str = ""
    timing: Timing | None = None
    instances: int = 1
    load_seconds: float = 0.0  # from nothing to the first answer
    peak_memory: int = 0  # bytes, of all instances together
    size: int = 0  # bytes on disk
    versions: Mapping[str, str] = field(default_factory=dict)
    comparison: Comparison | None = None  # against the baseline; None for itself and for the fallen
    error: str | None = None
    parts: tuple[Instance, ...] = ()  # the instances, where there are several

    @property
    def throughput(self) -> float:
        """Samples a second, of all instances that stand together."""
        standing = [part.timing.throughput for part in self.parts if part.timing is not None]
        if standing:
            return sum(standing)
        return 0.0 if self.timing is None else self.timing.throughput

    @property
    def speed(self) -> float:
        """Times the baseline's, by the rounds taken in turns; 0 for the fallen."""
        if self.timing is None:
            return 0.0
        return 1.0 if self.comparison is None else self.comparison.ratio

    @property
    def fallen(self) -> tuple[Instance, ...]:
        """The instances that did not live to the end."""
        return tuple(part for part in self.parts if part.error is not None)

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "versions": dict(self.versions),
            "parts": [part.to_json() for part in self.parts],
            "timing": None if self.timing is None else self.timing.to_json(),
            "comparison": None if self.comparison is None else self.comparison.to_json(),
            "throughput": self.throughput,
        }

    def row(self) -> dict[str, str]:
        """Ready for a table; the same keys for every model."""
        row = dict.fromkeys(COLUMNS, "")
        row["model"] = self.label
        if self.timing is None:
            return {**row, "verdict": f"failed: {self.error}"}
        timing = self.timing
        row["median ms"] = f"{timing.median * 1e3:.3g} ± {timing.spread / 2 * 1e3:.2g}"
        row["p90 ms"] = f"{timing.percentile(90) * 1e3:.3g}"
        row["p99 ms"] = f"{timing.percentile(99) * 1e3:.3g}"
        row["samples/s"] = f"{self.throughput:.4g}"
        row["load s"] = f"{self.load_seconds:.2g}"
        row["memory MB"] = f"{self.peak_memory / 1e6:.0f}" if self.peak_memory else "?"
        row["size MB"] = f"{self.size / 1e6:.3g}" if self.size else ""
        row["instances"] = _standing(self) if len(self.parts) > 1 else ""
        if self.comparison is None:
            return {**row, "times faster": "1", "verdict": "baseline"}
        found = self.comparison
        row["times faster"] = f"{found.ratio:.2f} [{found.low:.2f}, {found.high:.2f}]"
        row["times faster"] += " by CPU time" if found.busy else ""
        return {**row, "verdict": found.verdict}


COLUMNS = (
    "model",
    "median ms",
    "p90 ms",
    "p99 ms",
    "samples/s",
    "times faster",
    "verdict",
    "load s",
    "memory MB",
    "size MB",
    "instances",
)


def _standing(measured: Measured) -> str:
    count, fallen = len(measured.parts), measured.fallen
    if not fallen:
        return str(count)
    causes = "; ".join(f"#{part.number}: {part.error}" for part in fallen)
    return f"{count - len(fallen)} of {count} ({causes})"


@dataclass(frozen=True)
class BenchmarkResult:
    """All models, the first one measured being the baseline of the others."""

    models: tuple[Measured, ...]
    inputs: tuple[InputSpec, ...]
    batch_size: int
    settings: Settings
    cpu: Cpu
    notes: tuple[str, ...] = ()
    profile: Profile | None = None  # of the first model against the second, by op

    @property
    def ok(self) -> bool:
        """Was every model measured, and every instance of it?"""
        return all(model.error is None and not model.fallen for model in self.models)

    @property
    def baseline(self) -> Measured:
        return next(model for model in self.models if model.error is None)

    @property
    def fastest(self) -> Measured:
        return max(self.models, key=lambda model: model.speed)

    def rows(self) -> list[dict[str, str]]:
        return [model.row() for model in self.models]

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "baseline": self.baseline.label,
            "models": [model.to_json() for model in self.models],
            "inputs": [spec.to_json() for spec in self.inputs],
            "batch_size": self.batch_size,
            "settings": asdict(self.settings),
            "cpu": self.cpu.to_json(),
            "notes": list(self.notes),
            "profile": None if self.profile is None else self.profile.to_json(),
        }
