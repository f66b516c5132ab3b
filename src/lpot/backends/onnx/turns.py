"""What bodies of If, Loop and Scan are called with, while the calibration data goes by.

The runtime does not tell what happens inside such a node. So what goes into it is looked at, and
the turns of Loop and Scan are taken here, one by one, by the body as a model of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from onnx import ModelProto, TensorProto, helper

from lpot.backends.onnx.bodies import Body
from lpot.backends.onnx.graph import Graph, attribute, ints
from lpot.backends.onnx.run import run_session, session
from lpot.core.batch import Inputs
from lpot.core.inputs import by_name

if TYPE_CHECKING:
    from lpot.backends.onnx.model import OnnxModel

MOST = 64  # calls that a body is observed with
EACH = 8  # of which one batch gives so many, spread over its turns
TURNS = 512  # of one batch that are taken
TAKEN = {"then_branch": True, "else_branch": False}
Values = Mapping[str, np.ndarray]


class Taps:
    """What the bodies of a model are called with, batch by batch."""

    def __init__(self, model: OnnxModel, bodies: Sequence[Body]) -> None:
        self.model = model
        self.bodies = bodies
        wanted = [name for body in bodies for name in (*body.node.input, *body.outer) if name]
        constant = model.prepared.weights
        self.known = {name: constant[name] for name in wanted if name in constant}
        self.names = [name for name in dict.fromkeys(wanted) if name not in constant]
        self.fed = {body.name: list[Inputs]() for body in bodies}
        self._session = session(_tapped(model.prepared, self.names)) if self.names else None

    def __call__(self, batches: Iterable[Inputs]) -> Iterator[Inputs]:
        """The same batches, noted on the way."""
        for inputs in batches:
            feeds = by_name(self.model.inputs, inputs)
            self._note(self._values(feeds))
            yield feeds

    def _values(self, feeds: Inputs) -> Values:
        if self._session is None:
            return self.known
        found = run_session(self._session, self.model.inputs, feeds)
        return {**self.known, **dict(zip(self.names, found, strict=True))}

    def _note(self, values: Values) -> None:
        for body in self.bodies:
            seen = self.fed[body.name]
            if len(seen) < MOST:
                seen += thinned(calls(body, values))[: MOST - len(seen)]


def thinned(found: Iterable[Inputs]) -> list[Inputs]:
    """At most EACH of them, evenly spread, without holding all at once."""
    kept: list[Inputs] = []
    stride = 1
    for number, one in enumerate(found):
        if number % stride:
            continue
        if len(kept) == EACH:
            kept, stride = kept[::2], 2 * stride
            if number % stride:
                continue
        kept.append(one)
    return kept


def calls(body: Body, values: Values) -> Iterator[Inputs]:
    """The inputs of every call, in order."""
    given = [values[name] if name else None for name in body.node.input]
    outer = {name: values[name] for name in body.outer}
    if body.node.op_type == "If":
        condition = given[0]
        assert condition is not None
        if bool(condition.reshape(-1)[0]) == TAKEN[body.place]:
            yield outer
        return
    turns = _loop if body.node.op_type == "Loop" else _scan
    for number, feeds in enumerate(turns(body, given, outer)):
        if number == TURNS:
            return
        yield feeds


def _loop(body: Body, given: Sequence[np.ndarray | None], outer: Values) -> Iterator[Inputs]:
    """As the standard has it: so many turns at most, as long as the condition holds."""
    most, going, *states = given
    limit = None if most is None else int(most.reshape(-1)[0])
    going = np.array(True) if going is None else going
    counter, condition, *names = body.formal
    form = {spec.name: spec.shape or () for spec in body.model.inputs}
    turn = 0
    while (limit is None or turn < limit) and bool(going.reshape(-1)[0]):
        feeds = {
            counter: np.full([1] * len(form[counter]), turn, np.int64),
            condition: going.reshape([1] * len(form[condition])),
            **{name: state for name, state in zip(names, states, strict=True) if state is not None},
            **outer,
        }
        yield feeds
        going, *made = run_session(body.model.session, body.model.inputs, feeds)
        states = made[: len(names)]
        turn += 1


def _scan(body: Body, given: Sequence[np.ndarray | None], outer: Values) -> Iterator[Inputs]:
    """One slice of each sequence a turn; the states go on to the next."""
    count = int(attribute(body.node, "num_scan_inputs", 0))
    arrays = [array for array in given if array is not None]
    states, sequences = arrays[: len(arrays) - count], arrays[len(arrays) - count :]
    axes = ints(body.node, "scan_input_axes") or [0] * count
    backwards = ints(body.node, "scan_input_directions") or [0] * count
    slices = [
        np.moveaxis(array, axis, 0)[:: -1 if back else 1]
        for array, axis, back in zip(sequences, axes, backwards, strict=True)
    ]
    for now in zip(*slices, strict=True):
        feeds = {**dict(zip(body.formal, [*states, *now], strict=True)), **outer}
        yield feeds
        made = run_session(body.model.session, body.model.inputs, feeds)
        states = made[: len(states)]


def _tapped(graph: Graph, names: Sequence[str]) -> Graph:
    header = ModelProto()
    header.CopyFrom(graph.header)
    del header.graph.output[:]
    header.graph.output.extend(
        helper.make_tensor_value_info(name, graph.types.get(name, TensorProto.FLOAT), None)
        for name in names
    )
    return Graph(header, graph.nodes, graph.weights, graph.opaque, graph.types, graph.shapes)
