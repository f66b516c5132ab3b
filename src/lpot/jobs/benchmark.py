"""Measure models against each other, each in a process of its own, in turns."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.batch import InputSpec
from lpot.core.benchmark import BenchmarkResult, Measured, Settings
from lpot.core.cpu import Cpu, probe
from lpot.core.errors import ConfigError, EvaluationError
from lpot.core.feed import Shapes, check, settle, synthetic, unite
from lpot.core.measure import Timing, compare, turns
from lpot.core.model import Model
from lpot.jobs.child import CAN_HALT
from lpot.jobs.contestant import Contestant
from lpot.jobs.team import Team

Source = str | Path | Model | Contestant
Feeds = Mapping[str, Any] | Sequence[Mapping[str, Any]]

_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
NOISY = 0.25  # rounds whose medians spread by more than this part of the median


def benchmark(
    models: Sequence[Source],
    *,
    feeds: Feeds | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch_size: int | None = None,
    settings: Settings = Settings(),  # noqa: B008 - a frozen value
    environment: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> BenchmarkResult:
    """Time one model, or several against the first.

    Args:
        models: paths, model handles, `pkg.mod:factory`, or `Contestant`s.
        feeds: a batch by input name, or several to be used in turn; made up when not given.
        shapes: sizes by input name, for dimensions the models leave open.
        batch_size: size of an open first dimension.
        settings: warm-up, rounds, threads, instances.
        environment: further variables for the children.
        progress: told (turns done, turns in all) after each.

    A model that fails does not stop the others: it is in the result with its `error`.
    """
    if not models:
        raise ConfigError("no model was given: expected at least one", "models")
    cpu = probe()
    settings.check(cpu, len(models))
    with tempfile.TemporaryDirectory(prefix="lpot-benchmark-") as name:
        folder = Path(name)
        teams = [
            Team(contestant, settings, cpu, folder / str(index), environment or {})
            for index, contestant in enumerate(_contestants(models, folder))
        ]
        try:
            for team in teams:
                team.load()
            united = unite({team.contestant.label: team.inputs for team in _standing(teams)})
            batches, settled = _batches(united, feeds, shapes, batch_size, settings.seed)
            order = _store(batches, folder)
            for team in _standing(teams):
                team.prepare(order, settings)
            _take_turns(_standing(teams), settings, progress)
            notes = (*settled.notes, *_notes(_standing(teams), settings, cpu))
        finally:
            for team in teams:
                team.end()
    found = _measured(teams, settled.batch_size)
    return BenchmarkResult(found, settled.inputs, settled.batch_size, settings, cpu, notes)


def _take_turns(
    teams: Sequence[Team], settings: Settings, progress: Callable[[int, int], None] | None
) -> None:
    for done, index in enumerate(turns(len(teams), settings.turns), 1):
        teams[index].run(settings)
        if progress is not None:
            progress(done, len(teams) * settings.turns)


def _contestants(models: Sequence[Source], folder: Path) -> list[Contestant]:
    """Everything as a contestant with a label of its own: the file's name where that is enough."""
    found = [_contestant(model, folder / f"model{index}") for index, model in enumerate(models)]
    names = [Path(one.source).name for one in {one.source: one for one in found}.values()]
    made: list[Contestant] = []
    for one in found:
        name = Path(one.source).name
        label = one.label or (name if names.count(name) == 1 else one.source)
        taken = {other.label for other in made}
        fresh = (f"{label} #{number}" if number > 1 else label for number in count(1))
        made.append(replace(one, label=next(word for word in fresh if word not in taken)))
    return made


def _contestant(model: Source, folder: Path) -> Contestant:
    if isinstance(model, Contestant):
        return model
    if isinstance(model, Model):
        folder.mkdir()
        label = "FP32" if model.recipe is None else "tuned"
        return Contestant(str(model.save(folder)), label=label, framework=model.framework)
    if Path(model).exists():
        return Contestant(str(model))
    if _FACTORY.fullmatch(str(model)):
        return Contestant(str(model), "callable")
    raise ConfigError(
        f"{str(model)!r} is neither a file or folder that exists nor pkg.mod:factory", "models"
    )


def _batches(
    united: Sequence[InputSpec],
    feeds: Feeds | None,
    shapes: Mapping[str, Sequence[int]] | None,
    batch_size: int | None,
    seed: int,
) -> tuple[list[dict[str, np.ndarray]], Shapes]:
    if feeds is None:
        settled = settle(united, shapes, batch_size)
        return [synthetic(settled.inputs, seed)], settled
    given = [feeds] if isinstance(feeds, Mapping) else list(feeds)
    if not given:
        raise ConfigError("no batch was given: expected at least one, or None", "feeds")
    batches = [check(united, batch) for batch in given]
    inputs = tuple(replace(spec, shape=batches[0][spec.name].shape) for spec in united)
    return batches, Shapes(inputs)


def _store(batches: Sequence[Mapping[str, np.ndarray]], folder: Path) -> dict[str, Any]:
    """Write the batches for the children; the order that tells them where."""
    paths = []
    for index, batch in enumerate(batches):
        path = folder / f"{index}.npz"
        np.savez(path, *batch.values())
        paths.append(str(path))
    return {"do": "feed", "names": list(batches[0]), "paths": paths}


def _standing(teams: Sequence[Team]) -> list[Team]:
    """The teams that have not fallen; none at all is an error."""
    standing = [team for team in teams if team.error is None]
    if not standing:
        causes = "; ".join(f"{team.contestant.label}: {team.error}" for team in teams)
        raise EvaluationError(f"no model could be measured: {causes}")
    return standing


def _measured(teams: Sequence[Team], batch_size: int) -> tuple[Measured, ...]:
    first = _standing(teams)[0]
    found = []
    for team in teams:
        one = Measured(team.contestant.label, error=team.error)
        if team.error is None:
            rounds = tuple(tuple(turn) for turn in team.rounds)
            one = replace(
                one,
                framework=team.facts["framework"],
                timing=Timing(rounds, batch_size),
                instances=team.instances,
                load_seconds=team.facts["seconds"],
                peak_memory=team.facts["peak_memory"],
                size=team.facts["size"],
                versions=team.facts["versions"],
                comparison=None if team is first else compare(first.rounds, team.rounds),
            )
        found.append(one)
    return tuple(found)


def _notes(teams: Sequence[Team], settings: Settings, cpu: Cpu) -> list[str]:
    notes = list(cpu.notes)
    if not CAN_HALT and len(teams) > 1:
        notes.append("idle models can't be halted on this system: their threads may disturb")
    threads = (settings.threads or settings.share(cpu)) * settings.instances
    if threads > cpu.cores:
        notes.append(f"{threads} threads share {cpu.cores} core(s): they wait for each other")
    for team in teams:
        medians = [np.median(turn) for turn in team.rounds]
        quarters = np.percentile(medians, [25, 50, 75])
        if quarters[2] - quarters[0] > NOISY * quarters[1]:
            notes.append(f"{team.contestant.label}: rounds differ a lot, the machine was busy")
    return notes
