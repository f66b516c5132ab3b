"""Real nets and data from a yaml alone: `lpot tune conf.yaml --model …`, and no Python."""

from __future__ import annotations

import collections
import json
import re
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import record_files
from usage import exports

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow

Tune = Callable[..., dict[str, Any]]


def conf(
    calibration: str, evaluation: str, bar: str, more: str = "", model: str = "name: net"
) -> str:
    return (
        f"model: {{{model}}}\n"
        f"quantization: {{calibration: {{sampling_size: 100, dataloader: {calibration}}}}}\n"
        f"evaluation: {{accuracy: {{{more}, dataloader: {evaluation}}}}}\n"
        f"tuning: {{accuracy_criterion: {{{bar}}}}}\n"
    )


# -- pictures -----------------------------------------------------------------------------------


@pytest.fixture
def imagenet(here: Path) -> str:
    """Half of the images to calibrate on, the other half to judge by."""
    source = exports.folder("imagenet-samples")
    lines = (source / "val_map.txt").read_text().splitlines()
    for name, rest in (("calib.txt", 2), ("eval.txt", 0)):
        chosen = [line for line in lines if int(line.split()[1]) % 4 == rest]
        (here / name).write_text("\n".join(chosen))
    steps = (
        "{Resize: {size: 256, keep_ratio: true, interpolation: bicubic}, CenterCrop: 224,"
        " Normalize: {mean: 127, std: 128}, Transpose: {perm: [2, 0, 1]}}"
    )
    loaders = [
        f"{{batch_size: 10, dataset: {{ImagenetRaw: {{data_path: '{source}/images',"
        f" image_list: {name}}}}}, transform: {steps}}}"
        for name in ("calib.txt", "eval.txt")
    ]
    return conf(*loaders, "relative: 0.01", "metric: {topk: 1}")


def test_efficientnet_on_imagenet(imagenet: str, tune: Tune) -> None:
    told = tune(imagenet, exports.efficientnet())
    assert told["baseline"]["samples"] == 250
    assert told["baseline"]["accuracy"] == pytest.approx(0.888, abs=0.009)
    assert told["met"] is True
    assert told["accuracy"] >= 0.99 * told["baseline"]["accuracy"] - 1e-9
    assert len(told["fp32_ops"]) < 15
    assert told["bytes"]["best"] < 0.4 * told["bytes"]["fp32"]


def test_the_same_yaml_in_pytorch_scores_the_same(
    imagenet: str, tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    path = exports.efficientnet()
    monkeypatch.syspath_prepend(exports.ROOT / "examples" / "pytorch")
    scores = [
        tune(imagenet, model, "--max-trials", "1", "--workspace", name)["baseline"]["accuracy"]
        for name, model in (("onnx", path), ("torch", "efficientnet_lite0:model"))
    ]
    assert scores[0] == scores[1]


@pytest.fixture
def cifar(here: Path) -> str:
    """The 2000 test images as CIFAR-10 is published."""
    with np.load(exports.folder("cifar10_keras_cnn") / "cifar10_test2000.npz") as file:
        images, labels = file["x"], file["y"].reshape(-1, 1).astype(np.uint8)
    rows = np.concatenate([labels, images.transpose(0, 3, 1, 2).reshape(len(images), -1)], axis=1)
    (here / "cifar-10-batches-bin").mkdir()
    (here / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(rows.tobytes())
    steps = (
        "{Normalize: {mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]},"
        " Transpose: {perm: [2, 0, 1]}}"
    )
    loader = f"{{batch_size: 50, dataset: {{CIFAR10: {{root: .}}}}, transform: {steps}}}"
    return conf(loader, loader, "relative: 0.01", "metric: {topk: 1}")


@pytest.mark.parametrize("name", ["resnet20", "resnet20_hard"])
def test_cifar_in_two_frameworks(
    cifar: str, tune: Tune, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    race = exports.folder("race")
    told = tune(cifar, race / f"{name}.onnx")
    assert told["baseline"]["accuracy"] == 0.9165
    assert told["met"] is True
    if name == "resnet20":
        pytest.importorskip("torch")
        monkeypatch.syspath_prepend(Path(__file__).parent)
        again = tune(cifar, "resnet20:model", "--workspace", "torch")
        assert again["baseline"]["accuracy"] == told["baseline"]["accuracy"]
        assert again["met"] is True


# -- boxes --------------------------------------------------------------------------------------


def coco_records(source: Path, images: str, annotations: str) -> Iterator[bytes]:
    """The slice as TensorFlow's converter writes it."""
    content = json.loads((source / "annotations" / annotations).read_text())
    marks = collections.defaultdict(list)
    for mark in content["annotations"]:
        marks[mark["image_id"]].append(mark)
    for image in content["images"]:
        boxes = np.asarray([mark["bbox"] for mark in marks[image["id"]]]).reshape(-1, 4)
        corners = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
        corners = corners / ([image["width"], image["height"]] * 2)
        sides = {
            f"image/object/bbox/{name}": corners[:, at].astype(np.float32)
            for at, name in enumerate(("xmin", "ymin", "xmax", "ymax"))
        }
        kinds = np.asarray([mark["category_id"] for mark in marks[image["id"]]], dtype=np.int64)
        yield record_files.serialize(
            {
                "image/encoded": [(source / images / image["file_name"]).read_bytes()],
                "image/source_id": [str(image["id"]).encode()],
                "image/object/class/label": kinds,
                **sides,
            }
        )


def test_detector_on_coco_raw_and_record(here: Path, tune: Tune) -> None:
    pytest.importorskip("tensorflow")
    source, model = exports.folder("coco2017-slice"), exports.folder("ssdlite_mobilenet_v2_coco")
    parts = {
        "val": ("val2017", "instances_val2017.json"),
        "calib": ("train2017_calib", "instances_train2017_calib.json"),
    }
    datasets: dict[str, list[str]] = {"COCORaw": [], "COCORecord": []}
    for name in ("calib", "val"):
        images, marks = parts[name]
        record_files.write(here / f"{name}.record", coco_records(source, images, marks))
        raw = f"root: '{source}', img_dir: {images}, anno_dir: annotations/{marks}"
        datasets["COCORaw"].append(f"{{batch_size: 1, dataset: {{COCORaw: {{{raw}}}}}}}")
        record = f"{{COCORecord: {{root: {name}.record}}}}"
        datasets["COCORecord"].append(f"{{batch_size: 1, dataset: {record}}}")
    metric = f"metric: {{COCOmAP: {{anno_path: '{source}/annotations/instances_val2017.json'}}}}"
    outputs = "num_detections, detection_boxes, detection_scores, detection_classes"
    told = {
        name: tune(
            conf(
                *loaders,
                "relative: 0.02",
                metric,
                f"name: ssd, framework: tensorflow, inputs: image_tensor, outputs: '{outputs}'",
            ),
            model / "frozen_inference_graph.pb",
            "--workspace",
            name,
        )
        for name, loaders in datasets.items()
    }
    for one in told.values():
        assert one["baseline"]["accuracy"] == pytest.approx(0.299, abs=0.001)
        assert one["baseline"]["samples"] == 164
        assert one["met"] is True
    assert told["COCORaw"]["baseline"]["accuracy"] == told["COCORecord"]["baseline"]["accuracy"]
    assert told["COCORaw"]["accuracy"] == pytest.approx(told["COCORecord"]["accuracy"], abs=0.003)


# -- text ---------------------------------------------------------------------------------------


def test_mrpc_as_scikit_learn_scores_it(tune: Tune) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    path = exports.minilm("minilm_l6_mrpc", "BertForSequenceClassification")
    glue, words = exports.folder("glue"), exports.folder("minilm_l6_bert")
    loaders = [
        f"{{batch_size: 8, dataset: {{GLUE: {{data_dir: '{glue}', model_name_or_path: '{words}',"
        f" task: mrpc, evaluate: {part}}}}}}}"
        for part in ("false", "true")
    ]
    text = conf(*loaders, "relative: 0.01", "metric: {GLUE: {task: mrpc}}")
    told = tune(text, path)
    assert told["baseline"]["samples"] == 408
    logits, labels = mrpc_logits(path, glue, words)
    assert told["baseline"]["accuracy"] == sklearn.f1_score(labels, logits.argmax(1))
    assert told["met"] is True
    accuracy = text.replace("GLUE: {task: mrpc}", "GLUE: {task: mrpc, key: acc}")
    again = tune(accuracy, path, "--workspace", "accuracy", "--max-trials", "1")
    assert again["baseline"]["accuracy"] == sklearn.accuracy_score(labels, logits.argmax(1))


def mrpc_logits(path: Path, glue: Path, words: Path) -> tuple[np.ndarray, np.ndarray]:
    """By transformers' own tokenizer and a plain session."""
    import onnxruntime

    transformers = pytest.importorskip("transformers")
    rows = (glue / "MRPC" / "dev.tsv").read_text("utf-8-sig").splitlines()[1:]
    cells = [row.split("\t") for row in rows]
    encode = transformers.AutoTokenizer.from_pretrained(words)
    session = onnxruntime.InferenceSession(path)
    found = []
    for at in range(0, len(cells), 8):
        part = cells[at : at + 8]
        first, second = [row[3] for row in part], [row[4] for row in part]
        feed = encode(
            first,
            second,
            padding="max_length",
            truncation=True,
            max_length=128,
            return_tensors="np",
        )
        names = exports.TEXT_INPUTS
        found.append(session.run(None, {name: feed[name].astype(np.int64) for name in names})[0])
    return np.concatenate(found), np.asarray([int(row[0]) for row in cells])


def test_squad_as_an_independent_scorer_scores_it(tune: Tune) -> None:
    path = exports.minilm("minilm_l6_squad", "BertForQuestionAnswering")
    squad, words = exports.folder("squad"), exports.folder("minilm_l6_bert") / "vocab.txt"
    files = [squad / "train-slice-v1.1.json", squad / "dev-slice-v1.1.json"]
    options = [
        f"{{label_file: '{file}', vocab_file: '{words}', max_seq_length: 256}}" for file in files
    ]
    loaders = [f"{{batch_size: 16, dataset: {{SQuAD: {one}}}}}" for one in options]
    more = f"metric: SquadF1, postprocess: {{transform: {{SquadV1: {options[1]}}}}}"
    text = conf(*loaders, "relative: 0.01", more).replace("size: 100", "size: 32")
    told = tune(text, path)
    assert told["baseline"]["samples"] == 1190
    assert told["met"] is True
    f1, exact = independent_scores(squad_answers(path, files[1], words), files[1])
    assert told["baseline"]["accuracy"] == pytest.approx(f1, abs=1e-9)
    assert f1 > 63.0 and exact > 47.0


def squad_answers(path: Path, file: Path, words: Path) -> dict[str, str]:
    import onnxruntime

    from lpot.data import DataLoader, get_dataset
    from lpot.data.postprocess import SquadV1

    session = onnxruntime.InferenceSession(path)
    dataset = get_dataset("SQuAD", label_file=str(file), vocab_file=str(words), max_seq_length=256)
    answer = SquadV1(label_file=str(file), vocab_file=str(words), max_seq_length=256)
    answers: dict[str, str] = {}
    for inputs, ids in DataLoader(dataset, batch_size=16):
        answers |= answer((session.run(None, inputs), ids))[0] or {}
    return answers


def independent_scores(answers: dict[str, str], file: Path) -> tuple[float, float]:
    """F1 and exact match in per cent, by the words of the published rules."""

    def bare(text: str) -> list[str]:
        kept = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
        return re.sub(r"\b(a|an|the)\b", " ", kept).split()

    f1, exact = [], []
    for article in json.loads(file.read_text())["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                said = bare(answers[question["id"]])
                scores, same = [], []
                for reference in question["answers"]:
                    wanted = bare(reference["text"])
                    common = sum((collections.Counter(said) & collections.Counter(wanted)).values())
                    precision, recall = common / max(1, len(said)), common / max(1, len(wanted))
                    scores.append(2 * precision * recall / (precision + recall) if common else 0.0)
                    same.append(said == wanted)
                f1.append(max(scores))
                exact.append(max(same))
    return 100 * float(np.mean(f1)), 100 * float(np.mean(exact))
