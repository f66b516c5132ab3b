"""Trials on a Ray cluster: model and statistics go out once, a lost worker's trial is repeated.

Every worker is looked after by itself: one that has no room yet, loads, hangs or is lost does not
hold the others. History stays with the driver, which is us.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from lpot.core.errors import LpotError, first_line
from lpot.core.recipe import Recipe
from lpot.core.trial import Score, State, Trial
from lpot.core.tune import Attempt, Bench, Made, Numbered, guarded
from lpot.jobs.execute.dump import Shipment
from lpot.jobs.execute.kit import Kit
from lpot.jobs.execute.parcel import Parcel
from lpot.jobs.execute.processes import TrialEnded, over_memory, over_time
from lpot.jobs.execute.ray_cluster import Cluster, Demand
from lpot.jobs.execute.ray_desk import Orders, Room, Worker
from lpot.jobs.execute.ray_worker import BenchActor, Place, Sent, exceeds

logger = logging.getLogger(__name__)

POLL = 0.5  # seconds between two looks at the clock
RETRIES = 1  # of a trial whose worker was lost
MOST_LOSSES = 5  # of a trial, those with their whole node included
STARTS = 3  # workers in a row that died before they could work
START = 300.0  # seconds a worker may take to load the model
SOON = 3.0  # seconds without a place after which the user is told
SLOWER = 3.0  # times the longest trial so far: an idle worker then makes the trial, too


class ClusterGone(Exception):
    """The search can't go on. What was found is kept."""


class RayExecutor:
    """So many workers, each with the model loaded; `timeout` is of one trial, 0 is none."""

    def __init__(
        self,
        kit: Callable[[], Shipment],
        workers: int,
        address: str | None = None,
        demand: Demand | None = None,
        timeout: float = 0.0,
        model: Any = None,
    ) -> None:
        self.stop: Callable[[str], None] = lambda reason: None
        self.begin: Callable[[int, Recipe], None] = lambda number, recipe: None
        self.note: Callable[[str], None] = lambda text: None
        self._make_kit = kit
        self._count = workers
        self._demand = demand or Demand()
        self._timeout = timeout
        self.cluster = Cluster(address)
        self._ray = self.cluster.ray
        self._kit: Any = None
        self._model = model  # as it was given: a path's files are sent to nodes that lack them
        self._parcel: Parcel | None = None
        self._chunks: list[Any] = []
        self._workers: list[Worker] = []
        self._room = Room(self._demand.wait)
        self._deaths = 0  # of workers in a row that never worked
        self._longest = 0.0  # seconds of the longest trial so far
        self._gone = False

    def __call__(self, attempt: Attempt, recipes: Iterable[Numbered]) -> Iterator[Made]:
        waiting = iter(recipes)
        first = next(waiting, None)
        if first is None:
            return
        self._start()
        orders = Orders(chain([first], waiting), self.begin)
        try:
            while self._hand_out(orders):
                for trial in self._news(orders):
                    if orders.finish(trial.number):
                        yield trial, None
        except ClusterGone as error:
            self.stop(f"{error}; the best so far is kept: repeat the call to resume")
            self._gone = True

    def close(self) -> None:
        for worker in self._workers if not self._gone else ():
            self._end(worker)
        self._workers = []
        self._kit, self._chunks = None, []
        self.cluster.leave()

    # -- workers -----------------------------------------------------------------------------

    def join(self) -> None:
        """Done by the first trial, if not before."""
        self.cluster.join()

    def _start(self) -> None:
        if self._kit is not None:
            return
        self.join()
        made = self._make_kit()  # held there, or no worker could be started again
        buffers = [self._ray.put(chunk) for chunk in made.chunks()]
        self._kit = Sent(made.head, made.sizes, buffers)
        self._kind = self._ray.remote(**self._demand.options())(BenchActor)
        self._parcel = Parcel.of(self._model)
        self._room = Room(self._demand.wait)
        self._workers = [self._new_worker() for _ in range(self._count)]

    def _new_worker(self) -> Worker:
        actor = self._kind.remote()
        return Worker(actor, actor.where.remote(self._parcel))

    def _sent(self) -> list[Any]:
        """The model's files in the object store, put there when the first node lacks them."""
        if self._parcel is not None and not self._chunks:
            self._chunks = [self._ray.put(chunk) for chunk in self._parcel.chunks()]
        return self._chunks

    def _end(self, worker: Worker) -> None:
        self._ray.kill(worker.actor)
        if worker.watch is not None:
            self._ray.cancel(worker.watch, force=True)

    def _replace(self, worker: Worker) -> None:
        self._end(worker)
        self._workers[self._workers.index(worker)] = self._new_worker()

    def _watch(self, place: Place) -> Any:
        """A look at a worker's memory, from another process of the same node."""
        if not self._demand.memory:
            return None
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        task = self._ray.remote(exceeds).options(
            num_cpus=0,
            max_retries=0,
            runtime_env=self._demand.options()["runtime_env"],
            scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False),
        )
        return task.remote(place.pid, self._demand.memory)

    # -- trials ------------------------------------------------------------------------------

    def _hand_out(self, orders: Orders) -> bool:
        """A recipe for each idle worker. False once all that was taken is finished."""
        for worker in self._workers:
            if worker.is_idle and (order := orders.next() or self._slow_one(orders)) is not None:
                worker.give(order)
        return orders.are_open

    def _slow_one(self, orders: Orders) -> Numbered | None:
        """With nothing else to do: a trial that a slow node has had for long, once more."""
        now = time.monotonic()
        for worker in self._workers:
            late = worker.order is not None and now - worker.since > SLOWER * self._longest + POLL
            if late and self._longest and orders.may_repeat(worker.order):
                return worker.order
        return None

    def _news(self, orders: Orders) -> Iterator[Trial]:
        """What happened within a moment."""
        refs = {worker.ref: worker for worker in self._workers if worker.ref is not None}
        watches = {worker.watch: worker for worker in self._workers if worker.watch is not None}
        try:
            done, _ = self._ray.wait([*refs, *watches], num_returns=1, timeout=POLL)
        except (self._ray.exceptions.RayError, ConnectionError, ValueError) as error:
            raise ClusterGone("the Ray cluster is gone") from error
        for ref in done:
            if ref in refs:
                yield from self._answered(refs[ref], orders)
            else:
                yield from self._watched(watches[ref], orders)
        yield from self._overdue(orders)
        self._look_for_room(bool(done))

    def _answered(self, worker: Worker, orders: Orders) -> Iterator[Trial]:
        try:
            answer = self._ray.get(worker.ref)
        except self._ray.exceptions.RayTaskError as error:
            if worker.order is None:
                raise self._unusable(error) from error
            yield Trial.failed(*worker.take(), error.as_instanceof_cause(), worker.spent)
        except self._ray.exceptions.RuntimeEnvSetupError as error:
            raise self._unusable(error) from error
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            yield from self._lost(worker, orders, error)
        else:
            if isinstance(answer, Trial):
                worker.take()
                self._longest = max(self._longest, worker.spent)
                yield answer
            elif isinstance(answer, Place):
                self._room.found()
                chunks = [] if answer.has_files else self._sent()
                loading = worker.actor.open.remote(self._kit, self._parcel, chunks)
                worker.placed(answer, loading, self._watch(answer))
            else:
                self._deaths = 0
                worker.ref = None  # the model is loaded

    def _lost(self, worker: Worker, orders: Orders, error: Exception) -> Iterator[Trial]:
        if not self.cluster.is_there():
            raise ClusterGone("the Ray cluster is gone") from error
        self._replace(worker)
        if worker.order is None:
            self._deaths += 1
            if self._deaths > STARTS + self._count:
                raise self._unusable(error) from error
            return
        if not orders.is_wanted(worker.order):
            return
        losses = orders.lose(worker.order)
        is_fault = losses > RETRIES and not self._went_with_node(worker)
        if is_fault or losses > MOST_LOSSES:
            # A recipe that kills its worker is a failed trial; others go on.
            said = first_line(error)
            ended = TrialEnded(f"its worker was lost {losses} times: {said}")
            yield Trial.failed(*worker.order, ended, worker.spent)
        else:
            orders.again.append(worker.order)

    def _went_with_node(self, worker: Worker) -> bool:
        """A node that goes takes its workers with it: no recipe is to blame."""
        assert worker.place is not None
        end = time.monotonic() + SOON
        while time.monotonic() < end:
            if self.cluster.has_lost(worker.place.node):
                return True
            time.sleep(POLL)
        return False

    def _watched(self, worker: Worker, orders: Orders) -> Iterator[Trial]:
        try:
            used = self._ray.get(worker.watch)
        except (self._ray.exceptions.RayError, ConnectionError):
            used = 0
        worker.watch = None  # gone with the worker, unless that used too much
        if used:
            yield from self._ended(worker, over_memory(used, self._demand.memory), orders)

    def _overdue(self, orders: Orders) -> Iterator[Trial]:
        for worker in list(self._workers):
            if worker.is_loading and worker.spent > START:
                raise self._unusable(LpotError(f"it was not ready within {START:g} s"))
            if worker.order is not None and 0 < self._timeout < worker.spent:
                yield from self._ended(worker, over_time(self._timeout), orders)

    def _ended(self, worker: Worker, cause: TrialEnded, orders: Orders) -> Iterator[Trial]:
        self._replace(worker)
        if worker.order is None:
            raise self._unusable(cause)
        if orders.is_wanted(worker.order):
            yield Trial.failed(*worker.order, cause, worker.spent)

    def _look_for_room(self, heard: bool) -> None:
        """Tell what is waited for; give up in time."""
        if self._room.is_silent(heard) and not self.cluster.is_there():
            raise ClusterGone("the Ray cluster is gone")
        outside = sum(worker.place is None for worker in self._workers)
        waits = (
            f"{outside} of {self._count} worker(s), each with {self._demand}, are waiting for "
            "room in "
        )
        if outside and self._room.is_due(SOON):
            self.note(f"{waits}the Ray cluster, which has {self.cluster.inventory()}")
        if outside < self._count:
            self._room.found()
        elif self._room.is_over(0.0) and self._room.is_over(self._busy_patience()):
            raise self._no_room()

    def _busy_patience(self) -> float:
        """A node that is there may be busy, or slow to start processes: that takes longer."""
        return START if self.cluster.could_place(self._demand) else 0.0

    def _no_room(self) -> Exception:
        told = (
            f"no room for a worker with {self._demand}: the Ray cluster has "
            f"{self.cluster.inventory()}; ask for less, or set `tuning.executor.ray.wait` where "
            "nodes start on demand"
        )
        if self._room.was_found:
            return ClusterGone(told)
        return LpotError(f"executor: ray: {told}")

    def _unusable(self, error: Exception) -> LpotError:
        said = str(error).strip().splitlines()[-1]
        return LpotError(f"executor: ray: a worker failed: {said}")


# -- Accuracy is evaluated anywhere on a cluster; times are measured on nodes of the target CPU.
#
# One worker has such a node to itself and does nothing but build and time models; those that
# evaluate accuracy keep away from these nodes.


class TimingKit(Kit):
    """A kit whose attempts are timed and not evaluated."""

    def attempt(self, bench: Bench, number: int, recipe: Recipe) -> Trial:
        made = guarded(lambda: self._timed(bench, recipe))
        if isinstance(made, Exception):
            return Trial.failed(number, recipe, made, 0.0)
        return Trial(number, recipe, State.DONE, made, met=False)

    def _timed(self, bench: Bench, recipe: Recipe) -> Score:
        model = bench.backend.build(bench.model, recipe, bench.observe(recipe.samples))
        score = bench.measure(model, Score(0.0))
        model.close()
        return score


class TimedExecutor:
    """What the workers find, with the times that the timer measures."""

    def __init__(self, workers: RayExecutor, timer: RayExecutor, has_budget: bool) -> None:
        self._workers = workers
        self._timer = timer
        self._has_budget = has_budget
        self.note: Callable[[str], None] = lambda text: None

    def __call__(self, attempt: Attempt, recipes: Iterable[Numbered]) -> Iterator[Made]:
        for trial, model in self._workers(attempt, recipes):
            yield self._timed(trial, attempt), model

    def close(self) -> None:
        self._timer.close()
        self._workers.close()

    def _timed(self, trial: Trial, attempt: Attempt) -> Trial:
        """As `attempt` in core/tune.py has it: those that meet the bar, or all that may be best."""
        score = trial.score
        wanted = trial.met or self._has_budget
        if score is None or score.raced_out or not wanted:
            return trial
        for timed, _ in self._timer(attempt, [(trial.number, trial.recipe)]):
            if timed.score is not None and timed.score.latency is not None:
                return replace(trial, score=replace(score, latency=timed.score.latency))
            self.note(f"trial {trial.number} could not be timed: {timed.error or 'no time'}")
        return trial


def timer_demand(cluster: Cluster, demand: Demand, labels: Mapping[str, str]) -> Demand:
    """A whole node of that kind; what it has is known once there is one."""
    return replace(demand, labels=dict(labels), num_cpus=cluster.cpus_of(labels), memory=0)


def elsewhere(demand: Demand, labels: Mapping[str, str]) -> Demand:
    """The demand of workers that keep away from nodes with these labels."""
    away = {name: f"!{value}" for name, value in labels.items()}
    return replace(demand, labels={**away, **demand.labels})
