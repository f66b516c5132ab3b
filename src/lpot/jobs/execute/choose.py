"""The executor that the configuration names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from lpot.core.history import History
from lpot.core.tune import Executor, serial
from lpot.jobs.execute.kit import pack
from lpot.jobs.execute.processes import Processes
from lpot.jobs.execute.ray import RayExecutor
from lpot.jobs.execute.ray_cluster import Demand
from lpot.jobs.tune.job import Job


@contextlib.contextmanager
def chosen_executor(job: Job, history: History) -> Iterator[Executor]:
    """The executor that the configuration names; its processes end with the block."""
    section = job.config.tuning.executor

    def kit() -> bytes:
        assert history.baseline is not None  # the first batch comes after it
        alone, elsewhere = section.workers == 1, section.name == "ray"
        return pack(job, history.baseline, alone, history.memory, elsewhere)

    if section.name == "serial":
        yield serial
        return
    memory = int(section.memory * 2**20)
    made: Processes | RayExecutor
    if section.name == "ray":
        demand = Demand.of(section.ray, memory)
        given = job.request.model
        made = RayExecutor(kit, section.workers, section.address, demand, section.timeout, given)
        made.stop, made.begin, made.note = (
            job.watch.request_stop,
            job.listener.begin,
            job.add_note,
        )
    else:
        made = Processes(kit, section.workers, memory, section.timeout, job.listener.begin)
    with contextlib.closing(made):
        yield made
