"""TFRecord files: read by number, checked, and refused by record when damaged."""

from __future__ import annotations

import gzip
import io
import os

import numpy as np
import pytest
from PIL import Image

from lpot.core.errors import ConfigError, DataError
from lpot.data import compose, get_dataset
from lpot.data.checksum import crc32c_function, crc32c_numpy, masked
from lpot.data.record import RecordFile, parse_example


def test_crc_known_values():
    # From the standard's appendix (RFC 3720, B.4).
    assert crc32c_numpy(bytes(32)) == 0x8A9136AA
    assert crc32c_numpy(b"\xff" * 32) == 0x62A8AB43
    assert crc32c_numpy(bytes(range(32))) == 0x46DD794E
    assert crc32c_numpy(b"") == 0
    assert masked(0) == 0xA282EAD8


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 511, 512, 513, 515, 516, 1024, 70001])
def test_crc_fallback_equals_the_library(length):
    library = pytest.importorskip("google_crc32c")
    data = os.urandom(length)
    assert crc32c_numpy(data) == library.value(data)
    assert crc32c_function()(data) == library.value(data)


@pytest.fixture
def records(tmp_path, write_records):
    content = [b"", b"one", os.urandom(3000), b"last"]
    return write_records(tmp_path / "a.tfrecord", content), content


def test_read_in_a_row_and_by_number(records):
    path, content = records
    assert list(RecordFile(path)) == content
    file = RecordFile(path)
    assert len(file) == 4 and [file[n] for n in (3, 0, 2)] == [content[n] for n in (3, 0, 2)]


def test_without_the_library(records, monkeypatch):
    path, content = records
    monkeypatch.setattr("lpot.data.record.crc32c_function", lambda: crc32c_numpy)
    assert list(RecordFile(path)) == content


@pytest.mark.parametrize("cut", [1, 4, 5, 10, 16, 19, 2000])
def test_truncated(records, cut):
    path, _ = records
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(DataError, match=r"a\.tfrecord: record [23] .*is damaged: the file ends"):
        list(RecordFile(path))


@pytest.mark.parametrize(
    ("byte", "record", "what"), [(20, 1, "length"), (29, 1, "data"), (60, 2, "data")]
)
def test_one_flipped_bit(records, byte, record, what):
    path, _ = records
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match=rf"record {record} .*checksum of its {what} is wrong"):
        list(RecordFile(path))


def test_compressed_missing_empty(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(gzip.compress(b"x"))
    with pytest.raises(DataError, match="compressed"):
        RecordFile(path)
    with pytest.raises(DataError, match="can't be read"):
        RecordFile(tmp_path / "none")
    path.write_bytes(b"")
    assert len(RecordFile(path)) == 0


def test_parse_values(example):
    values = np.asarray([0, 1, -1, 127, 128, 2**62, -(2**63)])
    features = {"i": values, "f": np.asarray([0.5, -1, np.inf], np.float32), "b": [b"", b"\x00x"]}
    parsed = parse_example(example(features))
    assert parsed["i"].tolist() == values.tolist() and parsed["i"].dtype == np.int64
    assert parsed["f"].tolist() == [0.5, -1, np.inf]
    assert parsed["b"] == [b"", b"\x00x"]


def test_parse_unpacked_numbers():
    # Older writers repeat the key for each number: ints 7 and 300, floats 1 and 2.
    ints = b"\x08\x07\x08\xac\x02"
    floats = b"\x0d\x00\x00\x80\x3f\x0d\x00\x00\x00\x40"
    for field, content, wanted in ((0x1A, ints, [7, 300]), (0x12, floats, [1, 2])):
        feature = bytes([field, len(content)]) + content
        entry = b"\x0a\x01k\x12" + bytes([len(feature)]) + feature
        features = b"\x0a" + bytes([len(entry)]) + entry
        message = b"\x0a" + bytes([len(features)]) + features
        assert parse_example(message)["k"].tolist() == wanted


@pytest.mark.parametrize(
    "data", [b"\x0a\xff", b"\x08\x01", b"\x0a\x7fabc", b"\xff" * 12, b"plain text"]
)
def test_parse_nonsense(data):
    with pytest.raises(DataError, match="shard: is not an Example message"):
        parse_example(data, "shard")


def test_parse_every_prefix_and_flip_is_safe(example):
    record = example({"a": np.asarray([1, 2]), "b": [b"xyz"], "c": np.ones(3, np.float32)})
    for end in range(len(record)):
        try:
            parse_example(record[:end])
        except DataError:
            continue
    for place in range(len(record)):
        changed = bytearray(record)
        changed[place] ^= 0x80
        try:
            parse_example(bytes(changed))
        except DataError:
            continue


def test_image_record(tmp_path, jpeg, example, write_records):
    for shard in range(2):
        items = [
            example({"image/encoded": [jpeg(20, 30)], "image/class/label": np.asarray([n])})
            for n in range(shard * 3, shard * 3 + 3)
        ]
        write_records(tmp_path / f"validation-0000{shard}-of-00002", items)
    write_records(tmp_path / "train-00000-of-00001", [b"not wanted"])
    dataset = get_dataset("ImageRecord", root=str(tmp_path))
    assert len(dataset) == 6 and [dataset[n][1] for n in (5, 0, 3)] == [5, 0, 3]
    assert dataset.origin(4).endswith("validation-00001-of-00002: record 1")
    assert dataset[0][0].shape == (20, 30, 3)
    parsed = get_dataset(
        "ImageRecord",
        root=str(tmp_path),
        transform=compose({"ParseDecodeImagenet": {}, "Resize": 8}),
    )
    assert parsed[1][0].shape == (8, 8, 3) and parsed[1][1] == 1
    assert len(get_dataset("Imagenet", root=str(tmp_path))) == 6


def test_raw_records_with_parse_transform(tmp_path, jpeg, example, write_records):
    item = example({"image/encoded": [jpeg(20, 30)], "image/class/label": np.asarray([3])})
    path = write_records(tmp_path / "a.record", [item])
    raw = get_dataset("TFRecordDataset", root=str(path))
    assert raw[0] == item
    parsed = get_dataset(
        "TFRecordDataset", str(path), transform=compose({"ParseDecodeImagenet": {}})
    )
    assert parsed[0][0].shape == (20, 30, 3) and parsed[0][1] == 3
    with pytest.raises(DataError, match="a filter needs parsed records"):
        len(get_dataset("TFRecordDataset", root=str(path), filter=lambda image, label: True))


def test_label_missing_is_named(tmp_path, jpeg, example, write_records):
    path = write_records(tmp_path / "a.record", [example({"image/encoded": [jpeg(9, 9)]})])
    with pytest.raises(DataError, match=r"a\.record: record 0: 'image/class/label' should be one"):
        get_dataset("ImageRecord", root=str(path))[0]


def test_voc_record(tmp_path, jpeg, example, write_records):
    classes = np.random.default_rng(1).integers(0, 21, (20, 30), dtype=np.uint8)
    # A palette gives the classes colours; the classes are the indices.
    mask = Image.frombytes("P", (30, 20), classes.tobytes())
    mask.putpalette([255 - n for n in range(256) for _ in range(3)])
    stream = io.BytesIO()
    mask.save(stream, format="PNG")
    item = {
        "image/encoded": [jpeg(20, 30)],
        "image/segmentation/class/encoded": [stream.getvalue()],
    }
    write_records(tmp_path / "val-00000-of-00001.tfrecord", [example(item)])
    image, label = get_dataset("VOCRecord", root=str(tmp_path))[0]
    assert image.shape == (20, 30, 3) and label.shape == (20, 30, 1)
    assert np.array_equal(label[:, :, 0], classes)
    item["image/segmentation/class/encoded"] = [jpeg(20, 30)]
    path = write_records(tmp_path / "b.record", [example(item)])
    with pytest.raises(DataError, match="segmentation's mode is 'RGB'"):
        get_dataset("VOCRecord", root=str(path))[0]


def test_no_record_files(tmp_path):
    with pytest.raises(DataError, match=r"ImageRecord: nothing found .*validation-00000-of-00128"):
        get_dataset("ImageRecord", root=str(tmp_path))
    with pytest.raises(ConfigError, match="needs root"):
        get_dataset("ImageRecord")
