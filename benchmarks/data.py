"""Reading data: TFRecord files against tf.data on one thread, images against Pillow alone.

`python benchmarks/data.py` measures in its own process and prints one line of JSON; `run.py data`
calls it and draws the table. Times are CPU time, the best of several rounds taken in turn.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from models import CACHE
from PIL import Image

from lpot.data import build_loader
from lpot.data.record import RecordFile, parse_example

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("LPOT_DATA", ROOT.parent / "shared" / "data"))
IMAGES = 120
RECORDS = 1000
ROUNDS = 15
MEAN = np.asarray([123.675, 116.28, 103.53], dtype=np.float32)
STD = np.asarray([58.395, 57.12, 57.375], dtype=np.float32)

Job = Callable[[], Any]


def measure() -> dict[str, dict[str, float]]:
    """Milliseconds an item of each way, by what is read."""
    paths = list(images())
    return {
        "records": in_turn(record_jobs(paths), RECORDS),
        "images": in_turn(image_jobs(paths), len(paths)),
    }


def in_turn(jobs: dict[str, Job], items: int) -> dict[str, float]:
    """The best of several rounds; each round does every job once."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            start = time.process_time()  # of all threads; what else runs here counts little
            job()
            best[name] = min(best[name], time.process_time() - start)
    return {name: seconds / items * 1e3 for name, seconds in best.items()}


# -- images -------------------------------------------------------------------------------------


def images() -> Iterator[Path]:
    """Real photographs where they are at hand, else made-up ones of the same size."""
    real = sorted((DATA / "imagenet-samples" / "images").glob("*.jpg"))[:IMAGES]
    if real:
        yield from real
        return
    folder = CACHE / "images"
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for number in range(IMAGES):
        path = folder / f"{number}.jpg"
        if not path.is_file():
            small = Image.fromarray(rng.integers(0, 256, (32, 43, 3), dtype=np.uint8))
            small.resize((341, 256), Image.Resampling.BICUBIC).save(path, quality=88)
        yield path


def image_jobs(paths: list[Path]) -> dict[str, Job]:
    listing = CACHE / "images.txt"
    listing.write_text("\n".join(f"{path.name} 0" for path in paths))
    loader = build_loader(
        {
            "dataset": {
                "ImagenetRaw": {"data_path": str(paths[0].parent), "image_list": str(listing)}
            },
            "transform": {
                "Resize": {"size": 224},
                "Normalize": {"mean": MEAN.tolist(), "std": STD.tolist()},
            },
        }
    )

    def by_pillow() -> None:
        for path in paths:
            np.asarray(_small(path))

    def by_pillow_and_numpy() -> None:
        for path in paths:
            (np.asarray(_small(path)).astype(np.float32) - MEAN) / STD

    def by_us() -> None:
        for _ in loader:
            pass

    return {"Pillow": by_pillow, "Pillow, numpy": by_pillow_and_numpy, "ours": by_us}


def _small(path: Path) -> Image.Image:
    return Image.open(path).convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)


# -- records ------------------------------------------------------------------------------------


def record_jobs(paths: list[Path]) -> dict[str, Job]:
    """Each record with its checksum read, and its image's bytes and label taken out."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    path = str(_record_file(tf, paths))
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    source = tf.data.TFRecordDataset(path).with_options(options)
    wanted = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([1], tf.int64),
    }
    parsed = source.map(lambda record: tf.io.parse_single_example(record, wanted))

    def read_by_tf() -> int:
        return sum(len(record.numpy()) for record in source)

    def read_by_us() -> int:
        return sum(len(record) for record in RecordFile(path))

    def parse_by_tf() -> int:
        return sum(len(one["image/encoded"].numpy()) for one in parsed)

    def parse_by_us() -> int:
        examples = (parse_example(record) for record in RecordFile(path))
        return sum(len(one["image/encoded"][0]) for one in examples)

    if read_by_tf() != read_by_us() or parse_by_tf() != parse_by_us():
        raise RuntimeError(f"{path}: tf.data and lpot read different bytes")
    return {
        "tf.data": read_by_tf,
        "ours": read_by_us,
        "tf.data, parsed": parse_by_tf,
        "ours, parsed": parse_by_us,
    }


def _record_file(tf: Any, paths: list[Path]) -> Path:
    """Records as large as ImageNet's, about 100 kB."""
    path = CACHE / "images.tfrecord"
    if path.is_file():
        return path
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(RECORDS):
            stream = io.BytesIO(paths[number % len(paths)].read_bytes() * 3)
            features = {
                "image/encoded": tf.train.BytesList(value=[stream.getvalue()]),
                "image/class/label": tf.train.Int64List(value=[number]),
                "image/filename": tf.train.BytesList(value=[b"picture.jpg"]),
            }
            kinds = {
                name: tf.train.Feature(
                    **{"bytes_list" if "label" not in name else "int64_list": value}
                )
                for name, value in features.items()
            }
            writer.write(
                tf.train.Example(features=tf.train.Features(feature=kinds)).SerializeToString()
            )
    return path


if __name__ == "__main__":
    CACHE.mkdir(parents=True, exist_ok=True)
    print(json.dumps(measure()))
