"""The executor that the configuration names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from lpot.core.files.history import History
from lpot.core.tune import Executor, serial
from lpot.jobs.execute.dump import Shipment
from lpot.jobs.execute.kit import Kit, pack
from lpot.jobs.execute.processes import Processes
from lpot.jobs.execute.ray import RayExecutor, TimedExecutor, TimingKit, elsewhere, timer_demand
from lpot.jobs.execute.ray_cluster import Demand

if TYPE_CHECKING:
    from lpot.jobs.tune.job import Job

MakeKit = Callable[[], Shipment]


@contextlib.contextmanager
def chosen_executor(job: Job, history: History) -> Iterator[Executor]:
    """The executor that the configuration names; its processes end with the block."""
    section = job.config.tuning.executor
    if section.name == "serial":
        yield serial
        return

    def kit(kind: type[Kit] = Kit, alone: bool = section.workers == 1) -> Shipment:
        assert history.baseline is not None  # the first batch comes after it
        return pack(job, history.baseline, alone, history.memory, section.name == "ray", kind)

    made: Processes | RayExecutor | TimedExecutor
    if section.name == "process":
        memory = int(section.memory * 2**20)
        made = Processes(kit, section.workers, memory, section.timeout, job.listener.begin)
    elif section.ray.timed_labels and job.measure.time:
        made = _timed(job, lambda: kit(alone=False), lambda: kit(TimingKit, True))
    else:
        made = _on_ray(job, kit, section.workers, _demand(job))
        made.begin = job.listener.begin
        if history.baseline is None:  # an hour of FP32 lies ahead: a wrong address is told now
            made.cluster.look_for_head()
    with contextlib.closing(made):
        yield made


def _demand(job: Job) -> Demand:
    section = job.config.tuning.executor
    return Demand.of(section.ray, int(section.memory * 2**20))


def _on_ray(job: Job, kit: MakeKit, workers: int, demand: Demand) -> RayExecutor:
    section = job.config.tuning.executor
    made = RayExecutor(kit, workers, section.address, demand, section.timeout, job.request.model)
    made.stop, made.note = job.watch.request_stop, job.add_note
    return made


def _timed(job: Job, kit: MakeKit, timing: MakeKit) -> TimedExecutor:
    """Workers anywhere, and one that times on a node of the target CPU."""
    section = job.config.tuning.executor
    labels, demand = dict(section.ray.timed_labels), _demand(job)
    workers = _on_ray(job, kit, section.workers, elsewhere(demand, labels))
    workers.begin = job.listener.begin
    workers.join()  # what the nodes have must be known
    timer = _on_ray(job, timing, 1, timer_demand(workers.cluster, demand, labels))
    made = TimedExecutor(workers, timer, job.watch.limits.timeout > 0)
    made.note = job.add_note
    return made
