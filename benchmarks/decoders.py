"""Decoders: perplexity, token, prompt and size of our runs beside ONNX Runtime's own quantizers.

    python benchmarks/decoders.py FP32.onnx TOKENS.npy [name=model.onnx ...] [--windows 8]

FP32.onnx is `fp32/model.onnx` of a run's workspace, TOKENS.npy windows of test tokens (windows,
tokens); each further model is a row, printed when it is known. Peers are made from FP32.onnx here:
MatMulNBitsQuantizer as it comes and with `accuracy_level=4`, and quantize_dynamic. Phases are timed
in turns with FP32; ratios of several threads mean something only on a machine with nothing else to
do. With `--threads 1` the clock is the thread's own CPU time, which others can't take from it.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import QuantType, matmul_nbits_quantizer, quantize_dynamic

from lpot.metric.language import Perplexity

PAST, PROMPT = 128, 512
ROUNDS = 5


def opened(path: Path, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feeds(session: ort.InferenceSession, ids: np.ndarray, past: int = 0) -> dict[str, np.ndarray]:
    rows, count = ids.shape
    found = {"input_ids": ids, "attention_mask": np.ones((rows, past + count), np.int64)}
    for value in session.get_inputs():
        if value.name.startswith("past"):
            sizes = (rows, value.shape[1], past, value.shape[3])
            found[value.name] = np.zeros(sizes, np.float32)
    return found


def perplexity(session: ort.InferenceSession, windows: np.ndarray) -> float:
    metric = Perplexity()
    for window in windows:
        (logits,) = session.run(["logits"], feeds(session, window[None]))
        metric.update(logits, window[None])
    return metric.result()


def nbits(source: Path, folder: Path, level: int | None) -> Path:
    """ONNX Runtime's default: blocks of 128, symmetric, the level left out."""
    quantizer = matmul_nbits_quantizer.MatMulNBitsQuantizer(
        onnx.load(source), block_size=128, is_symmetric=True, accuracy_level=level
    )
    quantizer.process()
    path = folder / f"nbits{level}.onnx"
    quantizer.model.save_model_to_file(str(path), use_external_data_format=False)
    return path


def dynamic(source: Path, folder: Path) -> Path:
    path = folder / "dynamic.onnx"
    quantize_dynamic(str(source), str(path), weight_type=QuantType.QInt8, per_channel=True)
    return path


def peers(source: Path, folder: Path) -> Iterator[tuple[str, Callable[[], Path]]]:
    yield "ORT MatMulNBitsQuantizer", lambda: nbits(source, folder, None)
    yield "… with accuracy_level=4", lambda: nbits(source, folder, 4)
    yield "ORT quantize_dynamic", lambda: dynamic(source, folder)


def seconds(run: Callable[[], Any], clock: Callable[[], float]) -> float:
    best = math.inf
    for _ in range(3):
        start = clock()
        run()
        best = min(best, clock() - start)
    return best


def phases(
    fp32: ort.InferenceSession, other: ort.InferenceSession, clock: Callable[[], float]
) -> dict[str, tuple[float, float]]:
    """Of each phase, seconds of the other and how many times faster it is: the median of turns."""
    found = {}
    ids = np.random.default_rng(0).integers(3, 90, (4, PROMPT))
    for name, rows, count, past in (
        ("token", 1, 1, PAST),
        ("token x4", 4, 1, PAST),
        ("prompt", 1, PROMPT, 0),
    ):
        given = feeds(fp32, ids[:rows, :count], past)
        pairs = [
            (
                seconds(lambda g=given: fp32.run(None, g), clock),  # type: ignore[misc]
                seconds(lambda g=given: other.run(None, g), clock),  # type: ignore[misc]
            )
            for _ in range(ROUNDS)
        ]
        ratio = float(np.median([before / after for before, after in pairs]))
        found[name] = (min(after for _, after in pairs), ratio)
    return found


def size(path: Path) -> int:
    return sum(
        item.stat().st_size for item in path.parent.glob(f"{path.name}*") if item.suffix != ".json"
    )


def row(name: str, path: Path, fp32: Path, truth: float, windows: np.ndarray, options: Any) -> None:
    session = opened(path, options.threads)
    found: dict[str, Any] = {"model": name, "size": round(size(path) / size(fp32), 4)}
    if not options.no_perplexity:
        found["perplexity"] = round(perplexity(session, windows) / truth, 4)
    if not options.no_times:
        clock = time.thread_time if options.threads == 1 else time.perf_counter
        times = phases(opened(fp32, options.threads), session, clock)
        found |= {phase: round(ratio, 3) for phase, (_, ratio) in times.items()}
        found |= {f"{phase} ms": round(1e3 * spent, 2) for phase, (spent, _) in times.items()}
    print(json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("fp32", type=Path)
    parser.add_argument("tokens", type=Path)
    parser.add_argument("models", nargs="*", metavar="NAME=MODEL.onnx")
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-perplexity", action="store_true")
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    every = np.load(options.tokens)
    windows = every[:: max(1, len(every) // options.windows)][: options.windows].astype(np.int64)
    truth = 1.0
    if not options.no_perplexity:
        truth = perplexity(opened(options.fp32, options.threads), windows)
    print(json.dumps({"model": "FP32", "perplexity": truth, "windows": len(windows)}), flush=True)
    for given in options.models:
        name, _, path = given.partition("=")
        row(name, Path(path), options.fp32, truth, windows, options)
    if options.no_peers:
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, make in peers(options.fp32, Path(folder)):
            row(name, make(), options.fp32, truth, windows, options)


if __name__ == "__main__":
    main()
