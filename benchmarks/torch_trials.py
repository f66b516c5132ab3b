"""Trials and calibration of the PyTorch backend: seconds of a build, memory of a pass. Prints JSON.

python benchmarks/torch_trials.py build resnet50
python benchmarks/torch_trials.py memory resnet50 200
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any

import numpy as np
import torch
from models import SEED
from torch_nets import TORCH_NETS, tensors

from lpot.backends import get_backend
from lpot.core.space import restrict
from lpot.jobs.benchmark.contestant import peak_memory

BUILDS = 30


def build(name: str) -> dict[str, float]:
    """Of trials as a search makes them: each with a few other ops in floating point."""
    net, backend = TORCH_NETS[name], get_backend("pytorch")
    model: Any = backend.load(net.module())
    space = restrict(backend.inspect(model), ())
    batches = [tensors(feed) for feed in net.feeds(2)]
    observations = backend.observe(model, batches, (0,))[0]
    random = np.random.default_rng(SEED)
    keys = list(space.choices)
    seconds = []
    for index in range(BUILDS + 1):
        drop = [keys[place] for place in random.choice(len(keys), min(index, 5), replace=False)]
        recipe = space.with_float(space.default(), drop)
        start = time.perf_counter()
        backend.build(model, recipe, observations)
        seconds.append(time.perf_counter() - start)
    first, *rest = seconds
    return {"first": first, "median": statistics.median(rest), "worst": max(rest)}


def memory(name: str, samples: str) -> dict[str, float]:
    net, backend = TORCH_NETS[name], get_backend("pytorch")
    model: Any = backend.load(net.module())
    backend.observe(model, map(tensors, net.feeds(int(samples))), (int(samples),))
    return {"peak_memory": peak_memory()}


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("LPOT_THREADS", "2")))
    verb, *words = sys.argv[1:]
    print(json.dumps({"build": build, "memory": memory}[verb](*words)))
