"""Data of users, as files to mutate: each maker gives the file and how it is opened."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import record_files

Opener = Callable[[], Any]


def tfrecord(root: Path) -> tuple[Path, Opener]:
    import numpy as np

    from lpot.data import compose, get_dataset

    path = root / "a.tfrecord"
    image = _png(root).read_bytes()
    example = {"image/encoded": [image], "image/class/label": np.array([3])}
    record_files.write(path, [record_files.serialize(example)] * 3)

    def read() -> None:
        parse = compose({"ParseDecodeImagenet": {}})
        for sample in get_dataset("TFRecordDataset", root=str(path), transform=parse):
            assert sample

    return path, read


def _png(root: Path) -> Path:
    import numpy as np
    from PIL import Image

    path = root / "images" / "a" / "one.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (8, 8, 3), np.uint8)).save(path)
    return path


def image(root: Path) -> tuple[Path, Opener]:
    from lpot.data import get_dataset

    path = _png(root)
    folder = path.parents[1]
    return path, lambda: list(get_dataset("ImageFolder", root=str(folder)))


def jpeg(root: Path) -> tuple[Path, Opener]:
    from PIL import Image

    from lpot.data import get_dataset

    made = _png(root)
    path = made.with_suffix(".jpg")
    Image.open(made).save(path, quality=90)
    made.unlink()
    folder = path.parents[1]
    return path, lambda: list(get_dataset("ImageFolder", root=str(folder)))


def coco(root: Path) -> tuple[Path, Opener]:
    from lpot.data import get_dataset

    made = _png(root)
    (root / "val2017").mkdir()
    shutil.move(made, root / "val2017" / "one.png")
    (root / "annotations").mkdir()
    path = root / "annotations" / "instances_val2017.json"
    mark = {"id": 5, "image_id": 1, "category_id": 2, "bbox": [1, 1, 4, 4], "iscrowd": 0}
    raw = {
        "images": [{"id": 1, "file_name": "one.png", "width": 8, "height": 8}],
        "annotations": [{**mark, "area": 16}],
        "categories": [{"id": 2, "name": "cat"}],
    }
    path.write_text(json.dumps(raw))
    return path, lambda: list(get_dataset("COCORaw", root=str(root)))
