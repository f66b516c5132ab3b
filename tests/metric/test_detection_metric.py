"""mAP and its kin against pycocotools on the COCO slice, and against the definition by hand."""

from __future__ import annotations

import contextlib
import io
import json

import numpy as np
import pytest

from lpot.core.errors import ConfigError, DataError, EvaluationError
from lpot.metric import get_metric
from lpot.metric.boxes import COCO_NAMES
from lpot.metric.detection import MAP_KEYS, PREFIX
from lpot.metric.matching import average_precision

pytest.importorskip("pycocotools")

KEY = "DetectionBoxes_Precision/mAP"


@pytest.fixture(scope="module")
def annotations(data):
    file = data / "coco2017-slice" / "annotations" / "instances_val2017.json"
    if not file.is_file():
        pytest.skip(f"no {file.name}")
    return file


@pytest.fixture(scope="module")
def truth(annotations):
    return json.loads(annotations.read_text())


@pytest.fixture(scope="module")
def detections(truth):
    """Per image: truth shaken, doubled, lost or renamed, among noise; xywh in pixels, with ties."""
    rng = np.random.default_rng(0)
    names = [one["id"] for one in truth["categories"]]
    found = {}
    for image in truth["images"]:
        rows = []
        for one in truth["annotations"]:
            if one["image_id"] != image["id"] or rng.random() < 0.25:
                continue
            for _ in range(rng.integers(1, 3)):
                box = np.array(one["bbox"])
                box = box + rng.normal(0, 0.07, 4) * [box[2], box[3], box[2], box[3]]
                kind = one["category_id"] if rng.random() < 0.9 else rng.choice(names)
                rows.append([*box, np.round(0.4 + 0.6 * rng.random(), 2), kind])
        for _ in range(rng.integers(0, 8)):
            corner = rng.random(2) * [image["width"], image["height"]]
            rows.append(
                [*corner, *(rng.random(2) * 90 + 2), np.round(rng.random(), 2), rng.choice(names)]
            )
        found[image["id"]] = np.asarray(rows, dtype=np.float64).reshape(-1, 6)
    return found


def official(truth_file, detections, **params):
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(truth_file))
        rows = [
            {
                "image_id": image,
                "category_id": int(row[5]),
                "bbox": row[:4].tolist(),
                "score": row[4],
            }
            for image, found in detections.items()
            for row in found
        ]
        run = COCOeval(coco, coco.loadRes(rows), "bbox")
        run.params.imgIds = sorted(detections)
        for key, value in params.items():
            setattr(run.params, key, value)
        run.evaluate()
        run.accumulate()
        if not params:
            run.summarize()
    return run


@pytest.fixture(scope="module")
def stats(annotations, detections):
    return official(annotations, detections).stats


def corners(xywh):
    x, y, w, h = xywh.T
    return np.stack([y, x, y + h, x + w], axis=1)


def batches(truth, detections, size=10, shares=False, order=None):
    """[num, boxes, scores, classes] padded to the longest, and file names as labels."""
    images = truth["images"]
    of_image = {}
    for one in truth["annotations"]:
        of_image.setdefault(one["image_id"], []).append(one)
    images = [images[at] for at in (range(len(images)) if order is None else order)]
    for at in range(0, len(images), size):
        part = images[at : at + size]
        longest = max(len(detections[one["id"]]) for one in part) + 2
        boxes, scores = np.zeros((len(part), longest, 4)), np.zeros((len(part), longest))
        classes, count = np.ones((len(part), longest), np.float32), np.zeros(len(part), np.float32)
        labels = ([], [], [], [])
        for row, image in enumerate(part):
            found = detections[image["id"]]
            scale = np.array([image["height"], image["width"]] * 2) if shares else 1.0
            boxes[row, : len(found)] = corners(found[:, :4]) / scale
            scores[row, : len(found)], classes[row, : len(found)] = found[:, 4], found[:, 5]
            count[row] = len(found)
            mine = of_image.get(image["id"], [])
            real = np.array([one["bbox"] for one in mine], dtype=np.float64).reshape(-1, 4)
            labels[0].append(corners(real) / scale)
            labels[1].append([])
            labels[2].append([one["category_id"] for one in mine])
            labels[3].append(image["file_name"].encode())
        yield [count, boxes, scores, classes], labels


def test_names_are_those_of_coco(truth):
    assert {one["name"]: one["id"] for one in truth["categories"]} == COCO_NAMES


def test_coco_equals_pycocotools(annotations, truth, detections, stats):
    metric = get_metric("COCOmAP", anno_path=str(annotations))
    for preds, labels in batches(truth, detections):
        metric.update(preds, labels)
    got = [metric.details[PREFIX + key] for key in MAP_KEYS]
    np.testing.assert_allclose(got, stats, atol=1e-12)
    assert metric.result() == got[0] and 0.2 < got[0] < 0.8


def test_shares_other_order_and_ids_alone_give_the_same(annotations, truth, detections, stats):
    order = np.random.default_rng(1).permutation(len(truth["images"]))
    metric = get_metric("COCOmAP", anno_path=annotations)
    for preds, labels in batches(truth, detections, 17, shares=True, order=order):
        metric.update(preds, labels)
    assert metric.result() == pytest.approx(stats[0], abs=1e-9)
    mapping = {"num_detections": 3, "boxes": 0, "scores": 2, "classes": 1}
    second = get_metric("COCOmAPv2", anno_path=annotations, output_index_mapping=mapping)
    for (count, boxes, scores, classes), labels in batches(truth, detections, 40):
        stems = [name.decode().removesuffix(".jpg") for name in labels[3]]
        second.update([boxes, classes, scores, count], stems)
    assert second.result() == pytest.approx(stats[0], abs=1e-12)


def test_map_key(annotations, truth, detections, stats):
    key = "DetectionBoxes_Precision/mAP (small)"
    metric = get_metric("COCOmAP", anno_path=annotations, map_key=key)
    for preds, labels in batches(truth, detections):
        metric.update(preds, labels)
    assert metric.result() == pytest.approx(stats[3], abs=1e-12)


def test_eleven_points_equal_pycocotools(annotations, truth, detections):
    run = official(annotations, detections, iouThrs=np.array([0.5]), recThrs=np.linspace(0, 1, 11))
    table = run.eval["precision"][0, :, :, 0, -1]
    metric = get_metric("mAP", anno_path=annotations, map_points=11)
    for preds, labels in batches(truth, detections):
        metric.update(preds, labels)
    assert metric.result() == pytest.approx(table[table > -1].mean(), abs=1e-12)


def by_hand(truth, detections, threshold):
    """Area under the interpolated curve: greedy matching by falling score, written plainly."""
    scores = []
    for kind in sorted({one["category_id"] for one in truth["annotations"]}):
        real = {}
        for one in truth["annotations"]:
            if one["category_id"] == kind:
                real.setdefault(one["image_id"], []).append(one["bbox"])
        rows = []
        for image, found in sorted(detections.items()):
            mine = sorted((row for row in found if row[5] == kind), key=lambda row: -row[4])
            free = list(real.get(image, []))
            for row in mine:
                best, at = 0.0, None
                for number, box in enumerate(free):
                    wide = min(row[0] + row[2], box[0] + box[2]) - max(row[0], box[0])
                    high = min(row[1] + row[3], box[1] + box[3]) - max(row[1], box[1])
                    both = max(wide, 0) * max(high, 0)
                    share = both / (row[2] * row[3] + box[2] * box[3] - both)
                    if share >= threshold and share >= best:
                        best, at = share, number
                if at is not None:
                    free.pop(at)
                rows.append((row[4], at is not None))
        rows.sort(key=lambda row: -row[0])
        wanted, hits, area, curve = sum(map(len, real.values())), 0, 0.0, []
        for count, (_, hit) in enumerate(rows, start=1):
            hits += hit
            curve.append((hits / wanted, hits / count))
        before = 0.0
        for at, (recall, _) in enumerate(curve):
            area += (recall - before) * max(precision for _, precision in curve[at:])
            before = recall
        scores.append(area)
    return float(np.mean(scores))


@pytest.fixture(scope="module")
def uncrowded(truth):
    """Crowds need the json; without it a label is a label."""
    kept = [one for one in truth["annotations"] if not one["iscrowd"]]
    return {**truth, "annotations": kept}


def test_area_under_the_curve_equals_the_definition(uncrowded, detections):
    wanted = by_hand(uncrowded, detections, 0.5)
    for name in ("mAP", "VOCmAP"):
        for shares in (False, True):
            metric = get_metric(name)
            for preds, labels in batches(uncrowded, detections, 25, shares):
                metric.update(preds, labels)
            assert metric.result() == pytest.approx(wanted, abs=1e-9)
    loose = get_metric("mAP", iou_thrs=[0.3])
    for preds, labels in batches(uncrowded, detections, 200):
        loose.update(preds, labels)
    assert loose.result() == pytest.approx(by_hand(uncrowded, detections, 0.3), abs=1e-9)


def test_memory_does_not_hold_boxes(annotations, truth, detections):
    metric = get_metric("COCOmAP", anno_path=annotations)
    for preds, labels in batches(truth, detections, 5):
        metric.update(preds, labels)
        assert len(metric.pending) < 64


BOX = [[[0.1, 0.1, 0.5, 0.5]]]
LABELS = ([[[0.1, 0.1, 0.5, 0.5]]], [["dog"]], [[]], ["a.jpg"])


def test_labels_by_name_in_any_text():
    for name in ("dog", b"dog", np.bytes_(b"dog"), np.str_("dog")):
        metric = get_metric("mAP")
        metric.update([BOX, [[0.5]], [[18]]], (BOX, [[name]], [[]], [np.bytes_(b"a.jpg")]))
        assert metric.result() == pytest.approx(1.0)
    metric = get_metric("mAP")  # one image without batch axis on labels, as datasets give it
    metric.update(
        [np.array(BOX), np.array([[0.5]]), np.array([[18]])],
        [np.array(BOX[0]), np.array([b"dog"]), np.array([]), np.array(b"a.jpg")],
    )
    assert metric.result() == pytest.approx(1.0)


def test_an_image_without_objects_in_a_batch():
    metric = get_metric("mAP")
    empty = np.empty((0, 4))
    labels = ([empty, np.array(BOX[0])], [[], ["dog"]], [[], []], ["a", "b"])
    metric.update([[empty, np.array(BOX[0])], [[], [0.9]], [[], [18]]], labels)
    assert metric.result() == pytest.approx(1.0)


def test_labels_as_the_dataset_and_loader_give_them(annotations, truth, detections, stats):
    from lpot.data.collate import collate
    from lpot.data.datasets.coco import COCORaw

    root = annotations.parents[1]
    if not (root / "val2017").is_dir():
        pytest.skip("no images")
    labels = [dataset.label(number) for dataset in [COCORaw(str(root))] for number in range(164)]
    metric = get_metric("COCOmAP", anno_path=annotations)
    for at, (preds, _) in zip(
        range(0, 164, 10), batches(truth, detections, shares=True), strict=True
    ):
        images = [np.zeros((1, 1, 3))] * len(labels[at : at + 10])
        _, batch = collate(list(zip(images, labels[at : at + 10], strict=True)))
        metric.update(preds, batch)
    assert metric.result() == pytest.approx(stats[0], abs=1e-6)  # their boxes are float32


def test_label_map_in_yaml(tmp_path):
    file = tmp_path / "map.yaml"
    file.write_text("hound: 7\nwolf: 8\n")
    metric = get_metric("VOCmAP", anno_path=str(file))
    metric.update([BOX, [[0.5]], [[7]]], (BOX, [["hound"]], [[]], ["a"]))
    assert metric.result() == pytest.approx(1.0)
    with pytest.raises(
        EvaluationError, match=r"sample 1: label 'hund' is not among .*did you mean 'hound'"
    ):
        metric.update([BOX, [[0.5]], [[7]]], (BOX, [["hund"]], [[]], ["b"]))
    file.write_text("hound: seven\n")
    with pytest.raises(DataError, match="'seven', expected a whole number"):
        get_metric("VOCmAP", anno_path=str(file))
    file.write_text("- a\n- b\n")
    with pytest.raises(DataError, match="name: number"):
        get_metric("VOCmAP", anno_path=str(file))


def test_box_order():
    metric = get_metric("mAP", box_order="xyxy")
    metric.update(
        [[[[0.2, 0.1, 0.9, 0.5]]], [[0.5]], [[18]]],
        ([[[0.1, 0.2, 0.5, 0.9]]], [["dog"]], [[]], ["a"]),
    )
    assert metric.result() == pytest.approx(1.0)


def test_an_image_twice_is_told_and_skipped(caplog):
    metric = get_metric("mAP")
    metric.update([BOX, [[0.5]], [[18]]], LABELS)
    metric.update([BOX, [[0.5]], [[3]]], LABELS)
    assert "'a.jpg' appeared twice and was skipped" in caplog.text
    assert metric.result() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("preds", "labels", "words"),
    [
        ([BOX, [[0.5]]], LABELS, "2 outputs.*output_index_mapping"),
        ([[[0.5]], BOX, [[18]]], LABELS, "sample 0: .*is the order of outputs right"),
        ([BOX, [[np.nan]], [[18]]], LABELS, "sample 0: the score is NaN"),
        ([[[[0, 0, np.inf, 1]]], [[0.5]], [[18]]], LABELS, "sample 0: the box is infinite"),
        ([[2.0], BOX, [[0.5]], [[18]]], LABELS, "num_detections is 2.0, but there are 1"),
        ([BOX, [[0.5]], [[18]]], (BOX, [["dog", "cat"]], [[]], ["a"]), "1 boxes, but 2 labels"),
        ([BOX, [[0.5]], [[18]]], (BOX, [["dgo"]], [[]], ["a"]), "did you mean 'dog'"),
        ([BOX, [[0.5]], [[18]]], (BOX, [["dog"]]), "expected .boxes, names"),
        ([BOX, [[0.5]], [[18]]], (BOX, [["dog"]], [[]], ["a", "b"]), "label fields are of"),
    ],
)  # fmt: skip
def test_faults(preds, labels, words):
    with pytest.raises(EvaluationError, match=words):
        get_metric("mAP").update(preds, labels)


def test_options_are_checked(tmp_path):
    for options, words in [
        ({"map_points": 5}, "map_points"),
        ({"iou_thrs": 1.5}, "iou_thrs"),
        ({"iou_thrs": "0.5:0:0.9"}, "iou_thrs"),
        ({"iou_thrs": "half"}, "iou_thrs"),
        ({"map_key": "DetectionBoxes_Precision/MAP"}, "did you mean"),
        ({"output_index_mapping": {"boxes": 0}}, "output_index_mapping"),
        ({"output_index_mapping": {"boxes": 0, "scores": 1, "class": 2}}, "output_index_mapping"),
        ({"box_order": "xywh"}, "box_order"),
        ({"anno_path": str(tmp_path / "none.json")}, "anno_path"),
    ]:
        with pytest.raises(ConfigError, match=words):
            get_metric("mAP", **options)


def test_a_mapping_may_name_only_what_differs():
    part = get_metric("COCOmAPv2", output_index_mapping={"num_detections": 3})
    assert part.mapping == {"num_detections": 3, "boxes": 0, "scores": 1, "classes": 2}


def test_sizes_need_pixels():
    metric = get_metric("COCOmAP", map_key="DetectionBoxes_Precision/mAP (small)")
    metric.update([BOX, [[0.5]], [[18]]], LABELS)
    with pytest.raises(EvaluationError, match="areas in pixels"):
        metric.result()


def test_broken_annotation_files(tmp_path):
    file = tmp_path / "a.json"
    file.write_text('{"images": [\n{"id": 1,}\n]}')
    with pytest.raises(DataError, match=r"a\.json:2: not valid json"):
        get_metric("COCOmAP", anno_path=file)
    lost = {"image_id": 9, "bbox": [0, 0, 1, 1], "category_id": 1, "id": 4}
    file.write_text(json.dumps({"images": [], "annotations": [lost], "categories": []}))
    with pytest.raises(DataError, match=r"annotation 0 \(id 4\) is for image 9"):
        get_metric("COCOmAP", anno_path=file)
    file.write_text(json.dumps({"images": [{"id": 1}], "annotations": [], "categories": []}))
    with pytest.raises(DataError, match="width"):
        get_metric("COCOmAP", anno_path=file)
    image = {"id": 1, "width": 10, "height": 10, "file_name": "b.jpg"}
    file.write_text(json.dumps({"images": [image], "annotations": [], "categories": []}))
    metric = get_metric("COCOmAP", anno_path=file)
    with pytest.raises(EvaluationError, match=r"'a\.jpg' is not in"):
        metric.update([BOX, [[0.5]], [[18]]], LABELS)
    metric = get_metric("COCOmAP", anno_path=file)
    metric.update([BOX, [[0.5]], [[18]]], ["b.jpg"])
    with pytest.raises(EvaluationError, match="no image has a box"):
        metric.result()


def test_average_precision_by_hand():
    hit, miss = np.array([1, 0, 1, 0]), np.array([0, 1, 0, 1])
    assert average_precision(hit, miss, 4, 0) == pytest.approx(0.25 + 0.25 * 2 / 3)
    # recalls 0, 0.1, 0.2 reach precision 1; 0.3 to 0.5 reach 2/3; the rest is never reached
    assert average_precision(hit, miss, 4, 11) == pytest.approx((3 + 3 * 2 / 3) / 11)
    assert average_precision(hit[:0], miss[:0], 4, 101) == 0.0
