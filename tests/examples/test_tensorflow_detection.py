"""examples/tensorflow/object_detection: data, one- and two-stage nets, scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("pycocotools")
pytest.importorskip("PIL")

from PIL import Image

from examples.detector_graphs import OUTPUTS, mask_rcnn, ssd_resnet50_fpn
from examples.tiny_bert import EXAMPLES, example_module
from lpot.adaptor.tf_utils.util import write_graph
from lpot.data.datasets.tfrecord import COCORecord
from lpot.data.record import RecordFile, parse_example

FOLDER = "tensorflow/object_detection"
HERE = EXAMPLES / FOLDER
ENVIRONMENT = {**os.environ, "PYTHON": sys.executable}
SHAPES = ((80, 120), (96, 64), (70, 70), (64, 100))


def write_coco(top: Path, truth: list[list[dict[str, Any]]] | None = None) -> Path:
    """COCO's folders with four images; `truth` are the objects of each."""
    random = np.random.default_rng(0)
    images, marks = [], []
    (top / "annotations").mkdir(parents=True)
    (top / "val2017").mkdir()
    for number, (high, wide) in enumerate(SHAPES, start=1):
        pixels = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        picture = Image.fromarray(pixels).resize((wide, high))
        picture.save(top / "val2017" / f"{number:012}.jpg", quality=95)
        images.append({"id": number, "file_name": f"{number:012}.jpg", "height": high})
        images[-1]["width"] = wide
        box = [10.0, 8.0, 30.0, 20.0]
        outline = [[10.0, 8.0, 40.0, 8.0, 40.0, 28.0, 10.0, 28.0]]
        plain = {"bbox": box, "category_id": 1, "segmentation": outline, "area": 600.0}
        for one in truth[number - 1] if truth else [plain]:
            marks.append({"iscrowd": 0, **one, "id": len(marks) + 1, "image_id": number})
    names = [{"id": n, "name": f"thing{n}"} for n in (1, 2, 3)]
    content = {"images": images, "annotations": marks, "categories": names}
    (top / "annotations" / "instances_val2017.json").write_text(json.dumps(content))
    return top


def record_of(top: Path) -> Path:
    convert = example_module(FOLDER, "coco_record").convert
    listing = top / "annotations" / "instances_val2017.json"
    convert(top / "val2017", listing, top / "coco_val.record", masks=True)
    return top / "coco_val.record"


def arguments(*words: str) -> Any:
    return example_module(FOLDER, "infer_detections").parse_args(list(words))


def truth_of(graph: Path, record: Path, topology: str) -> list[list[dict[str, Any]]]:
    """What the net itself finds, as the objects to be found."""
    module, score = (example_module(FOLDER, n) for n in ("infer_detections", "coco_score"))
    args = arguments("-g", str(graph), "-d", str(record), "--topology", topology)
    infer = module.model_infer(args)
    infer.load()
    rows: list[list[dict[str, Any]]] = []
    with module.v1.Session(graph=infer.infer_graph) as session:
        for (images,) in infer:
            found = session.run(infer.output_tensors, {infer.input_tensor: images})
            rows.append([])
            high, wide = SHAPES[len(rows) - 1]
            for at in range(3):
                top, left, bottom, right = found[1][0, at].astype(float) * [high, wide, high, wide]
                rows[-1].append(_mark(found, at, (top, left, bottom, right), high, wide, score))
    return rows


def _mark(found: Any, at: int, box: Any, high: int, wide: int, score: Any) -> dict[str, Any]:
    top, left, bottom, right = box
    mark = {
        "bbox": [left, top, right - left, bottom - top],
        "category_id": int(found[3][0, at]),
        "area": (right - left) * (bottom - top),
        "segmentation": [[left, top, right, top, right, bottom, left, bottom]],
    }
    if len(found) > 4:
        from pycocotools import mask as runs

        pixels = score.paste(found[4][0, at], box, high, wide)
        packed = runs.encode(np.asfortranarray(pixels))
        mark["segmentation"] = {"size": [high, wide], "counts": packed["counts"].decode()}
    return mark


def test_the_record_is_what_the_library_reads(tmp_path: Path) -> None:
    record = record_of(write_coco(tmp_path))
    dataset = COCORecord(str(record))
    assert len(dataset) == 4
    image, (boxes, names, numbers, source) = dataset[1]
    assert image.shape == (96, 64, 3)
    np.testing.assert_allclose(boxes[0], [8 / 96, 10 / 64, 28 / 96, 40 / 64], rtol=1e-6)
    assert names.tolist() == [b"thing1"] and numbers.tolist() == [1] and source == b"2"
    features = parse_example(RecordFile(record)[0])
    assert features["image/object/area"][0] == 600 and len(features["image/object/mask"]) == 1


def test_images_without_annotations(tmp_path: Path) -> None:
    top = write_coco(tmp_path)
    listing = top / "annotations" / "image_info.json"
    content = json.loads((top / "annotations" / "instances_val2017.json").read_text())
    listing.write_text(json.dumps({"images": content["images"]}))
    convert = example_module(FOLDER, "coco_record").convert
    assert convert(top / "val2017", listing, tmp_path / "coco_test.record") == 4
    next((top / "val2017").iterdir()).unlink()
    with pytest.raises(SystemExit, match="no such image"):
        convert(top / "val2017", listing, tmp_path / "again.record")
    assert not (tmp_path / "again.record").exists()


@pytest.mark.parametrize("masks", [False, True])
def test_scores_of_the_truth_itself_are_perfect(tmp_path: Path, masks: bool) -> None:
    record = record_of(write_coco(tmp_path))
    score = example_module(FOLDER, "coco_score").CocoScore(record, masks=masks)
    for number, (high, wide) in enumerate(SHAPES, start=1):
        box = np.array([[8 / high, 10 / wide, 28 / high, 40 / wide], [0, 0, 1, 1]])
        score.add(number, 1, box, np.array([0.9, 0.1]), np.array([1.0, 1.0]), np.ones((2, 5, 5)))
    assert score.result() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("topology", "graph"),
    [("mask_rcnn_inception_v2", mask_rcnn), ("ssd_resnet50_v1", ssd_resnet50_fpn)],
)
def test_detectors_tune_and_run(
    topology: str,
    graph: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One stage and two (CropAndResize, while loops, masks): what FP32 finds is the truth."""
    module = example_module(FOLDER, "infer_detections")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lpot.jobs.finish.result.with_speed", lambda job, result: result)
    frozen = tmp_path / "frozen_inference_graph.pb"
    write_graph(graph(), frozen)
    first = record_of(write_coco(tmp_path / "first"))
    record = record_of(write_coco(tmp_path / "truth", truth_of(frozen, first, topology)))
    loose = (
        (HERE / f"{topology}.yaml")
        .read_text()
        .replace("relative:  0.01", "relative: 0.9\n    really: true")
    )
    Path("loose.yaml").write_text(
        loose.replace("relative: 0.01", "relative: 0.9\n    really: true")
    )
    data = ["-d", str(record), "--topology", topology]
    module.main(["-g", str(frozen), *data, "--config", "loose.yaml", "--output_model", "out.pb"])
    module.main(["-g", "out.pb", *data, "--mode", "accuracy"])
    module.main(["-g", "out.pb", *data, "--mode", "benchmark", "--iters", "2"])
    told = capsys.readouterr().out
    scores = [float(x.split()[2]) for x in told.splitlines() if x.startswith("Accuracy")]
    assert scores[0] > 0.5  # FP32 finds its own truth, and more
    assert scores[-1] in scores[1:-1] and scores[-1] > 0.05  # the file scores as its trial did
    assert "Throughput:" in told
    kinds = [node.op for node in module.get_graph_def("out.pb", OUTPUTS).node]
    assert "_FusedQuantizedConv2D" in kinds and "Enter" in kinds
    if "mask" in topology:
        assert "CropAndResize" in kinds and "_QuantizedMatMul" in kinds


def test_run_accuracy_scores_the_graph_it_is_given(tmp_path: Path) -> None:
    """Not the one of its arguments, which is what the tutorial's snippet does."""
    module = example_module(FOLDER, "infer_detections")
    write_graph(ssd_resnet50_fpn(), tmp_path / "net.pb")
    record = record_of(write_coco(tmp_path))
    infer = module.model_infer(arguments("-g", str(tmp_path / "gone.pb"), "-d", str(record)))
    graph = module.tf.Graph()
    with graph.as_default():
        module.v1.import_graph_def(ssd_resnet50_fpn(), name="")
    assert 0 <= infer.accuracy_check(graph) <= 1
    assert infer.infer_graph is graph


def test_prepare_dataset_sourced_leaves_the_shell_as_it_was(tmp_path: Path) -> None:
    write_coco(tmp_path / "coco")
    commands = f"""
set -- left alone
. {HERE}/prepare_dataset.sh --output_dir=out --source=coco --masks
echo "status $? flags $-"
. {HERE}/prepare_dataset.sh --wrong
echo "status $?"
false
echo "still here: $1"
"""
    done = subprocess.run(
        ["bash", "-c", commands], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("status 0 flags") and "e" not in line[15:] for line in lines)
    assert "status 2" in lines and "still here: left" in lines
    assert len(RecordFile(tmp_path / "out" / "coco_val.record")) == 4
    assert "train" in done.stderr  # what is not there is left out, and told


def test_prepare_model_unpacks_an_archive_and_refuses_a_wicked_one(tmp_path: Path) -> None:
    unpack = example_module(FOLDER, "prepare_model").unpack
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "frozen_inference_graph.pb").write_bytes(b"x")
    with tarfile.open(tmp_path / "net.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "net", "net")
    assert (
        unpack(tmp_path / "net.tar.gz", tmp_path / "out") / "frozen_inference_graph.pb"
    ).exists()
    with tarfile.open(tmp_path / "wicked.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "net", "../outside")
    with pytest.raises(SystemExit, match="can't be unpacked"):
        unpack(tmp_path / "wicked.tar.gz", tmp_path / "out")


def test_flags_of_the_shell_scripts(tmp_path: Path) -> None:
    for script, words, status in (
        ("run_tuning.sh", ["topology"], 2),
        ("run_tuning.sh", ["--topology=ssd_resnet50_v1"], 1),
        ("run_benchmark.sh", ["--int8=True", "--dataset_location=x"], 1),
    ):
        command = ["bash", str(HERE / script), *words]
        done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True)
        assert done.returncode == status


@pytest.mark.slow
def test_the_whole_way_by_shell(tmp_path: Path) -> None:
    write_graph(ssd_resnet50_fpn(), tmp_path / "net.pb")
    convert = example_module(FOLDER, "frozen_to_checkpoint").convert
    convert(tmp_path / "net.pb", tmp_path / "checkpoint")
    topology = "ssd_resnet50_v1"
    first = record_of(write_coco(tmp_path / "first"))
    truth = truth_of(tmp_path / "net.pb", first, topology)
    record = record_of(write_coco(tmp_path / "truth", truth))
    printed = (HERE / f"{topology}.yaml").read_text()
    loose = printed.replace("relative:  0.01", "relative: 0.9\n    really: true")
    assert loose != printed
    (tmp_path / "loose.yaml").write_text(loose)
    flags = [f"--topology={topology}", f"--dataset_location={record}"]
    tuned = ["--input_model=checkpoint/", "--output_model=./out.pb", "--config=loose.yaml"]
    for script, more in (
        ("run_tuning.sh", tuned),
        ("run_benchmark.sh", ["--input_model=./out.pb", "--mode=performance", "--iters=2"]),
    ):
        command = ["bash", str(HERE / script), *flags, *more]
        done = subprocess.run(
            command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-2000:]
    assert "Latency:" in done.stdout
