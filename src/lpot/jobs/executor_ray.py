"""Trials on a Ray cluster: model and statistics go out once, a lost worker's trial is repeated."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lpot.core.errors import ConfigError, LpotError
from lpot.core.recipe import Recipe
from lpot.core.trial import Trial
from lpot.core.tune import Attempt, Made, Numbered
from lpot.jobs.kit import unpack
from lpot.jobs.team import threading

logger = logging.getLogger(__name__)

RETRIES = 1  # of a trial whose worker was lost


class RayExecutor:
    """So many actors, each with the model loaded. History stays with the driver, which is us."""

    def __init__(
        self,
        kit: Callable[[], bytes],
        workers: int,
        address: str | None,
        stop: Callable[[str], None],
        begin: Callable[[int, Recipe], None] = lambda number, recipe: None,
    ) -> None:
        self._make_kit = kit
        self._count = workers
        self._address = address
        self._stop = stop
        self._begin = begin
        self._actors: list[Any] = []
        self._kit: Any = None
        self._owns = False  # we started Ray, and must end it
        self._ray = _import_ray()

    def __call__(self, attempt: Attempt, recipes: Iterable[Numbered]) -> Iterator[Made]:
        ray = self._ray
        waiting = iter(recipes)
        busy: dict[Any, tuple[Any, int, Recipe]] = {}
        idle = self._ready()
        while True:
            while idle and (order := next(waiting, None)) is not None:
                actor = idle.pop()
                self._begin(*order)
                busy[actor.attempt.remote(*order)] = (actor, *order)
            if not busy:
                return
            try:
                done, _ = ray.wait(list(busy), num_returns=1)
            except (ray.exceptions.RaySystemError, ConnectionError) as error:
                self._stop(f"the Ray cluster is gone ({error}); the same call goes on from here")
                return
            for reference in done:
                actor, number, recipe = busy.pop(reference)
                yield self._trial(reference, number, recipe), None
                idle.append(actor)

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []
        if self._owns:
            self._ray.shutdown()

    def _ready(self) -> list[Any]:
        """The actors, started when first needed."""
        ray = self._ray
        if not self._actors:
            if not ray.is_initialized():
                ray.init(address=self._address, log_to_driver=False, include_dashboard=False)
                self._owns = True
            self._kit = ray.put(self._make_kit())  # held, or a worker could not be started again
            kind = ray.remote(
                num_cpus=1,
                max_restarts=-1,
                max_task_retries=RETRIES,
                runtime_env={"env_vars": _environment()},
            )(_Bench)
            self._actors = [kind.remote(self._kit) for _ in range(self._count)]
            self._check()
        return list(self._actors)

    def _check(self) -> None:
        """A worker that can't load the model is no fault of a recipe."""
        try:
            self._ray.get([actor.ready.remote() for actor in self._actors])
        except self._ray.exceptions.RayError as error:
            said = str(error).strip().splitlines()[-1]
            raise LpotError(f"executor: ray: a worker can't work: {said}") from error

    def _trial(self, reference: Any, number: int, recipe: Recipe) -> Trial:
        try:
            trial = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return Trial.failed(number, recipe, error, 0.0)
        assert isinstance(trial, Trial)
        return trial


class _Bench:
    """One worker: the kit is opened once."""

    def __init__(self, kit: bytes) -> None:
        self.kit = unpack(kit)
        self.bench = self.kit.open()

    def ready(self) -> None:
        """Answered once the model is loaded."""

    def attempt(self, number: int, recipe: Recipe) -> Trial:
        return self.kit.attempt(self.bench, number, recipe)


def _environment() -> dict[str, str]:
    """Modules are found where the driver finds them, as far as these places exist elsewhere."""
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **threading(1, 1)}


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ConfigError(
            "needs the package 'ray', which can't be imported: pip install ray, or use process",
            path="tuning.executor.name",
        ) from None
    return ray
