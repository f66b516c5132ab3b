"""Reading what detectors and detection datasets give: boxes, scores, classes, labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lpot.metric.arrays import no_inf, no_nan, to_numpy
from lpot.metric.base import Array, BaseMetric, Floats

THREE = {"boxes": 0, "scores": 1, "classes": 2}
FOUR = {"num_detections": 0, "boxes": 1, "scores": 2, "classes": 3}

Detection = tuple[Floats, Floats, Array]  # boxes, scores, classes of one image
Truth = tuple[Floats, Any, Any, Any]  # boxes, names, class numbers, id of one image


def read_detections(
    metric: BaseMetric, preds: Any, mapping: Mapping[str, int] | None, seen: int
) -> list[Detection]:
    """Detections of each image of a batch; boxes stay in the model's order of corners."""
    if preds is None:
        raise metric.fault("needs predictions, but None was given", seen)
    outputs = list(preds.values()) if isinstance(preds, Mapping) else list(preds)
    mapping = mapping or {3: THREE, 4: FOUR}.get(len(outputs))
    if mapping is None or max(mapping.values()) >= len(outputs):
        raise metric.fault(
            f"the model gives {len(outputs)} outputs, expected [boxes, scores, classes] or "
            "[num_detections, boxes, scores, classes]; set the order with output_index_mapping",
            seen,
        )
    boxes, scores, classes = (_images(outputs[mapping[key]]) for key in THREE)
    counts: list[Any] = [None] * len(boxes)
    if "num_detections" in mapping:
        counts = to_numpy(outputs[mapping["num_detections"]]).reshape(-1).tolist()
    if len({len(boxes), len(scores), len(classes), len(counts)}) != 1:
        raise metric.fault(
            f"boxes, scores and classes are of {len(boxes)}, {len(scores)} and {len(classes)} "
            "images: is their order right? set it with output_index_mapping",
            seen,
        )
    rows = zip(boxes, scores, classes, counts, strict=True)
    return [_detection(metric, seen + at, *row) for at, row in enumerate(rows)]


def _images(output: Any) -> list[Any]:
    return list(output if isinstance(output, list | tuple) else to_numpy(output))


def _detection(
    metric: BaseMetric, sample: int, boxes: Any, scores: Any, classes: Any, count: float | None
) -> Detection:
    corners = to_numpy(boxes).astype(np.float64)
    score = to_numpy(scores).astype(np.float64).reshape(-1)
    kind = to_numpy(classes).reshape(-1)
    if corners.size != 4 * score.size or score.size != kind.size:
        raise metric.fault(
            f"boxes of shape {corners.shape}, {score.size} scores and {kind.size} classes don't "
            "fit: is the order of outputs right? set it with output_index_mapping",
            sample,
        )
    corners = corners.reshape(-1, 4)
    if count is not None:
        if not 0 <= count <= len(score):
            raise metric.fault(f"num_detections is {count}, but there are {len(score)}", sample)
        corners, score, kind = (one[: int(count)] for one in (corners, score, kind))
    for array, what in ((corners, "box"), (score, "score"), (kind, "class")):
        no_nan(metric, array.reshape(1, -1), what, sample)
        no_inf(metric, array.reshape(1, -1), what, sample)
    return corners, score, np.rint(kind).astype(np.int64)


def read_truths(metric: BaseMetric, labels: Any, ids_alone: bool, seen: int) -> list[Truth]:
    """Labels of each image of a batch; `ids_alone`: image ids without anything else will do."""
    if labels is None:
        raise metric.fault("needs labels: (boxes, names, class numbers, image ids)", seen)
    fields = list(labels) if isinstance(labels, list | tuple) else [labels]
    if len(fields) == 4 and not all(isinstance(one, str | bytes | int) for one in fields):
        if np.ndim(fields[3]) == 0:  # one image without a batch axis
            fields = [[one] for one in fields]
        lists = [list(one) for one in fields]
        if len({len(one) for one in lists}) != 1:
            raise metric.fault(f"label fields are of {[len(one) for one in lists]} images", seen)
        return [
            (_corners(metric, boxes, seen + at), names, numbers, plain(image))
            for at, (boxes, names, numbers, image) in enumerate(zip(*lists, strict=True))
        ]
    if ids_alone:
        ids = [one for part in fields for one in to_numpy(part).reshape(-1).tolist()]
        return [(np.empty((0, 4)), (), (), plain(one)) for one in ids]
    raise metric.fault(
        f"labels have {len(fields)} fields, expected (boxes, names, class numbers, image ids); "
        "image ids alone need anno_path to be a COCO json",
        seen,
    )


def _corners(metric: BaseMetric, boxes: Any, sample: int) -> Floats:
    corners = to_numpy(boxes).astype(np.float64)
    if corners.size % 4:
        raise metric.fault(
            f"the label's boxes have shape {corners.shape}, expected (ymin, xmin, ymax, xmax) each",
            sample,
        )
    no_nan(metric, corners.reshape(1, -1), "label's box", sample)
    no_inf(metric, corners.reshape(1, -1), "label's box", sample)
    return corners.reshape(-1, 4)


def from_corners(corners: Floats) -> Floats:
    """(ymin, xmin, ymax, xmax) to (x, y, width, height)."""
    top, left, bottom, right = corners.reshape(-1, 4).T
    return np.stack([left, top, right - left, bottom - top], axis=1)


def plain(value: Any) -> Any:
    """An image id or a name as text or int."""
    if hasattr(value, "dtype"):
        value = to_numpy(value).reshape(-1)[0].item()
    while isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    return value.decode("utf-8") if isinstance(value, bytes) else value


def listed_names(names: Any) -> list[Any]:
    if isinstance(names, str | bytes):
        return [names]
    return list(names if isinstance(names, list | tuple) else to_numpy(names).reshape(-1))
