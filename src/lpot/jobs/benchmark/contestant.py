"""The child process of a benchmark: loads one model, waits for orders, times runs.

Orders come as JSON lines on stdin, answers go as JSON lines to stdout. What the frameworks print
goes to stderr, so that it can't be taken for an answer.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lpot.backends import detect, get_backend, named_in
from lpot.core.backend import Profiled
from lpot.core.batch import InputSpec
from lpot.core.errors import ConfigError, LpotError
from lpot.core.files.card import read_card
from lpot.core.measure import latency
from lpot.core.model import Model

MOST_SAMPLES = 1000  # told of one round; calls of microseconds would make answers of megabytes

Call = Callable[[Any], object]


@dataclass(frozen=True)
class Contestant:
    """What takes part: a model's file, or a callable made by `pkg.mod:factory`.

    The factory is called in the child with `arguments` (plain JSON values) and returns the
    callable, which takes a dict of arrays by input name, and its `InputSpec`s.
    """

    source: str
    kind: Literal["model", "callable"] = "model"
    label: str = ""
    framework: str | None = None  # None: read from the file
    arguments: Mapping[str, Any] = field(default_factory=dict)
    # Of models whose file does not say what to compute: their module, pickled by our own parent.
    skeleton: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "arguments": dict(self.arguments)}


@dataclass(frozen=True, eq=False)
class Loaded:
    """A contestant ready to run; without `inputs` the framework can't tell them."""

    call: Call
    inputs: tuple[InputSpec, ...] | None
    framework: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    size: int = 0  # bytes on disk
    model: Model | None = None

    def to_json(self) -> dict[str, Any]:
        inputs = self.inputs
        return {
            "inputs": None if inputs is None else [spec.to_json() for spec in inputs],
            "framework": self.framework,
            "versions": dict(self.versions),
            "size": self.size,
        }


def load(contestant: Contestant) -> Loaded:
    return _load_callable(contestant) if contestant.kind == "callable" else _load_model(contestant)


def _load_model(contestant: Contestant) -> Loaded:
    path = Path(contestant.source)
    card = read_card(path)
    backend = get_backend(contestant.framework or named_in(card) or detect(path))
    if contestant.skeleton is not None:
        module = pickle.loads(Path(contestant.skeleton).read_bytes())  # of our own parent
        model = backend.restore_into(path, module)
    else:
        model = backend.restore(path) if card else backend.load(path)
    return Loaded(
        lambda feed: backend.run(model, feed),
        model.inputs,
        backend.name,
        backend.versions(),
        bytes_on_disk(path, model),
        model,
    )


def _load_callable(contestant: Contestant) -> Loaded:
    module, _, name = contestant.source.partition(":")
    try:
        factory: Any = importlib.import_module(module)
        for part in name.split("."):
            factory = getattr(factory, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{contestant.source!r} can't be imported: {error}") from error
    made = factory(**contestant.arguments)
    if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0])):
        raise ConfigError(
            f"{contestant.source!r} returned {type(made).__name__}: expected (callable, InputSpecs)"
        )
    call, inputs = made
    # A callable may say what it is: other runtimes come in this way.
    name, versions = getattr(call, "framework", "callable"), getattr(call, "versions", {})
    return Loaded(call, tuple(inputs), name, versions, getattr(call, "size", 0))


def disk_size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def bytes_on_disk(path: Path | None, model: Model) -> int:
    """Of a model as it lies there; what its weights alone take if it does not.

    Weights kept beside the model (external data) are not in its own file.
    """
    return max(0 if path is None else disk_size(path), model.nbytes)


def peak_memory() -> int:
    """The most bytes this process ever held; 0 where the system can't tell.

    On Linux not by getrusage: that figure starts at the parent's size.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 0


def read_feeds(paths: Iterable[str], names: Iterable[str]) -> list[dict[str, np.ndarray]]:
    """Arrays are stored by position: an input's name may be anything, a file's entry may not."""
    feeds = []
    for path in paths:
        with np.load(path, allow_pickle=False) as stored:
            feeds.append({name: stored[f"arr_{index}"] for index, name in enumerate(names)})
    return feeds


def serve(orders: Iterable[str], answer: Callable[[dict[str, Any]], None]) -> None:
    """Carry out orders until there are no more: load, feed, run."""
    loaded: Loaded | None = None
    feeds: Iterator[Any] = iter(())
    for line in orders:
        order = json.loads(line)
        if order["do"] == "load":
            start = time.perf_counter()
            loaded = load(Contestant(**order["contestant"]))
            answer({**loaded.to_json(), "seconds": time.perf_counter() - start})
            continue
        assert loaded is not None, "the parent loads first"
        if order["do"] == "feed":
            named = read_feeds(order["paths"], order["names"])
            by_place = order.get("by_place") and loaded.inputs is None
            feeds = itertools.cycle([tuple(f.values()) for f in named] if by_place else named)
            start = time.perf_counter()
            outputs: Any = loaded.call(next(feeds))
            seconds = time.perf_counter() - start
            if order.get("outputs"):
                np.savez(order["outputs"], *(np.asarray(value) for value in outputs))
            answer({"seconds": seconds})
        elif order["do"] == "profile":
            answer(_profile(loaded, next(feeds), order["runs"]))
        else:
            answer(_run(loaded.call, feeds, order))


def _profile(loaded: Loaded, feed: Any, runs: int) -> dict[str, Any]:
    """Seconds of each op, where the framework can tell; else why not."""
    model = loaded.model
    backend = None if model is None else model.backend
    if not isinstance(backend, Profiled):
        return {"ops": None, "why": f"{loaded.framework or 'it'} can't time single ops"}
    try:
        return {"ops": [op.to_json() for op in backend.profile(model, feed, runs)]}
    except LpotError as error:
        return {"ops": None, "why": str(error)}  # its times are good all the same


def _run(call: Call, feeds: Iterator[Any], order: Mapping[str, Any]) -> dict[str, Any]:
    timing = latency(
        lambda: call(next(feeds)),
        warmup=order["warmup"],
        iteration=order["iteration"],
        seconds=order["seconds"],
        minimum=order.get("minimum", 1),
    )
    step = -(-len(timing.samples) // MOST_SAMPLES)
    return {
        "samples": timing.samples[::step],
        "load": asdict(timing.loads[0]) if timing.loads else None,
        "peak_memory": peak_memory(),
    }


def main() -> None:
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    try:
        serve(sys.stdin, answer)
    except LpotError as error:
        # Anything else ends the process with its traceback on stderr, where the parent reads it.
        answer({"error": str(error)})
        sys.exit(1)


if __name__ == "__main__":
    main()
