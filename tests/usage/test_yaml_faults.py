"""What is wrong with data or yaml is told by `lpot tune` with file and line, or the sample."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

import onnx_models
import record_files

Refuse = Callable[..., str]

CONF = """\
model: {name: net}
quantization:
  calibration:
    sampling_size: 4
    dataloader:
      batch_size: 2
      dataset: {dummy: {shape: [4, 3, 8, 8], low: 0, high: 1}}
evaluation:
  accuracy:
    metric:
      topk: 1
    dataloader:
      batch_size: 2
      dataset:
        ImagenetRaw:
          data_path: images
      transform:
        Resize: {size: 8}
        ToTensor: {}
tuning:
  accuracy_criterion: {absolute: 1.0, really: true}
"""


def png(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture(autouse=True)
def images(here: Path) -> Path:
    onnx.save(onnx_models.cnn(), here / "net.onnx")
    folder = here / "images"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(6):
        picture = rng.integers(0, 256, (10, 12, 3), dtype=np.uint8)
        (folder / f"{number}.png").write_bytes(png(picture))
    (folder / "val_map.txt").write_text("\n".join(f"{n}.png {n % 4}" for n in range(6)))
    return folder


def changed(*pairs: tuple[str, str]) -> str:
    text = CONF
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


IMAGENET = "        ImagenetRaw:\n          data_path: images\n"


def with_dataset(dataset: str) -> str:
    return changed((IMAGENET, f"        {dataset}\n"))


def line_of(text: str, part: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), start=1) if part in line)


def test_it_is_right_as_it_stands(tune: Any) -> None:
    assert tune(CONF)["met"] is True


# -- names and options in the yaml --------------------------------------------------------------

NAMES = {
    "dataset": (("ImagenetRaw:", "ImagnetRaw:"), "did you mean 'ImagenetRaw'"),
    "calibration dataset": (("dummy:", "dumy:"), "did you mean 'dummy'"),
    "metric": (("topk: 1", "topc: {k: 1}"), "did you mean 'topk'"),
    "metric far off": (("topk: 1", "resemblance: {}"), "Available: topk, Accuracy"),
    "transform": (("Resize:", "Resise:"), "did you mean 'Resize'"),
    "dataset option": (("data_path:", "data_pth:"), "did you mean 'data_path'"),
    "transform option": (("{size: 8}", "{sise: 8}"), "did you mean 'size'"),
    "metric option": (("topk: 1", "F1: {averag: macro}"), "did you mean 'average'"),
    "metric value": (("topk: 1", "F1: {average: micr}"), "did you mean 'micro'"),
    "own metric's value": (("topk: 1", "GLUE: {task: mrcp}"), "did you mean 'mrpc'"),
    "metric key": (("topk: 1", "COCOmAP: {map_key: mAP}"), "is not known"),
    "transform value": (
        ("{size: 8}", "{size: 8, interpolation: bilnear}"),
        "did you mean 'bilinear'",
    ),
    "postprocess": (
        ("    metric:", "    postprocess: {transform: {LabelShft: 1}}\n    metric:"),
        "did you mean 'LabelShift'",
    ),
    "filter": (
        ("      transform:", "      filter: {LabelBalanc: {size: 1}}\n      transform:"),
        "did you mean 'LabelBalance'",
    ),
    "missing option": (("ImagenetRaw:\n          data_path: images", "CIFAR10: {}"), "needs root"),
}


@pytest.mark.parametrize(("change", "hint"), NAMES.values(), ids=NAMES)
def test_names_in_the_yaml(refuse: Refuse, change: tuple[str, str], hint: str) -> None:
    text = changed(change)
    said = refuse(text)
    new = change[1].split("\n")[0].strip()
    line = line_of(text, new)
    assert re.search(rf"conf\.yaml:{line}\b", said), said
    assert hint in said


def test_folder_that_is_not_there(refuse: Refuse) -> None:
    text = changed(("data_path: images", "data_path: imges"))
    said = refuse(text)
    assert "conf.yaml:14" in said
    assert "imges: no such folder" in said


def test_metrics_and_weights_that_do_not_fit(refuse: Refuse) -> None:
    many = "multi_metrics: {topk: 1, F1: {average: macro}, weight: [1, 2, 3]}"
    text = changed(("metric:\n      topk: 1", many))
    said = refuse(text)
    assert "conf.yaml:10" in said and "given 3 values for 2 metrics" in said
    text = changed(("metric:\n      topk: 1", many.replace("[1, 2, 3]", "[-1, 2]")))
    said = refuse(text)
    assert "conf.yaml:10" in said and "expected numbers from 0" in said


def test_endless_data_need_a_number(refuse: Refuse) -> None:
    said = refuse(with_dataset("dummy_v2: {input_shape: [3, 8, 8], label_shape: [1]}"))
    assert "conf.yaml:12: evaluation.accuracy.iteration: the evaluation dataset never ends" in said


# -- settings that do not go together: a note, not an end ---------------------------------------


def test_direction_against_the_metric(tune: Any) -> None:
    metric = "metric:\n      MSE: {compare_label: false}"
    told = tune(changed(("metric:\n      topk: 1", metric)))
    (note,) = [note for note in told["notes"] if "is better: set" in note]
    assert note.startswith("warning: conf.yaml:")
    assert "for the metric MSE lower is better: set it to false" in note
    right = changed(
        ("metric:\n      topk: 1", metric),
        ("{absolute: 1.0, really: true}", "{absolute: 1.0, really: true, higher_is_better: false}"),
    )
    assert not [note for note in tune(right)["notes"] if "is better: set" in note]


def test_threads_are_not_acted_upon(tune: Any) -> None:
    text = changed(("    metric:", "    configs: {intra_num_of_threads: 4}\n    metric:"))
    (note,) = [note for note in tune(text)["notes"] if "has no effect while tuning" in note]
    assert note.startswith("conf.yaml:10: evaluation.accuracy.configs (intra_num_of_threads)")


# -- data ---------------------------------------------------------------------------------------


def test_corrupt_image(refuse: Refuse, images: Path) -> None:
    (images / "3.png").write_bytes((images / "3.png").read_bytes()[:60])
    assert "images/3.png: can't be decoded as an image" in refuse(CONF)


def test_corrupt_calibration_image(refuse: Refuse, images: Path) -> None:
    (images / "1.png").write_bytes(b"no image")
    dummy = "dataset: {dummy: {shape: [4, 3, 8, 8], low: 0, high: 1}}"
    text = changed(
        (
            dummy,
            "dataset: {ImagenetRaw: {data_path: images}}\n"
            "      transform: {Resize: 8, ToTensor: {}}",
        )
    )
    said = refuse(text)
    assert "images/1.png: can't be decoded as an image" in said


def test_wrong_image_mode(refuse: Refuse, images: Path) -> None:
    deep = np.arange(100, dtype=np.uint16).reshape(10, 10) * 600
    Image.fromarray(deep).save(images / "2.png")
    said = refuse(CONF)
    assert "images/2.png: the image mode 'I;16' can't become 'RGB'" in said


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0.png zero", "val_map.txt:3: expected 'name label'"),
        ("9.png 1", "val_map.txt:3: there is no image"),
    ],
)
def test_broken_list(refuse: Refuse, images: Path, line: str, message: str) -> None:
    (images / "val_map.txt").write_text(f"0.png 0\n1.png 1\n{line}\n")
    said = refuse(CONF)
    assert message in said and "conf.yaml:14" in said


def test_label_out_of_range(refuse: Refuse, images: Path) -> None:
    (images / "val_map.txt").write_text("0.png 0\n1.png 1\n2.png 2\n3.png 4\n")
    said = refuse(CONF)
    assert "metric 'topk', sample 3: label 4 is out of range: the model gives 4 classes" in said


def test_empty_dataset(refuse: Refuse, images: Path) -> None:
    (images / "val_map.txt").write_text("\n")
    assert "val_map.txt: the list is empty" in refuse(CONF)


def record(label: int = 1) -> bytes:
    picture = np.zeros((8, 8, 3), dtype=np.uint8)
    return record_files.serialize(
        {"image/encoded": [png(picture)], "image/class/label": np.asarray([label])}
    )


def test_truncated_record(refuse: Refuse, here: Path) -> None:
    path = record_files.write(here / "a.record", [record(), record()])
    path.write_bytes(path.read_bytes()[:-7])
    said = refuse(with_dataset("ImageRecord: {root: a.record}"))
    assert re.search(r"a\.record: .*(record 1|truncated|ends)", said), said


def test_flipped_bit_in_a_record(refuse: Refuse, here: Path) -> None:
    path = record_files.write(here / "a.record", [record(), record()])
    content = bytearray(path.read_bytes())
    content[len(content) // 2 + 60] ^= 1
    path.write_bytes(bytes(content))
    said = refuse(with_dataset("ImageRecord: {root: a.record}"))
    assert re.search(r"a\.record: .*record 1.*checksum|a\.record: record 1: .*checksum", said), said


def test_broken_tsv_row(refuse: Refuse, here: Path) -> None:
    (here / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nred\n")
    (here / "dev.tsv").write_text("sentence\tlabel\nred\t1\nred red\n")
    text = with_dataset("GLUE: {data_dir: ., model_name_or_path: ., task: sst-2}")
    assert "dev.tsv:3: has 1 columns, expected 2" in refuse(text)


def test_annotation_for_a_missing_image(refuse: Refuse, here: Path) -> None:
    (here / "annotations").mkdir()
    content: dict[str, Any] = {
        "images": [{"id": 1, "file_name": "0.png", "height": 10, "width": 12}],
        "annotations": [{"id": 5, "image_id": 2, "category_id": 1, "bbox": [1, 1, 2, 2]}],
        "categories": [{"id": 1, "name": "person"}],
    }
    path = here / "annotations" / "instances_val2017.json"
    path.write_text(json.dumps(content))
    text = with_dataset("COCORaw: {root: ., img_dir: images}")
    said = refuse(text)
    assert "annotation 5 refers to image 2, which is not in 'images'" in said
    content["annotations"] = []
    content["images"][0]["file_name"] = "gone.png"
    path.write_text(json.dumps(content))
    said = refuse(text)
    assert "1 of 1 images" in said and "first gone.png" in said


def test_archive_that_leads_elsewhere(refuse: Refuse, here: Path) -> None:
    (here / "cifar").mkdir()
    rows = np.zeros((4, 3073), dtype=np.uint8).tobytes()
    with tarfile.open(here / "cifar" / "cifar-10-binary.tar.gz", "w:gz") as packed:
        for name in ("../../escaped.bin", "cifar-10-batches-bin/../../test_batch.bin"):
            info = tarfile.TarInfo(name)
            info.size = len(rows)
            packed.addfile(info, io.BytesIO(rows))
    said = refuse(with_dataset("CIFAR10: {root: cifar}"))
    assert "cifar-10-binary.tar.gz: can't be read as the published archive" in said
    assert not list(here.rglob("escaped.bin")) and not list(here.parent.glob("escaped.bin"))


def test_nan_predictions(refuse: Refuse, here: Path) -> None:
    model = onnx_models.cnn()
    bias = next(one for one in model.graph.initializer if one.name == "head_b")
    bias.CopyFrom(onnx.numpy_helper.from_array(np.full(4, np.nan, np.float32), "head_b"))
    onnx.save(model, here / "net.onnx")
    assert "metric 'topk', sample 0: the prediction is NaN" in refuse(CONF)


def test_lengths_that_do_not_match(refuse: Refuse, here: Path) -> None:
    net = onnx_models.Net()
    last = net.op("Flatten", [net.input("image", ["n", 3, 8, 8])])
    net.weight("w", 192, 4)
    last = net.op("MatMul", [last, "w"], name="head")
    onnx.save(net.model(net.op("Concat", [last, last], axis=0)), here / "net.onnx")
    said = refuse(CONF)
    assert "4 predictions (shape (4, 4)) but 2 labels (shape (2,))" in said
    assert "in the batch that begins at sample 0" in said


def test_images_of_several_sizes(refuse: Refuse, images: Path) -> None:
    (images / "1.png").write_bytes(png(np.zeros((9, 9, 3), dtype=np.uint8)))
    said = refuse(changed(("        Resize: {size: 8}\n", "")))
    assert "ImagenetRaw, samples 0 to 1: sample" in said and "Add a Resize transform" in said
