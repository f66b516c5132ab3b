"""COCO from annotations, arrays and records, and the filter on top."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from lpot.core.errors import ConfigError, DataError
from lpot.data import FILTERS, filter_registry, get_dataset
from lpot.data.filters import LabelBalance


@pytest.fixture
def coco(tmp_path: Path, jpeg) -> Path:
    (tmp_path / "val2017").mkdir()
    (tmp_path / "annotations").mkdir()
    for name in ("1.jpg", "2.jpg", "3.jpg"):
        (tmp_path / "val2017" / name).write_bytes(jpeg(20, 40))
    write(tmp_path)
    return tmp_path


def write(root: Path, **changes) -> None:
    content = {
        "images": [
            {"id": n, "file_name": f"{n}.jpg", "height": 20, "width": 40} for n in (1, 2, 3)
        ],
        "annotations": [
            {"id": 10, "image_id": 1, "category_id": 17, "bbox": [4, 5, 8, 10]},
            {"id": 11, "image_id": 3, "category_id": 18, "bbox": [0, 0, 40, 20]},
            {"id": 12, "image_id": 3, "category_id": 17, "bbox": [0, 0, 20, 10]},
        ],
        "categories": [{"id": 17, "name": "cat"}, {"id": 18, "name": "dog"}],
    }
    path = root / "annotations" / "instances_val2017.json"
    path.write_text(json.dumps(content | changes))


def test_coco_raw(coco):
    dataset = get_dataset("COCORaw", root=str(coco))
    image, (boxes, names, numbers, name) = dataset[0]
    assert image.shape == (20, 40, 3)
    assert np.allclose(boxes, [[0.25, 0.1, 0.75, 0.3]])
    assert names.tolist() == [b"cat"] and numbers.tolist() == [17] and name == b"1.jpg"
    assert dataset[1][1][0].shape == (0, 4), "an image without boxes stays in"
    assert len(dataset) == 3


def test_a_name_that_plain_utf8_has_no_bytes_for(coco):
    write(coco, categories=[{"id": 17, "name": "cat\udcff"}, {"id": 18, "name": "dog"}])
    assert get_dataset("COCORaw", root=str(coco))[0][1][1].tolist() == [b"cat\xed\xb3\xbf"]


def test_coco_raw_real(data):
    dataset = get_dataset("COCORaw", root=str(data / "coco2017-slice"))
    assert len(dataset) == 164
    assert sum(len(dataset.label(n)[0]) for n in range(164)) == 1560
    boxes = np.concatenate([dataset.label(n)[0] for n in range(164)])
    assert boxes.min() >= 0 and boxes.max() <= 1 + 1e-6
    assert (boxes[:, 2:] >= boxes[:, :2]).all()
    assert dataset[0][0].shape == (426, 640, 3)


def test_label_balance(coco, data):
    counts = [1, 0, 2]
    for size in (0, 1, 2):
        kept = get_dataset("COCORaw", root=str(coco), filter=LabelBalance(size))
        assert [name for _, (*_, name) in kept] == [
            f"{n + 1}.jpg".encode() for n in range(3) if counts[n] == size
        ]
    with pytest.raises(DataError, match="LabelBalance rejects all 3 samples"):
        len(get_dataset("COCORaw", root=str(coco), filter=LabelBalance(7)))
    with pytest.raises(DataError, match="LabelBalance counts boxes"):
        len(get_dataset("MNIST", root=str(data / "mnist"), filter=LabelBalance(1)))
    with pytest.raises(ConfigError, match="number of boxes"):
        LabelBalance("many")


def test_a_users_filter():
    @filter_registry(filter_type="odd", framework="tensorflow")
    class Odd:
        def __call__(self, image, label):
            return label % 2 == 1

    try:
        assert FILTERS.make("odd", {})(None, 3)
        with pytest.raises(ConfigError, match="unknown filter 'od', did you mean 'odd'"):
            FILTERS.find("od")
    finally:
        FILTERS.remove("odd")


def test_missing_images(coco):
    (coco / "val2017" / "2.jpg").unlink()
    with pytest.raises(DataError, match=r"1 of 3 images of .*json are not in .*first 2\.jpg"):
        get_dataset("COCORaw", root=str(coco))
    assert len(get_dataset("COCORaw", root=str(coco), missing="skip")) == 2
    with pytest.raises(ConfigError, match="'error' or 'skip'"):
        get_dataset("COCORaw", root=str(coco), missing="no")
    shutil.rmtree(coco / "val2017")
    with pytest.raises(DataError, match="val2017: no such folder of images"):
        get_dataset("COCORaw", root=str(coco))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_id": 9}, "annotation 10 refers to image 9"),
        ({"category_id": 1}, "annotation 10 has category 1"),
        ({"bbox": [1, 2]}, r"annotation 10 has the box \[1, 2\], expected x, y, width"),
    ],
)
def test_broken_annotation(coco, change, message):
    mark = {"id": 10, "image_id": 1, "category_id": 17, "bbox": [4, 5, 8, 10]}
    write(coco, annotations=[mark | change])
    with pytest.raises(DataError, match=f"instances_val2017.json: {message}"):
        get_dataset("COCORaw", root=str(coco))


def test_not_an_annotation_file(coco):
    path = coco / "annotations" / "instances_val2017.json"
    for content in ("{}", "[]", "{", '{"images": [{}], "annotations": [], "categories": []}'):
        path.write_text(content)
        with pytest.raises(DataError, match=r"is not (a COCO annotation file|json)"):
            get_dataset("COCORaw", root=str(coco))
    write(coco, annotations=[{"id": 1}])
    with pytest.raises(DataError, match="lacks image_id"):
        get_dataset("COCORaw", root=str(coco))
    write(coco, images=[{"id": 1, "file_name": "1.jpg"}], annotations=[])
    with pytest.raises(DataError, match="image 1 has the height None, expected pixels"):
        get_dataset("COCORaw", root=str(coco))


def test_coco_npy(coco):
    raw = get_dataset("COCORaw", root=str(coco))
    (coco / "npy").mkdir()
    for number in range(3):
        np.save(coco / "npy" / f"{number + 1}.jpg.npy", raw[number][0])
    dataset = get_dataset("COCONpy", root=str(coco), npy_dir="npy")
    assert np.array_equal(dataset[2][0], raw[2][0])
    assert np.array_equal(dataset[2][1][0], raw[2][1][0])
    np.save(coco / "npy" / "1.jpg.npy", np.asarray([{}], dtype=object))
    with pytest.raises(DataError, match=r"1\.jpg\.npy: can't be read"):
        dataset[0]


def features(jpeg, count: int = 2) -> dict:
    sides = {
        f"image/object/bbox/{side}": np.full(count, value, np.float32)
        for side, value in (("ymin", 0.1), ("xmin", 0.2), ("ymax", 0.6), ("xmax", 0.7))
    }
    return sides | {
        "image/encoded": [jpeg(20, 40)],
        "image/object/class/text": [b"cat", b"dog"][:count],
        "image/object/class/label": np.asarray([17, 18][:count]),
        "image/source_id": [b"42"],
    }


def test_coco_record(tmp_path, jpeg, example, write_records):
    path = write_records(tmp_path / "coco_val.record", [example(features(jpeg))] * 3)
    dataset = get_dataset("COCORecord", root=str(path), num_cores=4)
    image, (boxes, names, numbers, source) = dataset[2]
    assert len(dataset) == 3 and image.shape == (20, 40, 3)
    assert np.allclose(boxes, [[0.1, 0.2, 0.6, 0.7]] * 2)
    assert names.tolist() == [b"cat", b"dog"] and numbers.tolist() == [17, 18] and source == b"42"
    assert len(get_dataset("COCORecord", root=str(tmp_path), filter=LabelBalance(2))) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image/object/bbox/xmin": np.zeros(1, np.float32)}, "differ in number"),
        ({"image/object/class/text": [], "image/object/class/label": np.zeros(0, int)}, "neither"),
        ({"image/encoded": []}, "has no 'image/encoded'"),
        ({"image/encoded": [b"nonsense"]}, "can't be decoded"),
    ],
)
def test_coco_record_faults(tmp_path, jpeg, example, write_records, change, message):
    good, bad = example(features(jpeg)), example(features(jpeg) | change)
    path = write_records(tmp_path / "coco.record", [good, bad])
    with pytest.raises(DataError, match=rf"coco\.record: record 1: .*{message}"):
        get_dataset("COCORecord", root=str(path))[1]
