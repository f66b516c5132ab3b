"""Our side: what `lpot` makes of a net, through the verbs every backend has."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from models import CACHE, SEED, Net

from lpot.backends import get_backend
from lpot.core.space import restrict

SAMPLES = 20


def quantized(
    net: Net, approach: Any = "static", samples: int = SAMPLES, runtime: str = "onnx"
) -> Path:
    """Everything the backend wants in INT8, saved; never cached: the code may have changed."""
    backend = get_backend(runtime)
    model = backend.load(net.path)
    recipe = restrict(backend.inspect(model, approach), ()).default()
    observations = None
    if approach != "dynamic":
        observations = backend.observe(model, net.feeds(samples), (0,))[0]
    built = backend.build(model, recipe, observations)
    return backend.save(built, CACHE / f"{net.name}.ours-{runtime}-{approach}.onnx")


def build_seconds(net: Net, builds: int = 20) -> dict[str, float]:
    """Of trials as a search makes them: each with a few other ops in floating point.

    Neither weights are embedded nor sessions made: `build` does neither.
    """
    backend = get_backend("onnx")
    model = backend.load(net.path)
    space = restrict(backend.inspect(model), ())
    observations = backend.observe(model, net.feeds(4), (0,))[0]
    random = np.random.default_rng(SEED)
    keys = list(space.choices)
    seconds = []
    for index in range(builds + 1):
        drop = [keys[place] for place in random.choice(len(keys), min(index, 5), replace=False)]
        recipe = space.with_float(space.default(), drop)
        start = time.perf_counter()
        backend.build(model, recipe, observations)
        seconds.append(time.perf_counter() - start)
    first, *rest = seconds
    return {"first": first, "median": statistics.median(rest), "worst": max(rest)}


def calibrate(net: Net, samples: int) -> int:
    """Our calibration, down to percentile ranges as the peer's; the number of ranges found."""
    backend = get_backend("onnx")
    model = backend.load(net.path)
    observations = backend.observe(model, net.feeds(samples), (samples,))[samples]
    return len([stats.range("percentile") for stats in observations.tensors.values()])
