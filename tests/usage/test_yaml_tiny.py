"""Each family of data from a yaml alone, on tiny files and nets whose FP32 score is known."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

import onnx_models
import record_files
from lpot.metric import get_metric

COUNT = 20
RNG = np.random.default_rng(11)
Tune = Callable[..., dict[str, Any]]


def conf(dataset: str, metric: str, transform: str = "{}", more: str = "", bar: str = "") -> str:
    """The same data for calibration and evaluation, in batches of 4."""
    loader = f"{{batch_size: 4, dataset: {dataset}, transform: {transform}}}"
    return (
        "model: {name: net, framework: onnxrt_qlinearops}\n"
        f"quantization: {{calibration: {{sampling_size: 8, dataloader: {loader}}}}}\n"
        f"evaluation: {{accuracy: {{{metric}, dataloader: {loader}{more}}}}}\n"
        f"tuning: {{accuracy_criterion: {{{bar or 'absolute: 1.0, really: true'}}}}}\n"
    )


def outputs(model: onnx.ModelProto, *inputs: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [one.name for one in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))


def mostly(right: np.ndarray, classes: int) -> np.ndarray:
    """Labels of which every fifth is not what the net says: FP32 scores 0.8."""
    labels = right.copy()
    labels[::5] = (labels[::5] + 1) % classes
    return labels


def classifier(channels: int, size: int, classes: int = 4) -> onnx.ModelProto:
    net = onnx_models.Net(seed=5)
    last = net.input("image", ["n", channels, size, size])
    net.weight("w1", 8, channels, 3, 3, scale=0.5)
    last = net.op("Conv", [last, "w1"], name="conv", strides=[2, 2])
    last = net.op("Relu", [last])
    last = net.op("Flatten", [last])
    side = (size - 3) // 2 + 1
    weights = np.random.default_rng(6).standard_normal((classes, 8 * side * side))
    # Pictures differ little on average: only what differs from place to place should decide.
    weights -= weights.reshape(classes, 8, -1).mean(2).repeat(side * side, axis=1)
    net.const("w2", weights.astype(np.float32))
    return net.model(net.op("Gemm", [last, "w2"], "logits", name="head", transB=1))


def check(told: dict[str, Any], fp32: float) -> None:
    assert told["baseline"]["accuracy"] == pytest.approx(fp32, abs=1e-6)
    assert told["met"] is True
    assert told["precisions"].get("int8", 0) + told["precisions"].get("uint8", 0) > 0


# -- pictures -----------------------------------------------------------------------------------

PICTURES = RNG.integers(0, 256, (COUNT, 12, 10, 3), dtype=np.uint8)
STEPS = "{Resize: {size: 8}, Normalize: {mean: 127, std: 64}, Transpose: {perm: [2, 0, 1]}}"


def png(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG")
    return stream.getvalue()


def prepared() -> np.ndarray:
    """The pictures as the net takes them, by Pillow alone."""
    small = [Image.fromarray(one).resize((8, 8), Image.Resampling.BILINEAR) for one in PICTURES]
    values = (np.stack([np.asarray(one) for one in small]).astype(np.float32) - 127) / 64
    return values.transpose(0, 3, 1, 2)


@pytest.fixture
def pictures(here: Path) -> np.ndarray:
    """The pictures in every layout, and their labels."""
    model = classifier(3, 8)
    onnx.save(model, here / "net.onnx")
    labels = mostly(outputs(model, prepared())[0].argmax(1), 4)
    (here / "flat").mkdir()
    records = []
    for number, (picture, label) in enumerate(zip(PICTURES, labels, strict=True)):
        (here / "flat" / f"{number}.png").write_bytes(png(picture))
        (here / "tree" / f"class{label}").mkdir(parents=True, exist_ok=True)
        (here / "tree" / f"class{label}" / f"{number}.png").write_bytes(png(picture))
        features = {"image/encoded": [png(picture)], "image/class/label": np.asarray([label])}
        records.append(record_files.serialize(features))
    lines = "\n".join(f"{number}.png {label}" for number, label in enumerate(labels))
    (here / "flat" / "val_map.txt").write_text(lines)
    record_files.write(here / "validation-00000-of-00001", records)
    record_files.write(here / "all.record", [*records])
    return labels


@pytest.mark.parametrize(
    ("dataset", "steps"),
    [
        ("{ImagenetRaw: {data_path: flat}}", STEPS),
        ("{ImagenetRaw: {data_path: flat, image_list: flat/val_map.txt}}", STEPS),
        ("{ImageFolder: {root: tree}}", STEPS),
        ("{ImageRecord: {root: .}}", STEPS),
        (
            "{TFRecordDataset: {root: all.record}}",
            STEPS.replace("{", "{ParseDecodeImagenet: {}, ", 1),
        ),
        ("{Imagenet: {root: flat}}", STEPS),
    ],
    ids=["ImagenetRaw", "with a list", "ImageFolder", "ImageRecord", "TFRecordDataset", "Imagenet"],
)
def test_pictures(pictures: np.ndarray, tune: Tune, dataset: str, steps: str) -> None:
    told = tune(conf(dataset, "metric: {topk: 1}", steps))
    check(told, 0.8)
    assert told["baseline"]["samples"] == COUNT


def test_several_metrics(pictures: np.ndarray, tune: Tune) -> None:
    """In the order they are written, whatever the order of the schema."""
    metric = "multi_metrics: {F1: {average: macro}, topk: {k: 2}, weight: [0.25, 0.75]}"
    told = tune(conf("{ImagenetRaw: {data_path: flat}}", metric, STEPS))
    logits = outputs(classifier(3, 8), prepared())[0]
    f1, top2 = get_metric("F1", average="macro"), get_metric("topk", k=2)
    for one in (f1, top2):
        one.update(logits, pictures)
    assert f1.result() != top2.result()
    check(told, 0.25 * f1.result() + 0.75 * top2.result())


def test_labels_that_count_from_one(pictures: np.ndarray, here: Path, tune: Tune) -> None:
    lines = "\n".join(f"{number}.png {label + 1}" for number, label in enumerate(pictures))
    (here / "flat" / "val_map.txt").write_text(lines)
    more = ", postprocess: {transform: {LabelShift: 1}}"
    check(tune(conf("{ImagenetRaw: {data_path: flat}}", "metric: {topk: 1}", STEPS, more)), 0.8)


# -- files as published -------------------------------------------------------------------------


def idx(path: Path, values: np.ndarray) -> None:
    head = bytes([0, 0, 8, values.ndim]) + np.asarray(values.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(head + values.astype(np.uint8).tobytes()))


def cifar(here: Path, images: np.ndarray, labels: np.ndarray) -> None:
    folder = here / "cifar-10-batches-bin"
    folder.mkdir()
    pixels = images.transpose(0, 3, 1, 2).reshape(COUNT, -1)
    rows = np.concatenate([labels[:, None].astype(np.uint8), pixels], axis=1)
    (folder / "test_batch.bin").write_bytes(rows.tobytes())


def cifar100(here: Path, images: np.ndarray, labels: np.ndarray) -> None:
    (here / "cifar-100-binary").mkdir()
    pixels = images.transpose(0, 3, 1, 2).reshape(COUNT, -1)
    both = np.stack([np.zeros_like(labels), labels], axis=1).astype(np.uint8)
    rows = np.concatenate([both, pixels], axis=1)
    (here / "cifar-100-binary" / "test.bin").write_bytes(rows.tobytes())


def digits(here: Path, images: np.ndarray, labels: np.ndarray) -> None:
    idx(here / "t10k-images-idx3-ubyte.gz", images[..., 0])
    idx(here / "t10k-labels-idx1-ubyte.gz", labels)


@pytest.mark.parametrize(
    ("name", "size", "channels", "write"),
    [
        ("CIFAR10", 32, 3, cifar),
        ("CIFAR100", 32, 3, cifar100),
        ("MNIST", 28, 1, digits),
        ("FashionMNIST", 28, 1, digits),
    ],
    ids=["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST"],
)
def test_published_files(
    here: Path, tune: Tune, name: str, size: int, channels: int, write: Callable[..., None]
) -> None:
    model = classifier(channels, size)
    onnx.save(model, here / "net.onnx")
    images = RNG.integers(0, 256, (COUNT, size, size, channels), dtype=np.uint8)
    values = images.transpose(0, 3, 1, 2).astype(np.float32) / 255
    write(here, images, mostly(outputs(model, values)[0].argmax(1), 4))
    check(tune(conf(f"{{{name}: {{root: .}}}}", "metric: Accuracy", "{ToTensor: {}}")), 0.8)


# -- boxes --------------------------------------------------------------------------------------

HEIGHT, WIDTH = 16, 24


def detector() -> onnx.ModelProto:
    """Two boxes an image, in shares of it, with scores and classes."""
    net = onnx_models.Net(seed=8)
    last = net.input("image", ["n", 8, 8, 3])
    last = net.op("Flatten", [last])
    net.weight("w", 10, 192, scale=0.002)
    values = net.op("Gemm", [last, "w"], name="head", transB=1)
    net.const("start", np.asarray([0]))
    net.const("half", np.asarray([4]))
    net.const("six", np.asarray([6]))
    net.const("eight", np.asarray([8]))
    net.const("axis", np.asarray([1]))
    first = net.op("Sigmoid", [net.op("Slice", [values, "start", "half", "axis"])])
    second = net.op("Sigmoid", [net.op("Slice", [values, "half", "eight", "axis"])])
    net.const("low", np.asarray([0.0, 0.0, 0.5, 0.5], np.float32))
    net.const("scale", np.asarray([0.5], np.float32))
    rows = [
        net.op("Unsqueeze", [net.op("Add", [net.op("Mul", [one, "scale"]), "low"]), "axis"])
        for one in (first, second)
    ]
    net.op("Concat", rows, "boxes", axis=1)
    net.const("ten", np.asarray([10]))
    net.op("Sigmoid", [net.op("Slice", [values, "eight", "ten", "axis"])], "scores")
    net.const("classes_of", np.asarray([17.0, 18.0], np.float32))
    net.const("zero", np.asarray([0.0], np.float32))
    net.op("Add", [net.op("Mul", ["scores", "zero"]), "classes_of"], "classes")
    return net.model("boxes", "scores", "classes")


@pytest.fixture
def scenes(here: Path) -> float:
    """COCO in three layouts; half of the boxes to be found are those the net finds. FP32's mAP."""
    model = detector()
    onnx.save(model, here / "net.onnx")
    images = RNG.integers(0, 256, (COUNT, HEIGHT, WIDTH, 3), dtype=np.uint8)
    small = [Image.fromarray(one).resize((8, 8), Image.Resampling.BILINEAR) for one in images]
    values = np.stack([np.asarray(one) for one in small]).astype(np.float32)
    boxes, scores, classes = outputs(model, values)
    for name in ("val2017", "npy", "annotations"):
        (here / name).mkdir()
    truths, records, marks = [], [], []
    for number, image in enumerate(images):
        found = boxes[number].astype(np.float64) * [HEIGHT, WIDTH, HEIGHT, WIDTH]
        top, left, bottom, right = found[number % 2].round(3)
        if number % 4 == 3:
            bottom = top + 1.0  # a miss
        kind = 17 + number % 2
        marks.append(
            {
                "id": number,
                "image_id": number,
                "category_id": kind,
                "bbox": [left, top, right - left, bottom - top],
            }
        )
        (here / "val2017" / f"{number}.png").write_bytes(png(image))
        np.save(here / "npy" / f"{number}.png.npy", image)
        sides = np.asarray([top / HEIGHT, left / WIDTH, bottom / HEIGHT, right / WIDTH], np.float32)
        keys = ("ymin", "xmin", "ymax", "xmax")
        features = {f"image/object/bbox/{key}": sides[at : at + 1] for at, key in enumerate(keys)}
        features["image/object/class/label"] = np.asarray([kind])
        features["image/encoded"] = [png(image)]
        features["image/source_id"] = [f"{number}.png".encode()]
        records.append(record_files.serialize(features))
        truths.append(sides[None])
    content = {
        "images": [
            {"id": n, "file_name": f"{n}.png", "height": HEIGHT, "width": WIDTH}
            for n in range(COUNT)
        ],
        "annotations": marks,
        "categories": [{"id": 17, "name": "cat"}, {"id": 18, "name": "dog"}],
    }
    (here / "annotations" / "instances_val2017.json").write_text(json.dumps(content))
    record_files.write(here / "coco.record", records)
    metric = get_metric("COCOmAP")
    numbers = np.asarray([[17 + n % 2] for n in range(COUNT)])
    names = [[] for _ in range(COUNT)]
    metric.update([boxes, scores, classes], (truths, names, numbers, np.arange(COUNT)))
    return float(metric.result())


@pytest.mark.parametrize(
    "dataset",
    [
        "{COCORaw: {root: .}}",
        "{COCONpy: {root: ., npy_dir: npy}}",
        "{COCORecord: {root: coco.record}}",
    ],
    ids=["COCORaw", "COCONpy", "COCORecord"],
)
@pytest.mark.parametrize(
    "metric", ["{COCOmAP: {}}", "{COCOmAP: {anno_path: annotations/instances_val2017.json}}"]
)
def test_boxes(scenes: float, tune: Tune, dataset: str, metric: str) -> None:
    steps = "{Resize: {size: 8}, Cast: {dtype: float32}}"
    told = tune(conf(dataset, f"metric: {metric}", steps))
    assert 0.2 < scenes < 1
    assert told["baseline"]["accuracy"] == pytest.approx(scenes, abs=1e-3)
    assert told["met"] is True


def test_filter_keeps_images_of_one_box(scenes: float, tune: Tune) -> None:
    loader = (
        "{batch_size: 1, dataset: {COCORaw: {root: .}}, filter: {LabelBalance: {size: 1}},"
        " transform: {Resize: {size: 8}, Cast: {dtype: float32}}}"
    )
    text = (
        "model: {name: net}\n"
        f"quantization: {{calibration: {{sampling_size: 4, dataloader: {loader}}}}}\n"
        f"evaluation: {{accuracy: {{metric: COCOmAP, dataloader: {loader}}}}}\n"
        "tuning: {accuracy_criterion: {absolute: 1.0, really: true}}\n"
    )
    assert tune(text)["baseline"]["samples"] == COUNT


def test_segments(here: Path, tune: Tune) -> None:
    net = onnx_models.Net(seed=2)
    last = net.input("image", ["n", 3, 8, 8])
    net.weight("w1", 6, 3, 3, 3, scale=0.5)
    last = net.op("Relu", [net.op("Conv", [last, "w1"], name="conv", pads=[1, 1, 1, 1])])
    net.weight("w2", 3, 6, 1, 1, scale=1.0)
    model = net.model(net.op("Conv", [last, "w2"], "classes", name="head"))
    onnx.save(model, here / "net.onnx")
    images = RNG.integers(0, 256, (COUNT, 8, 8, 3), dtype=np.uint8)
    chosen = outputs(model, images.transpose(0, 3, 1, 2).astype(np.float32) / 255)[0].argmax(1)
    masks = chosen.astype(np.uint8)
    masks[:, 0] = 255  # not counted
    records = [
        record_files.serialize(
            {"image/encoded": [png(image)], "image/segmentation/class/encoded": [png(mask)]}
        )
        for image, mask in zip(images, masks, strict=True)
    ]
    record_files.write(here / "val-00000-of-00001.tfrecord", records)
    metric = "metric: {mIOU: {num_classes: 3, ignore_label: 255}}"
    check(tune(conf("{VOCRecord: {root: .}}", metric, "{ToTensor: {}}")), 1.0)


# -- without labels -----------------------------------------------------------------------------


def test_styles(here: Path, tune: Tune) -> None:
    net = onnx_models.Net(seed=3)
    content, style = (net.input(name, ["n", 8, 8, 3]) for name in ("content", "style"))
    net.weight("w", 3, 3, scale=0.5)
    mixed = net.op("Add", [content, style])
    onnx.save(net.model(net.op("MatMul", [mixed, "w"], name="mix")), here / "net.onnx")
    for kind in ("content", "style"):
        (here / kind).mkdir()
        for number in range(4):
            (here / kind / f"{number}.png").write_bytes(png(PICTURES[number]))
    dataset = (
        "{style_transfer: {content_folder: content, style_folder: style, resize_shape: [8, 8],"
        " image_format: png}}"
    )
    metric = "metric: {MSE: {compare_label: false}}"
    told = tune(conf(dataset, metric, bar="absolute: 1.0, really: true, higher_is_better: false"))
    check(told, 0.0)
    assert 0 < told["accuracy"] < 0.01
    assert told["baseline"]["samples"] == 16


@pytest.mark.parametrize(
    ("dataset", "more"),
    [
        ("{dummy: {shape: [12, 3, 8, 8], low: 0, high: 1, label: true}}", ""),
        ("{dummy_v2: {input_shape: [3, 8, 8], low: 0, high: 1}}", ", iteration: 3"),
    ],
)
def test_made_up_data(here: Path, tune: Tune, dataset: str, more: str) -> None:
    onnx.save(classifier(3, 8), here / "net.onnx")
    metric = "metric: {MAE: {compare_label: false}}"
    told = tune(
        conf(dataset, metric, more=more, bar="absolute: 1.0, really: true, higher_is_better: false")
    )
    check(told, 0.0)
    assert told["baseline"]["samples"] == 12
