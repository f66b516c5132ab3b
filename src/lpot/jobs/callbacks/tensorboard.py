"""A tuning for TensorBoard: event files written by ourselves, so that nothing has to be there."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from lpot.core.goal import Goal
from lpot.core.progress import Listener
from lpot.core.trial import Score, Trial
from lpot.data.checksum import crc32c_function, masked

FOLDER = "tensorboard"
VERSION = "brain.Event:2"


class EventFile:
    """One file of events: records of TFRecord, each an Event message of a few fields."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        host = "".join(c if c.isalnum() or c in "-." else "_" for c in socket.gethostname())
        name = f"events.out.tfevents.{int(time.time())}.{host}.{os.getpid()}.{time.time_ns()}"
        self.path = folder / name
        self._stream: BinaryIO = self.path.open("xb")
        self._write(_text(3, VERSION))

    def scalar(self, tag: str, value: float, step: int) -> None:
        self._value(step, _text(1, tag) + _fixed32(2, value))

    def text(self, tag: str, words: str, step: int = 0) -> None:
        shape = _message(2, _message(2, _number(1, 1)))
        tensor = _number(1, 7) + shape + _text(8, words)  # 7: of strings
        plugin = _message(9, _message(1, _text(1, "text")))
        self._value(step, _text(1, tag) + plugin + _message(8, tensor))

    def histogram(
        self, tag: str, edges: tuple[float, float], counts: Sequence[int], step: int
    ) -> None:
        width = (edges[1] - edges[0]) / max(1, len(counts))
        limits = [edges[0] + width * (index + 1) for index in range(len(counts))]
        middles = [limit - width / 2 for limit in limits]
        pairs = list(zip(middles, counts, strict=True))
        body = (
            _fixed64(1, edges[0])
            + _fixed64(2, edges[1])
            + _fixed64(3, float(sum(counts)))
            + _fixed64(4, sum(middle * count for middle, count in pairs))
            + _fixed64(5, sum(middle * middle * count for middle, count in pairs))
            + _doubles(6, limits)
            + _doubles(7, [float(count) for count in counts])
        )
        self._value(step, _text(1, tag) + _message(5, body))

    def close(self) -> None:
        self._stream.close()

    def _value(self, step: int, value: bytes) -> None:
        self._write(_number(2, step) + _message(5, _message(1, value)))

    def _write(self, fields: bytes) -> None:
        event = _fixed64(1, time.time()) + fields
        length, crc = struct.pack("<Q", len(event)), crc32c_function()
        self._stream.write(length + struct.pack("<I", masked(crc(length))))
        self._stream.write(event + struct.pack("<I", masked(crc(event))))
        self._stream.flush()


class TensorboardListener(Listener):
    """Accuracy, latency and FP32 ops by trial; at the end the verdict and the worst tensors."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._open: EventFile | None = None
        self._bar: float | None = None
        self._higher = True

    @property
    def _file(self) -> EventFile:
        # Opened when there is something to write, so that a refused request leaves no file.
        if self._open is None:
            self._open = EventFile(self.folder)
        return self._open

    def baseline(self, score: Score, goal: Goal) -> None:
        self._bar = goal.bar(score.accuracy)
        self._higher = goal.higher_is_better
        self._file.text("goal", f"{goal}; FP32 {score.accuracy:.6g}, bar {self._bar:.6g}")
        self._file.scalar("tuning/accuracy", score.accuracy, 0)
        self._file.scalar("tuning/bar", self._bar, 0)
        if score.latency is not None:
            self._file.scalar("tuning/latency_ms", score.latency * 1e3, 0)

    def trial(self, trial: Trial, best: Trial | None) -> None:
        step = trial.number
        self._file.scalar("tuning/fp32_ops", len(trial.recipe.float_ops), step)
        self._file.scalar("tuning/seconds", trial.seconds, step)
        if self._bar is not None:
            self._file.scalar("tuning/bar", self._bar, step)
        if trial.error is not None:
            self._file.text("failed", trial.error, step)
        if trial.score is not None:
            what = "accuracy_bound" if trial.score.raced_out else "accuracy"
            self._file.scalar(f"tuning/{what}", trial.score.at_best(self._higher), step)
            self._file.scalar("tuning/met", float(trial.met), step)
            if trial.score.latency is not None:
                self._file.scalar("tuning/latency_ms", trial.score.latency * 1e3, step)
        if best is not None and best.score is not None and not best.score.raced_out:
            self._file.scalar("tuning/best_accuracy", best.score.accuracy, step)

    def note(self, text: str) -> None:
        if self._open is not None:
            self._file.text("note", text)

    def finished(self, report: Mapping[str, Any]) -> None:
        last = max((row["number"] for row in report["trials"]), default=0)
        if report["result"]["speed"] is not None:
            self._file.scalar("result/speed", report["result"]["speed"], last)
        for item in report["tensors"]:
            name, edges = item["op"][0], (item["edges"][0], item["edges"][1])
            self._file.histogram(f"{name}/fp32", edges, item["fp32_counts"], last)
            self._file.histogram(f"{name}/tuned", edges, item["low_counts"], last)
        for row in report["ops"]:
            if row["sqnr"] is not None:
                self._file.scalar(f"sqnr_db/{row['name']}", row["sqnr"], last)
        self._file.text("configuration", f"```\n{report['config']}\n```")

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


# -- the few wire types of protocol buffers that events need ---------------------------------------


def _varint(value: int) -> bytes:
    """
    >>> _varint(300).hex()
    'ac02'
    """
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _fixed64(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _fixed32(field: int, value: float) -> bytes:
    # Beyond float32 there is infinity, which TensorBoard can show.
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return _varint(field << 3 | 5) + packed


def _message(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(body)) + body


def _text(field: int, words: str) -> bytes:
    return _message(field, words.encode("utf-8", "replace"))


def _doubles(field: int, values: Sequence[float]) -> bytes:
    return _message(field, struct.pack(f"<{len(values)}d", *values))
