"""Does the benchmark tell the truth? A model against itself, FP32 against INT8, shares of cores.

    python benchmarks/aa.py same --times 20      at least 19 must say "no significant difference"
    python benchmarks/aa.py int8 --times 10      all must say "faster"
    python benchmarks/aa.py layouts              one instance of all cores, or one for each core

Run it on a quiet machine. Figures are added to build/bench/aa.jsonl, so that pieces make a whole.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections import Counter
from pathlib import Path

from models import CACHE, NETS, export
from ours import quantized

from lpot.core.results.benchmark import BenchmarkResult, Layout, Settings
from lpot.jobs.benchmark.api import benchmark

logger = logging.getLogger("aa")
LOG = CACHE / "aa.jsonl"
NET = NETS["resnet50"]
ENOUGH = 0.95  # of runs of one model against itself


def same(settings: Settings) -> BenchmarkResult:
    path = export(NET)
    return benchmark([path, path], settings=settings)


def int8(settings: Settings) -> BenchmarkResult:
    return benchmark([export(NET), _int8()], settings=settings)


def layouts(settings: Settings) -> BenchmarkResult:
    cores = len(os.sched_getaffinity(0))
    ways = [Layout(1, cores), Layout(cores, 1)]
    return benchmark([export(NET), _int8()], settings=settings, layouts=ways)


def _int8() -> Path:
    export(NET)
    made = CACHE / f"{NET.name}.ours-static.onnx"
    return made if made.exists() else quantized(NET)


PARTS = {"same": same, "int8": int8, "layouts": layouts}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.5, help="timed, of each model")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    settings = Settings(warmup=3, seconds=given.seconds)
    counts: Counter[str] = Counter()
    for number in range(1, given.times + 1):
        found = PARTS[given.part](settings)
        _note(given.part, found)
        for model in found.models[1:]:
            assert model.comparison is not None, model.error
            counts[model.comparison.verdict] += 1
            throughput = f"{model.throughput:.1f} samples/s"
            logger.info("%d. %s: %s, %s", number, model.label, model.comparison, throughput)
    logger.info("%s", dict(counts))
    if given.part == "same":
        return 0 if counts["no significant difference"] >= ENOUGH * given.times else 1
    return 0 if given.part == "layouts" or counts["faster"] == given.times else 1


def _note(part: str, found: BenchmarkResult) -> None:
    with LOG.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"part": part, **found.to_json()}) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
