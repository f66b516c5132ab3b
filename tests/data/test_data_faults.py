"""Damaged, odd and missing data: each is refused with the file, and the line or sample."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import record_files
from lpot.core.errors import ConfigError, DataError, LpotError
from lpot.data import build_loader, compose, get_dataset
from lpot.data.image import decode
from lpot.data.record import parse_example
from lpot.data.transforms.parse import coco_sample, imagenet_sample, voc_sample

PIXELS = np.random.default_rng(3).integers(0, 256, (10, 14, 3), dtype=np.uint8)


def encoded(
    format: str = "PNG", mode: str = "RGB", array: np.ndarray = PIXELS, **more: Any
) -> bytes:
    stream = io.BytesIO()
    picture = Image.fromarray(array)
    picture = picture.convert(mode) if array.dtype == np.uint8 else picture
    picture.save(stream, format, **more)
    return stream.getvalue()


def one_image(folder: Path, data: bytes, label: str = "0") -> Any:
    (folder / "x.img").write_bytes(data)
    (folder / "val_map.txt").write_text(f"x.img {label}\n", "utf-8")
    return get_dataset("ImagenetRaw", data_path=str(folder))


# -- images -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "mode"),
    [
        ("JPEG", "RGB"),
        ("JPEG", "CMYK"),
        ("JPEG", "L"),
        ("PNG", "P"),
        ("PNG", "RGBA"),
        ("PNG", "LA"),
        ("PNG", "1"),
        ("GIF", "P"),
        ("WEBP", "RGB"),
        ("BMP", "RGB"),
    ],
)
def test_every_eight_bit_mode_becomes_rgb(tmp_path: Path, format: str, mode: str) -> None:
    image, _ = one_image(tmp_path, encoded(format, mode))[0]
    assert image.shape == (10, 14, 3) and image.dtype == np.uint8


def test_an_orientation_mark_does_not_turn_the_pixels(tmp_path: Path) -> None:
    """As Pillow, TensorFlow and torchvision read it."""
    mark = Image.Exif()
    mark[0x112] = 6
    image, _ = one_image(tmp_path, encoded("JPEG", exif=mark))[0]
    assert image.shape == (10, 14, 3)


@pytest.mark.parametrize("kind", ["uint16", "int32", "float32"])
def test_wider_modes_are_refused(tmp_path: Path, kind: str) -> None:
    data = encoded("TIFF", array=PIXELS[..., 0].astype(kind))
    with pytest.raises(DataError, match=r"x\.img: the image mode .* without loss"):
        one_image(tmp_path, data)[0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"<html>gone</html>", "begins with b'<html>go'"),
        (encoded("JPEG")[:300], "can't be decoded"),
    ],
)
def test_what_is_no_image(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"x.img: .*{message}") as told:
        one_image(tmp_path, data)[0]
    assert "0x" not in str(told.value)  # an address would differ from run to run


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
@pytest.mark.filterwarnings("ignore")
def test_flipped_bytes_never_surprise(format: str) -> None:
    rng, good = np.random.default_rng(1), encoded(format)
    for _ in range(60):
        torn = np.frombuffer(good, np.uint8).copy()
        torn[rng.integers(len(torn), size=4)] = rng.integers(256, size=4)
        try:
            decode(torn.tobytes()[: rng.integers(len(torn) // 2, len(torn) + 1)], "x")
        except DataError:
            continue


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"x.img 0\n\xff\xfe 1\n", r"list\.txt:2: is not UTF-8"),
        (b"x.img 99999999999999999999\n", r"list\.txt:1: expected 'name label'"),
        (b"x.img -1\n", r"list\.txt:1: expected 'name label'"),
        (b"\n\n", r"list\.txt: the list is empty"),
    ],
)
def test_lists(tmp_path: Path, content: bytes, message: str) -> None:
    one_image(tmp_path, encoded())
    (tmp_path / "list.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        get_dataset("ImagenetRaw", data_path=str(tmp_path), image_list=str(tmp_path / "list.txt"))


def test_a_transform_that_does_not_fit_names_the_sample(tmp_path: Path) -> None:
    one_image(tmp_path, encoded())
    section = {
        "dataset": {"ImagenetRaw": {"data_path": str(tmp_path)}},
        "transform": {"AlignImageChannel": {"dim": 1}, "Normalize": {"mean": [1, 2, 3]}},
    }
    with pytest.raises(DataError, match=r"x\.img: mean has 3 values"):
        list(build_loader(section))


def test_a_record_nobody_took_apart(tmp_path: Path) -> None:
    record_files.write(tmp_path / "x.record", [b"abc"])
    for step in ("Resize", "Rescale"):
        section = {
            "dataset": {"TFRecordDataset": {"root": str(tmp_path / "x.record")}},
            "transform": {step: {"size": 4} if step == "Resize" else {}},
        }
        with pytest.raises(DataError, match=rf"x\.record: record 0: {step} takes .* ParseDecode"):
            list(build_loader(section))


@pytest.mark.parametrize(
    "step",
    [
        {"Resize": {"size": 4}},
        {"Pad": {"padding": 1}},
        {"ResizeWithRatio": {"min_dim": 8, "max_dim": 16}},
        {"ResizeCropImagenet": {"height": 8, "width": 8, "resize_side": 10}},
        {"AlignImageChannel": {"dim": 3}},
    ],
)
@pytest.mark.parametrize("image", [np.zeros((0, 5, 3), np.uint8), np.zeros(5), b"abc"])
def test_what_can_not_be_an_image(step: dict[str, Any], image: Any) -> None:
    if "AlignImageChannel" in step and np.ndim(image) == 3:
        pytest.skip("nothing to align, nothing to refuse")
    with pytest.raises(DataError, match=r"not an image yet|of shape"):
        compose(step)((image, 0))


# -- arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ImageFolder", {"root": 5}, "root of dataset ImageFolder should be a string, not 5"),
        ("ImageFolder", {"root": None}, "should be a string, not None"),
        ("MNIST", {"root": ".", "train": "yes"}, "train of dataset MNIST should be true or false"),
        ("GLUE", {"data_dir": ".", "model_name_or_path": ".", "max_seq_length": "x"}, "whole"),
        ("style_transfer", {"content_folder": ".", "style_folder": ".", "crop_ratio": "x"}, "num"),
    ],
)
def test_arguments_of_the_wrong_type(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_dataset(name, **options)


@pytest.mark.parametrize("name", ["ImageFolder", "MNIST", "CIFAR10", "COCORaw"])
def test_a_file_where_a_folder_is_expected(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(DataError, match="file: is a file, expected a folder"):
        get_dataset(name, root=str(tmp_path / "file"))


def test_a_folder_where_a_file_is_expected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder, expected a SQuAD file"):
        get_dataset("SQuAD", label_file=str(tmp_path), vocab_file=str(tmp_path))


# -- published files ----------------------------------------------------------------------------


def idx(values: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, values.ndim]) + np.asarray(values.shape, ">u4").tobytes()
    return head + values.astype(np.uint8).tobytes()


def packed(content: bytes) -> bytes:
    """Without the time of day: every test process must see the same cases."""
    return gzip.compress(content, mtime=0)


DIGITS = packed(idx(np.zeros((3, 28, 28))))
NUMBERS = packed(idx(np.arange(3)))


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (DIGITS[:-10], NUMBERS, "t10k-images.*can't be unpacked"),
        (DIGITS, NUMBERS[:-6], "t10k-labels.*can't be unpacked"),
        (DIGITS[:-8] + b"\0\0\0\0" + DIGITS[-4:], NUMBERS, "CRC check failed"),
        (idx(np.zeros((3, 28, 28))), NUMBERS, "Not a gzipped file"),
        (packed(b"\0\0\x08\x03" + b"\xff" * 12), NUMBERS, "its header says"),
        (packed(idx(np.zeros((0, 28, 28)))), packed(idx(np.arange(0))), "no images"),
    ],
    ids=["images cut", "labels cut", "checksum", "not packed", "header", "empty"],
)
def test_mnist(tmp_path: Path, images: bytes, labels: bytes, message: str) -> None:
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(images)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(labels)
    with pytest.raises(DataError, match=message):
        get_dataset("MNIST", root=str(tmp_path))


@pytest.mark.parametrize("labels", [np.arange(3)[:, None], np.arange(3) + 0.5])
def test_mnist_labels_of_an_npz(tmp_path: Path, labels: np.ndarray) -> None:
    np.savez(tmp_path / "mnist.npz", x_test=np.zeros((3, 28, 28), np.uint8), y_test=labels)
    with pytest.raises(DataError, match=r"mnist\.npz: .*expected"):
        get_dataset("MNIST", root=str(tmp_path))


def archive(folder: Path, *members: tarfile.TarInfo, content: bytes = b"") -> Path:
    path = folder / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as packed:
        for member in members:
            packed.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return path


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0
) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, link, size
    return made


BATCH = "cifar-10-batches-py/test_batch"


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        (tarfile.SYMTYPE, "test_batch"),
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.SYMTYPE, "../../../etc/passwd"),
        (tarfile.LNKTYPE, "/etc/passwd"),
        (tarfile.DIRTYPE, ""),
    ],
)
def test_cifar_archives_of_links(tmp_path: Path, kind: bytes, link: str) -> None:
    archive(tmp_path, member(BATCH, kind, link))
    with pytest.raises(DataError, match=r"tar\.gz: .*test_batch is not a file"):
        get_dataset("CIFAR10", root=str(tmp_path))


def test_cifar_by_its_archive_and_nothing_leaves_it(tmp_path: Path) -> None:
    content = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 9]}
    data = pickle.dumps(content, protocol=2)
    inside = tmp_path / "inside"
    inside.mkdir()
    path = archive(
        inside,
        member("../../escaped", size=len(data)),
        member(BATCH, size=len(data)),
        content=data,
    )
    assert len(get_dataset("CIFAR10", root=str(path))) == 2
    assert [one.name for one in tmp_path.iterdir()] == ["inside"]


# -- text ---------------------------------------------------------------------------------------


@pytest.fixture
def words(tmp_path: Path) -> Path:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "fox"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    return tmp_path


MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
STSB = "index\tgenre\tfile\tyear\told\ts1\ts2\tsentence1\tsentence2\tscore\n"


def glue(folder: Path, content: bytes, task: str = "mrpc") -> Any:
    (folder / "dev.tsv").write_bytes(content)
    return get_dataset("GLUE", data_dir=str(folder), model_name_or_path=str(folder), task=task)


def test_tsv_of_quotes_and_windows_line_ends(words: Path) -> None:
    text = f'{MRPC}1\t1\t2\t"red fox\tfox" he said\r\n0\t3\t4\tred\u2028fox\tfox\r\n'
    found = glue(words, b"\xef\xbb\xbf" + text.encode())
    assert [row.texts for row in found.rows] == [
        ('"red fox', 'fox" he said'),
        ("red\u2028fox", "fox"),
    ]
    assert [row.label for row in found.rows] == [1, 0]


@pytest.mark.parametrize(
    ("content", "task", "message"),
    [
        (MRPC + "1\t1\t2\tred\n", "mrpc", "dev.tsv:2: has 4 columns, expected 5"),
        (MRPC + "2\t1\t2\tred\tfox\n", "mrpc", "dev.tsv:2: the label '2' is none of 0, 1"),
        (STSB + "0\tg\tf\t1\t1\t1\t1\ta\tb\tnan\n", "sts-b", "dev.tsv:2: the score 'nan'"),
        (STSB + "0\tg\tf\t1\t1\t1\t1\ta\tb\t9.5\n", "sts-b", "dev.tsv:2: the score '9.5'"),
        (MRPC, "mrpc", "holds no rows"),
    ],
)
def test_tsv_rows(words: Path, content: str, task: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        glue(words, content.encode(), task)


def test_tsv_that_is_not_utf8_names_the_line(words: Path) -> None:
    with pytest.raises(DataError, match=r"dev\.tsv:2: is not UTF-8"):
        glue(words, MRPC.encode() + b"1\t1\t2\tr\xe9d\tfox\n")


def test_tokenizer_json_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"x": 1}')
    with pytest.raises(DataError, match=r"tokenizer\.json: is not a tokenizer\.json"):
        glue(tmp_path, f"{MRPC}1\t1\t2\tred\tfox\n".encode())


def squad_file(**change: Any) -> dict[str, Any]:
    question = {"id": "q1", "question": "fox?", "answers": [{"text": "red", "answer_start": 0}]}
    paragraph = {"context": "red fox", "qas": [question | change.pop("question", {})]}
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [paragraph | change]}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (squad_file(question={"is_impossible": True, "answers": []}), "'q1' is marked impossible"),
        (squad_file() | {"version": "v2.0"}, "is SQuAD version v2.0"),
        (squad_file(context=""), "paragraph of question 'q1' is empty"),
        (squad_file(context=5), "article 't' lacks context"),
        (squad_file(qas=[squad_file()["data"][0]["paragraphs"][0]["qas"][0]] * 2), "appears twice"),
        (squad_file(question={"answers": ["red"]}), "article 't' lacks"),
    ],
)
def test_squad(words: Path, content: Any, message: str) -> None:
    (words / "dev.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"dev.json: .*{message}"):
        get_dataset("SQuAD", label_file=str(words / "dev.json"), vocab_file=str(words))


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[" * 100_000, b'{"data": ['])
def test_squad_that_is_no_json(words: Path, content: bytes) -> None:
    (words / "dev.json").write_bytes(content)
    with pytest.raises(DataError, match=r"dev\.json.* is not"):
        get_dataset("SQuAD", label_file=str(words / "dev.json"), vocab_file=str(words))


# -- boxes --------------------------------------------------------------------------------------


def coco(
    folder: Path, image: dict[str, Any] | None = None, mark: dict[str, Any] | None = None
) -> Any:
    for name in ("val2017", "annotations"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "val2017" / "a.png").write_bytes(encoded())
    content = {
        "images": [{"id": 1, "file_name": "a.png", "height": 10, "width": 14} | (image or {})],
        "annotations": [
            {"id": 5, "image_id": 1, "category_id": 18, "bbox": [1, 2, 3, 4]} | (mark or {})
        ],
        "categories": [{"id": 18, "name": "dog"}],
    }
    (folder / "annotations" / "instances_val2017.json").write_text(json.dumps(content))
    return get_dataset("COCORaw", root=str(folder))


def test_a_crowd_of_runs_is_a_box(tmp_path: Path) -> None:
    runs = {"iscrowd": 1, "segmentation": {"counts": [1, 2, 3], "size": [10, 14]}}
    assert coco(tmp_path, mark=runs)[0][1][2].tolist() == [18]


@pytest.mark.parametrize(
    ("image", "mark", "message"),
    [
        ({}, {"bbox": None}, "annotation 5 has the box None"),
        ({}, {"bbox": "abcd"}, "annotation 5 has the box 'abcd'"),
        ({}, {"bbox": [float("nan"), 1, 2, 3]}, "annotation 5 has the box"),
        ({}, {"bbox": [1, 1, -2, 3]}, "annotation 5 has the box"),
        ({}, {"image_id": [1]}, r"annotation 5 has the image_id \[1\]"),
        ({"height": "ten"}, {}, "image 1 has the height 'ten'"),
        ({"height": 0}, {}, "image 1 has the height 0"),
        ({"file_name": 4}, {}, "image 1 has no file_name"),
        ({"file_name": "b.png"}, {}, "1 of 1 images of .* are not in .*, first b.png"),
    ],
)
def test_annotations(
    tmp_path: Path, image: dict[str, Any], mark: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        coco(tmp_path, image, mark)


# -- records ------------------------------------------------------------------------------------

SIDES = {f"image/object/bbox/{side}": np.asarray([0.1], np.float32) for side in ("ymin", "xmin")}
BOXES = SIDES | {f"image/object/bbox/{s}": np.asarray([0.9], np.float32) for s in ("ymax", "xmax")}
SCENE = BOXES | {"image/encoded": [encoded()], "image/object/class/label": np.asarray([1])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image/object/bbox/ymin": [b"x"]}, "'image/object/bbox/ymin' holds strings"),
        ({"image/object/class/label": [b"x"]}, "'image/object/class/label' holds strings"),
        ({"image/object/class/text": np.asarray([1])}, "holds numbers, expected names"),
        ({"image/object/bbox/ymin": np.asarray([0.1, 0.2], np.float32)}, "differ in number"),
        ({"image/encoded": [b""]}, "is empty"),
    ],
)
def test_detection_records(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "x.record"
    record_files.write(path, [record_files.serialize(SCENE | change)])
    with pytest.raises(DataError, match=rf"x\.record: record 0: .*{message}"):
        get_dataset("COCORecord", root=str(path))[0]


def test_segmentation_of_another_size(tmp_path: Path) -> None:
    mask = encoded(array=PIXELS[:5, :, 0], mode="L")
    features = {"image/encoded": [encoded()], "image/segmentation/class/encoded": [mask]}
    record_files.write(tmp_path / "x.record", [record_files.serialize(features)])
    with pytest.raises(DataError, match=r"record 0: the image is \(10, 14\), its segmentation"):
        get_dataset("VOCRecord", root=str(tmp_path / "x.record"))[0]


def test_no_records_and_giant_ones(tmp_path: Path) -> None:
    path = tmp_path / "x.record"
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"x\.record: holds no records"):
        len(get_dataset("ImageRecord", root=str(path)))
    record_files.write(path, [b"abc"])
    whole = path.read_bytes()
    path.write_bytes(struct.pack("<Q", 1 << 62) + whole[8:])
    with pytest.raises(DataError, match=r"record 0 .*checksum of its length"):
        len(get_dataset("ImageRecord", root=str(path)))


def test_flipped_bytes_of_an_example_never_surprise() -> None:
    rng = np.random.default_rng(0)
    good = record_files.serialize(SCENE | {"image/encoded": [b"abc"], "image/source_id": [b"x"]})
    for _ in range(1500):
        torn = np.frombuffer(good, np.uint8).copy()
        torn[rng.integers(len(torn), size=3)] = rng.integers(256, size=3)
        for reader in (coco_sample, imagenet_sample, voc_sample):
            try:
                reader(parse_example(torn.tobytes(), "x"), "x")
            except LpotError:
                continue
