"""Decoders: perplexity, token, prompt and size of our runs beside other tools.

    python benchmarks/decoders.py FP32.onnx TOKENS.npy [name=model.onnx ...] [--source FOLDER]

FP32.onnx is `fp32/model.onnx` of a run's workspace, TOKENS.npy windows of test tokens (windows,
tokens); each further model is a row, printed as soon as it is known. Peers (decoder_peers.py) are
made from FP32.onnx, or from the transformers folder that it came from. Losses are kept by window
in `--losses FOLDER`: none is computed twice, and a run that was cut off goes on. Ratios of
perplexities are paired, on windows spread over the text. Phases are timed in turns with FP32 of
ONNX Runtime, each model in its own process, the idle one stopped: threads that wait for work would
take the other's time. Tokens come in rows, as they do in a text: the first calls after a pause are
not counted. Ratios of several threads mean something only on a machine with nothing else
to do. With `--threads 1` the clock is the thread's own CPU time, which others can't take from it.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from decoder_peers import Decoder, OnnxRuntime, peers

from lpot.jobs.decoder.paired import KnownLosses, Loss, digest, spread, standing
from lpot.metric.language import losses

PAST, PROMPT, PIECE = 128, 512, 256
# Name, rows, tokens, positions in the cache, tokens at a time; calls in a turn: before the clock
# starts, and timed.
CASES = (
    ("token", 1, 1, PAST, 1, 30, 60),
    ("token x4", 4, 1, PAST, 1, 10, 20),
    ("prompt", 1, PROMPT, 0, PROMPT, 1, 1),
    ("prompt in pieces", 1, PROMPT, 0, PIECE, 1, 1),  # ONNX Runtime alone
)


Maker = Callable[[], Decoder]
Case = tuple[int, int, int, int]  # rows, tokens, positions in the cache, tokens at a time


class Apart:
    """A decoder in a process of its own, which is stopped while it has nothing to do."""

    def __init__(self, make: Maker, clock: Callable[[], float]) -> None:
        # Forked, so that makers need not be picklable: this process never opens a session.
        context = multiprocessing.get_context("fork")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_answer, args=(make, clock, other), daemon=True)
        self.process.start()
        self.size = int(self._received())

    def median(self, case: Case, before: int, calls: int) -> float:
        """Seconds of one call."""
        return float(self._asked(("median", case, before, calls)))

    def loss(self, ids: np.ndarray) -> Loss:
        return tuple(self._asked(("loss", ids)))

    def close(self) -> None:
        self.process.kill()
        self.process.join()

    def _asked(self, question: tuple[Any, ...]) -> Any:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGCONT)
        self.pipe.send(question)
        found = self._received()
        os.kill(self.process.pid, signal.SIGSTOP)
        return found

    def _received(self) -> Any:
        found = self.pipe.recv()
        if isinstance(found, str):
            raise RuntimeError(found)
        return found


def _answer(make: Maker, clock: Callable[[], float], pipe: Any) -> None:
    """What the process of a decoder does: it tells its size, then answers questions."""
    try:
        decoder = make()
        pipe.send(decoder.size)
        kept: dict[Case, Callable[[], Any]] = {}
        while True:
            word, *rest = pipe.recv()
            if word == "loss":
                each = losses(decoder.logits(rest[0]), rest[0])
                pipe.send((float(each.sum()), float(each.size)))
                continue
            case, before, count = rest
            kept = {case: kept.get(case) or _call(decoder, case)}
            for _ in range(before):
                kept[case]()
            pipe.send(turn(kept[case], count, clock))
    except Exception as error:  # the other side tells
        pipe.send(f"{type(error).__name__}: {error}"[:200])


def _call(decoder: Decoder, case: Case) -> Callable[[], Any]:
    rows, tokens, past, piece = case
    ids = np.random.default_rng(0).integers(3, 90, (4, PROMPT))[:rows, :tokens]
    if piece < tokens and isinstance(decoder, OnnxRuntime):
        return decoder.run_in_pieces(ids, piece)
    return decoder.run(ids, past)


def turn(run: Callable[[], Any], count: int, clock: Callable[[], float]) -> float:
    """The median of some calls."""
    found = []
    for _ in range(count):
        start = clock()
        run()
        found.append(clock() - start)
    return float(np.median(found))


class Text:
    """Windows spread over a text, and what each model lost in each."""

    def __init__(self, windows: np.ndarray, count: int, folder: Path | None) -> None:
        self.windows = windows
        self.order = spread(len(windows))[:count]
        self.folder = folder
        self.fp32 = self._kept("FP32")

    def _kept(self, name: str) -> KnownLosses:
        word = re.sub(r"\W+", "-", name)
        path = None if self.folder is None else self.folder / f"{word}-{digest(self.windows)}.jsonl"
        return KnownLosses(path)

    def losses(self, name: str, decoder: Apart) -> np.ndarray:
        """Mean loss of a token, by window."""
        kept = self.fp32 if name == "FP32" else self._kept(name)
        found = []
        for at in self.order:
            known = kept.get(at)
            if known is None:
                known = decoder.loss(self.windows[at : at + 1])
                kept.put(at, known)
            found.append(known[0] / known[1])
        return np.asarray(found)


def phases(fp32: Apart, other: Apart, options: Any) -> dict[str, Any]:
    """Of each phase, milliseconds of the other and how many times faster: medians of turns."""
    found: dict[str, Any] = {}
    for name, rows, count, past, piece, before, calls in CASES:
        if name not in options.cases.split(","):
            continue
        case = (rows, count, past, piece)
        pairs = [
            [each.median(case, before, calls) for each in (fp32, other)]
            for _ in range(options.rounds)
        ]
        ratios = [before / after for before, after in pairs]
        edges = np.quantile(ratios, (0.1, 0.9))
        found[name] = round(float(np.median(ratios)), 3)
        found[f"{name} between"] = [round(float(edge), 2) for edge in edges]
        for word, times in zip(("FP32 ms", "ms"), zip(*pairs, strict=True), strict=True):
            found[f"{name} {word}"] = round(1e3 * float(np.median(times)), 2)
    return found


def row(name: str, make: Maker, fp32: Apart, text: Text, options: Any) -> None:
    decoder = Apart(make, _clock(options))
    try:
        found: dict[str, Any] = {"model": name, "size": round(decoder.size / fp32.size, 4)}
        if not options.no_times:
            found |= phases(fp32, decoder, options)
            print(json.dumps(found), flush=True)
        if not options.no_perplexity:
            off = text.losses(name, decoder) - text.losses("FP32", fp32)
            known = standing(off, len(text.windows))
            found["perplexity"] = round(math.exp(known.difference), 4)
            found["±"] = round(known.error, 4)
            print(json.dumps(found), flush=True)
    finally:
        decoder.close()


def _clock(options: Any) -> Callable[[], float]:
    alone = options.threads == 1 and not options.wall
    return time.thread_time if alone else time.perf_counter


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("fp32", type=Path)
    parser.add_argument("tokens", type=Path)
    parser.add_argument("models", nargs="*", metavar="NAME=MODEL.onnx")
    parser.add_argument("--source", type=Path, help="the transformers folder")
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--losses", type=Path)
    parser.add_argument(
        "--peers", default="", help="only those with this in their name; - for none"
    )
    parser.add_argument("--no-perplexity", action="store_true")
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--wall", action="store_true", help="for runtimes that use another thread")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cases", default="token,token x4,prompt")
    options = parser.parse_args()
    text = Text(np.load(options.tokens).astype(np.int64), options.windows, options.losses)
    fp32 = Apart(partial(OnnxRuntime, options.fp32, options.threads), _clock(options))
    if not options.no_perplexity:
        value = math.exp(float(text.losses("FP32", fp32).mean()))
        print(json.dumps({"model": "FP32", "perplexity": value, "windows": len(text.order)}))
    for given in options.models:
        name, _, path = given.partition("=")
        row(name, partial(OnnxRuntime, Path(path), options.threads), fp32, text, options)
    with tempfile.TemporaryDirectory() as folder:
        for name, make in peers(options.fp32, Path(folder), options.source, options.threads):
            if options.peers not in name:
                continue
            try:
                row(name, make, fp32, text, options)
            except Exception as error:  # one that fails is a row, too
                print(json.dumps({"model": name, "failed": str(error)[:200]}), flush=True)
    fp32.close()


if __name__ == "__main__":
    main()
