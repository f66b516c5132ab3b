"""COCO images and annotations as one TFRecord, with the features of the TF1 detection zoo.

    python coco_record.py --image_dir val2017 --annotations instances_val2017.json \
        --output coco_val.record [--include_masks]

An annotation file without annotations (the test part's image_info) gives images alone.
"""

from __future__ import annotations

import argparse
import io
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from lpot.core.progress import tracked

Row = Mapping[str, Any]


def examples(image_dir: Path, listing: Path, masks: bool) -> Iterator[Any]:
    """One tf.train.Example an image, in the listing's order."""
    content = json.loads(listing.read_text())
    names = {one["id"]: one["name"] for one in content.get("categories", ())}
    rows: dict[Any, list[Row]] = defaultdict(list)
    for one in content.get("annotations", ()):
        rows[one["image_id"]].append(one)
    for image in tracked(content["images"]):
        path = image_dir / image["file_name"]
        if not path.is_file():
            raise SystemExit(f"{path}: is in {listing.name}, but there is no such image")
        yield example(path, image, rows[image["id"]], names, masks)


def example(
    path: Path, image: Row, rows: list[Row], names: Mapping[int, str], masks: bool
) -> tf.train.Example:
    high, wide = int(image["height"]), int(image["width"])
    kept = [one for one in rows if len(one["bbox"]) == 4 and min(one["bbox"][2:]) > 0]
    x, y, w, h = np.asarray([one["bbox"] for one in kept], np.float64).reshape(-1, 4).T
    features = {
        "image/encoded": _bytes([path.read_bytes()]),
        "image/format": _bytes([b"jpeg"]),
        "image/filename": _bytes([path.name.encode()]),
        "image/source_id": _bytes([str(image["id"]).encode()]),
        "image/height": _integers([high]),
        "image/width": _integers([wide]),
        "image/object/bbox/xmin": _floats(x / wide),
        "image/object/bbox/xmax": _floats((x + w) / wide),
        "image/object/bbox/ymin": _floats(y / high),
        "image/object/bbox/ymax": _floats((y + h) / high),
        "image/object/class/text": _bytes([names[one["category_id"]].encode() for one in kept]),
        "image/object/class/label": _integers([one["category_id"] for one in kept]),
        "image/object/is_crowd": _integers([one.get("iscrowd", 0) for one in kept]),
        "image/object/area": _floats([one["area"] for one in kept]),
    }
    if masks:
        features["image/object/mask"] = _bytes([mask(one, high, wide) for one in kept])
    return tf.train.Example(features=tf.train.Features(feature=features))


def mask(row: Row, high: int, wide: int) -> bytes:
    """An object's outline, or run lengths, as a PNG of zeros and ones."""
    from PIL import Image
    from pycocotools import mask as runs

    shape = row["segmentation"]
    if isinstance(shape, list):
        found = runs.merge(runs.frPyObjects(shape, high, wide))
    else:
        found = runs.frPyObjects(shape, high, wide) if isinstance(shape["counts"], list) else shape
    stream = io.BytesIO()
    Image.fromarray(runs.decode(found)).save(stream, "PNG")
    return stream.getvalue()


def _bytes(values: list[bytes]) -> Any:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def _integers(values: list[int]) -> Any:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def _floats(values: Any) -> Any:
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def convert(image_dir: Path, listing: Path, output: Path, masks: bool = False) -> int:
    """Write the record; a broken run leaves no half of one behind."""
    output.parent.mkdir(parents=True, exist_ok=True)
    draft = output.with_name(f".{output.name}.part")
    count = 0
    with tf.io.TFRecordWriter(str(draft)) as writer:
        for one in examples(image_dir, listing, masks):
            writer.write(one.SerializeToString())
            count += 1
    draft.replace(output)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description="COCO to TFRecord")
    parser.add_argument("--image_dir", type=Path, required=True)
    parser.add_argument("--annotations", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--include_masks", action="store_true")
    given = parser.parse_args()
    count = convert(given.image_dir, given.annotations, given.output, given.include_masks)
    print(f"{given.output}: {count} images")


if __name__ == "__main__":
    main()
