"""Does cost grow as it should? Searches with evaluations of fixed length on 1, 2, 4, 8 workers.

    python benchmarks/cluster_scaling.py [ray|process] [seconds]

Evaluations sleep, so that the table shows the search and its overhead, not this machine's cores.
`even` is a batch that does not depend on its own trials (mse); `basic` must wait for each round.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator, Sequence

from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.space import TuningSpace
from lpot.core.strategy import StrategyContext
from lpot.core.trial import Score, State, Trial
from lpot.jobs.execute.dump import ship
from lpot.jobs.execute.kit import Kit
from lpot.jobs.execute.processes import Processes
from lpot.jobs.execute.ray import RayExecutor
from lpot.jobs.execute.ray_cluster import Demand
from lpot.strategy.fewest import fewest_float

WORKERS = (1, 2, 4, 8)
OPS, GUILTY = 200, 57  # of the ranking, so many must go back to float
BATCH = 32
INT8 = OpConfig(TensorConfig("uint8", "asym"), TensorConfig("int8", "sym"))


class Sleeper(Kit):
    """A kit whose trials only take time."""

    def __init__(self, seconds: float) -> None:
        object.__setattr__(self, "seconds", seconds)

    def open(self) -> None:  # type: ignore[override]
        return None

    def attempt(self, bench: object, number: int, recipe: Recipe) -> Trial:
        time.sleep(self.seconds)  # type: ignore[attr-defined]
        floats = {key.name for key in recipe.float_ops}
        met = all(f"op{index:03}" in floats for index in range(GUILTY))
        return Trial(number, recipe, State.DONE, Score(1.0 if met else 0.5), met)


def space() -> TuningSpace:
    return TuningSpace({OpKey(f"op{i:03}", "Conv"): (INT8, FP32) for i in range(OPS)}, (0,))


def ranking() -> dict[OpKey, float]:
    """Right in its order, and no more is known."""
    return {OpKey(f"op{i:03}", "Conv"): 1.0 / (i + 1) for i in range(OPS)}


def run_batch(executor: object, recipes: Sequence[Recipe]) -> list[Trial]:
    made = executor(None, iter(enumerate(recipes, start=1)))  # type: ignore[operator]
    found = {trial.recipe.digest: trial for trial, _ in made}
    return [found[recipe.digest] for recipe in recipes]


def bisect(executor: object, workers: int) -> tuple[int, int, int]:
    """Rounds, evaluations, and how many ops went back in the end."""
    context = StrategyContext(baseline=1.0, ranking=ranking, workers=workers)
    steps = fewest_float(space(), context)
    batch, rounds, count = next(steps), 0, 0
    while True:
        rounds, count = rounds + 1, count + len(batch)
        try:
            batch = steps.send(run_batch(executor, batch))
        except StopIteration as end:
            return rounds, count, len(end.value.back)


def independent() -> Iterator[Recipe]:
    base = space().default()
    for index in range(BATCH):
        yield space().with_float(base, [OpKey(f"op{index:03}", "Conv")])


def _seconds_of(executor: object, recipes: Sequence[Recipe]) -> float:
    start = time.monotonic()
    run_batch(executor, recipes)
    return time.monotonic() - start


def measured(executor: object, workers: int, seconds: float) -> tuple[str, ...]:
    """One row of the table."""
    base = space().default()
    warm = [space().with_float(base, [OpKey(f"op{99 + i:03}", "Conv")]) for i in range(workers)]
    while _seconds_of(executor, warm) > 1.5 * seconds:  # processes start, modules are imported
        pass
    even = _seconds_of(executor, list(independent()))
    start = time.monotonic()
    rounds, count, back = bisect(executor, workers)
    searched = time.monotonic() - start
    lost = 1e3 * (even / math.ceil(BATCH / workers) - seconds)
    times = f"{even:.2f}", f"{seconds * BATCH / even:.2f}", f"{lost:.0f}"
    return str(workers), *times, str(rounds), str(count), str(back), f"{searched:.2f}"


def main(kind: str = "process", seconds: float = 0.5) -> None:
    kit = ship(Sleeper(seconds))
    if kind == "ray":
        import ray

        ray.init("local", num_cpus=max(WORKERS), include_dashboard=False, log_to_driver=False)
    columns = ("workers", f"{BATCH} trials, s", "speed-up", "overhead a trial, ms")
    columns += ("basic: rounds", "trials", "ops back", "s")
    print("|", " | ".join(columns), "|")
    print("|", " | ".join("---" for _ in columns), "|")
    for workers in WORKERS:
        made: RayExecutor | Processes = Processes(lambda: kit, workers)
        if kind == "ray":
            made = RayExecutor(lambda: kit, workers, demand=Demand())
        with contextlib.closing(made):
            print("|", " | ".join(measured(made, workers, seconds)), "|", flush=True)


if __name__ == "__main__":
    main(*(sys.argv[1:2] or ["process"]), *(float(word) for word in sys.argv[2:3]))
