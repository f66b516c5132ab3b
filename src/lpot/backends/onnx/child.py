"""Models that may take the process with them are opened in another one first.

ONNX Runtime does not always raise: an assertion of its own ends the process, and no exception can
be caught. That was seen with subgraphs and must be expected of kernels that others wrote. Plain
graphs are opened at once; of the rest each that is made in a new way is tried, in one child that
lives on. It takes a third of a second to start.
"""

from __future__ import annotations

import atexit
import json
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np

from lpot.backends.onnx.graph import Graph, has_subgraph, outer_reads, subgraphs
from lpot.core.errors import UnsupportedModel

OWN = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc")
LARGE = 65536  # bytes of floats, from which on zeros stand for them
RAISED = 1  # how a Python process ends over an exception
_PROGRAM = """
import json, os, sys
sys.path[:] = json.loads(sys.argv[1])
import numpy as np
import onnxruntime as ort
given, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in given:
    order = json.loads(line)
    model = given.read(order["model"])
    names, values = [], []
    for name, dtype, shape, size in order["weights"]:
        data = given.read(size)
        array = np.frombuffer(data, dtype).reshape(shape) if size else np.zeros(shape, dtype)
        names.append(name)
        values.append(ort.OrtValue.ortvalue_from_numpy(array))
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel(order["level"])
    if names:
        options.add_external_initializers(names, values)
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    print("opened", file=answers, flush=True)
"""

Pattern = tuple[str, str, str]


def check_opens(graph: Graph, level: int) -> None:
    """Open the graph in the child, unless it is plain or one that is made the same way was."""
    if not is_odd(graph):
        return
    form = level, patterns(graph)
    with _CHILD.lock:
        if form not in _CHILD.known:
            _CHILD.open(graph, level)
            _CHILD.known.add(form)


def is_odd(graph: Graph) -> bool:
    return any(node.domain not in OWN or has_subgraph(node) for node in graph.nodes)


def patterns(graph: Graph) -> frozenset[Pattern]:
    """The kinds of ops that feed each other, three in a row; what subgraphs read is marked."""
    found: set[Pattern] = set()
    before: dict[str, set[str]] = {}  # tensor → its producer's kind and what that reads
    made: dict[str, str] = {}
    for node in graph.nodes:
        inner = {name for body in subgraphs(node) for name in outer_reads(body)}
        kind = f"{node.domain}:{node.op_type}"
        own: set[str] = set()
        for name in (*node.input, *inner):
            source = made.get(name, "constant" if graph.is_constant(name) else "input")
            own.add(source)
            reader = f"{kind}, inside" if name in inner else kind
            found |= {(first, source, reader) for first in before.get(name, {""})}
        for name in node.output:
            made[name], before[name] = kind, own
    outputs = [name for name in graph.outputs if name in made]
    ends = {(first, made[name], "output") for name in outputs for first in before[name]}
    return frozenset(found | ends)


class _Child:
    """The process, started when it is first needed, and again when a model has ended it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: set[tuple[int, frozenset[Pattern]]] = set()
        self._process: subprocess.Popen[bytes] | None = None

    def open(self, graph: Graph, level: int) -> None:
        skeleton, aside = graph.skeleton()
        model = skeleton.SerializeToString()
        entries = [_entry(name, array) for name, array in aside.items()]
        order = {"model": len(model), "level": level, "weights": [one for one, _ in entries]}
        process = self._process = self._process or _started()
        assert process.stdin is not None and process.stdout is not None
        answer, heard = b"", False
        try:
            process.stdin.write(json.dumps(order).encode() + b"\n" + model)
            for _, data in entries:
                process.stdin.write(data)
            process.stdin.flush()
            answer, heard = process.stdout.readline(), True
        except BrokenPipeError:
            heard = True
        finally:
            if not heard:  # stopped halfway: what is left in the pipe belongs to no order
                self.end()
        if not answer:
            code = process.wait()
            self.end()
            if code == RAISED:
                return  # the caller will meet the same exception
            how = signal.Signals(-code).name if code < 0 else f"status {code}"
            raise UnsupportedModel(
                f"ONNX Runtime crashes while it opens the model ({how}, in a process of its own): "
                "a fault of the runtime, which another version of it may not have"
            )

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Ctrl-C is ours to answer; when we are gone, its input ends.
        start_new_session=True,
    )


def _entry(name: str, array: np.ndarray) -> tuple[list[Any], bytes]:
    large = array.dtype.kind == "f" and array.nbytes > LARGE
    data = b"" if large else np.ascontiguousarray(array).tobytes()
    return [name, array.dtype.name, list(array.shape), len(data)], data


_CHILD = _Child()
atexit.register(_CHILD.end)
