"""Trials on a Ray cluster: model and statistics go out once, a lost worker's trial is repeated."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lpot.core.errors import ConfigError, LpotError
from lpot.core.recipe import Recipe
from lpot.core.trial import Trial
from lpot.core.tune import Attempt, Made, Numbered
from lpot.jobs.benchmark.team import threading
from lpot.jobs.execute.kit import unpack

logger = logging.getLogger(__name__)

RETRIES = 1  # of a trial whose worker was lost
PATIENCE = 5.0  # seconds without news, after which the cluster is asked whether it is there
TRIES = 3


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
        self._head = ""  # host and port of the cluster's head
        self._gone = False
        self._ray = _import_ray()

    def __call__(self, attempt: Attempt, recipes: Iterable[Numbered]) -> Iterator[Made]:
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
            done = self._done(list(busy))
            if done is None:
                self._leave()
                return
            for reference in done:
                actor, number, recipe = busy.pop(reference)
                trial = self._trial(reference, number, recipe)
                if trial is None:
                    self._leave()
                    return
                yield trial, None
                idle.append(actor)

    def _done(self, references: list[Any]) -> list[Any] | None:
        """Those that are over; None once the cluster is gone."""
        while True:
            try:
                done, _ = self._ray.wait(references, num_returns=1, timeout=PATIENCE)
            except (self._ray.exceptions.RayError, ConnectionError, ValueError):
                return None
            if done:
                return list(done)
            if not self._answers():
                return None

    def _answers(self) -> bool:
        """Does the head of the cluster still take calls? Ray itself may ask for minutes."""
        host, _, port = self._head.rpartition(":")
        for _ in range(TRIES):
            with contextlib.suppress(OSError):
                socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
                return True
            time.sleep(1.0)
        return False

    def _leave(self) -> None:
        self._stop("the Ray cluster is gone; the best so far is kept, and the same call goes on")
        self._gone = True

    def close(self) -> None:
        for actor in self._actors if not self._gone else ():
            self._ray.kill(actor)
        self._actors = []
        self._kit = None
        if self._owns:
            self._ray.shutdown()

    def _ready(self) -> list[Any]:
        """The actors, started when first needed."""
        ray = self._ray
        if not self._actors:
            if not ray.is_initialized():
                self._join()
            self._head = ray.get_runtime_context().gcs_address
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

    def _join(self) -> None:
        """The cluster that is named, or one of our own: never one that somebody left behind."""
        address = self._address or os.environ.get("RAY_ADDRESS") or "local"
        more = {"include_dashboard": False} if address == "local" else {}
        try:
            self._ray.init(address=address, log_to_driver=False, **more)
        except (ConnectionError, ValueError, RuntimeError) as error:
            said = str(error).strip().splitlines()[0]
            raise LpotError(f"executor: ray: no cluster at {address!r}: {said}") from error
        self._owns = True

    def _check(self) -> None:
        """A worker that can't load the model is no fault of a recipe."""
        try:
            self._ray.get([actor.ready.remote() for actor in self._actors])
        except self._ray.exceptions.RayError as error:
            said = str(error).strip().splitlines()[-1]
            raise LpotError(f"executor: ray: a worker can't work: {said}") from error

    def _trial(self, reference: Any, number: int, recipe: Recipe) -> Trial | None:
        """What came of a task; None if nothing did because the cluster is gone."""
        try:
            trial = self._ray.get(reference)
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            # A recipe that kills its worker is a failed trial, as long as there are others left.
            return Trial.failed(number, recipe, error, 0.0) if self._answers() else None
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
