"""Executors of MXNet by shape, and feeds checked before MXNet sees them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from lpot.backends.mxnet.network import Network, infer
from lpot.backends.mxnet.runtime import CPU, MXNetError, first_line, hushed, mx
from lpot.core.batch import Inputs
from lpot.core.errors import DataError
from lpot.core.inputs import by_name

FUSING = "MXNET_SUBGRAPH_BACKEND"
KEPT = 4  # executors at once: a loader has one shape, and a shorter last batch

Feeds = dict[str, np.ndarray]


class Runner:
    """Runs one network on batches of any shape; parameters are shared by all executors."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._executors: dict[tuple[Any, ...], mx.executor.Executor] = {}

    def __call__(self, feeds: Feeds) -> list[np.ndarray]:
        try:
            executor = self._executor(feeds)
            arrays = {name: mx.nd.array(value, dtype=value.dtype) for name, value in feeds.items()}
            outputs = executor.forward(is_train=False, **arrays)
            return [output.asnumpy() for output in outputs]  # failures come to light only here
        except MXNetError as error:
            shapes = {name: list(value.shape) for name, value in feeds.items()}
            raise DataError(f"MXNet failed on a batch of {shapes}: {first_line(error)}") from error

    def _executor(self, feeds: Feeds) -> mx.executor.Executor:
        key = tuple((name, value.shape, value.dtype.str) for name, value in feeds.items())
        if key not in self._executors:
            while len(self._executors) >= KEPT:
                self._executors.pop(next(iter(self._executors)))
            self._executors[key] = self._bind(feeds)
        return self._executors[key]

    def _bind(self, feeds: Feeds) -> mx.executor.Executor:
        network = self._network
        shapes = fitting_shapes(network, feeds)
        args = dict(network.args)
        for name, value in feeds.items():
            args[name] = mx.nd.zeros(value.shape, ctx=CPU, dtype=value.dtype)
        for name in network.labels:
            args[name] = mx.nd.zeros(shapes[name], ctx=CPU)
        return network.symbol.bind(CPU, args, aux_states=dict(network.auxs), grad_req="null")


def unfused(network: Network, feeds: Feeds) -> list[np.ndarray]:
    """One run without the fusions that MXNet does by default."""
    before = os.environ.get(FUSING)
    os.environ[FUSING] = "NONE"  # read when an executor is made
    try:
        with hushed():
            return Runner(network)(feeds)
    finally:
        if before is None:
            del os.environ[FUSING]
        else:
            os.environ[FUSING] = before


def fitting_shapes(network: Network, feeds: Feeds) -> dict[str, tuple[int, ...]]:
    """Every shape of the network for this batch, or what in it does not fit."""
    given = {name: value.shape for name, value in feeds.items()}
    told = ", ".join(f"{name} {list(shape)}" for name, shape in given.items())
    try:
        shapes = infer(network, given)
    except MXNetError as error:
        raise DataError(f"a batch of {told} does not fit the model: {first_line(error)}") from error
    for name, array in (*network.args.items(), *network.auxs.items()):
        if shapes[name] != array.shape:
            raise DataError(
                f"a batch of {told} does not fit the model: with it, parameter {name!r} would have "
                f"to be {list(shapes[name])}, and it is {list(array.shape)}"
            )
    return shapes


def feed(network: Network, inputs: Inputs) -> Feeds:
    """Inputs by name; those of an input that takes any number are cast to it."""
    found = by_name(network.inputs, inputs, network.loose)
    return {name: np.ascontiguousarray(value) for name, value in found.items()}
