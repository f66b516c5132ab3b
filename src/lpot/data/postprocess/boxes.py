"""A detector's raw heads to boxes: decoding, and keeping the best of those that overlap."""

from __future__ import annotations

import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.batch import as_array
from lpot.core.errors import ConfigError, DataError
from lpot.data.postprocess.label import Sample


def decode_boxes(
    deltas: np.ndarray, anchors: np.ndarray, scales: Sequence[float] = (10.0, 10.0, 5.0, 5.0)
) -> np.ndarray:
    """Corners from a detector's offsets to its anchors (centre, centre, size, size).

    Works in the order of axes it is given: (y, x, height, width) gives (ymin, xmin, ymax, xmax).

    >>> decode_boxes(np.zeros((1, 4)), np.array([[0.5, 0.5, 0.2, 0.4]])).tolist()
    [[0.4, 0.3, 0.6, 0.7]]
    """
    steps = np.asarray(deltas, dtype=np.float64) / np.asarray(scales, dtype=np.float64)
    centre = anchors[..., :2] + steps[..., :2] * anchors[..., 2:]
    # A wild output must not become infinite; no box is e^50 times its anchor.
    half = np.exp(np.minimum(steps[..., 2:], 50.0)) * anchors[..., 2:] / 2
    return np.concatenate([centre - half, centre + half], axis=-1)


def nms(
    boxes: np.ndarray, scores: np.ndarray, iou_threshold: float = 0.6, most: int = 100
) -> np.ndarray:
    """Numbers of the boxes that stay: best first, none overlapping a better one by more.

    >>> boxes = np.array([[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3.0]])
    >>> nms(boxes, np.array([0.5, 0.9, 0.1])).tolist()
    [1, 2]
    """
    left = np.argsort(-scores, kind="stable")
    areas = np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1)
    kept: list[int] = []
    while left.size and len(kept) < most:
        best, left = int(left[0]), left[1:]
        kept.append(best)
        low = np.maximum(boxes[best, :2], boxes[left, :2])
        high = np.minimum(boxes[best, 2:], boxes[left, 2:])
        both = np.prod(np.maximum(high - low, 0), axis=1)
        union = areas[best] + areas[left] - both
        left = left[both <= iou_threshold * union]
    return np.asarray(kept, dtype=int)


class DetectionBoxes:
    """Turns a detector's raw heads into [num_detections, boxes, scores, classes], as for mAP.

    Outputs are [boxes (n, anchors, 4), scores (n, anchors, classes)]. With `anchors` (array or
    .npy file of centre and size) boxes are offsets, divided by `scales`; without, they are corners.
    `activation` is none, sigmoid or softmax; `background` means that the first class is the
    background; `first_class` is the number of the first real class. `box_order` is that of the
    model, yxyx or xyxy; the result is (ymin, xmin, ymax, xmax), clipped to 0 to 1 with `clip`.
    """

    each_batch_alone = True

    def __init__(
        self,
        anchors: Any = None,
        scales: Sequence[float] = (10.0, 10.0, 5.0, 5.0),
        activation: str = "none",
        background: bool = False,
        first_class: int = 1,
        iou_threshold: float = 0.6,
        score_threshold: float = 1e-4,
        max_detections: int = 100,
        box_order: str = "yxyx",
        clip: bool = False,
    ) -> None:
        if activation not in ("none", "sigmoid", "softmax"):
            raise ConfigError(f"activation is {activation!r}, expected none, sigmoid or softmax")
        if box_order not in ("yxyx", "xyxy"):
            raise ConfigError(f"box_order is {box_order!r}, expected yxyx or xyxy")
        self.anchors = _anchors(anchors)
        self.scales = tuple(scales)
        self.activation = activation
        self.background = background
        self.first_class = first_class
        self.iou_threshold = iou_threshold
        self.score_threshold = score_threshold
        self.max_detections = max_detections
        self.box_order = box_order
        self.clip = clip

    def __call__(self, sample: Sample) -> Sample:
        outputs, labels = sample
        several = isinstance(outputs, list | tuple)
        if not several or len(outputs) != 2:
            count = len(outputs) if several else 1
            raise DataError(f"DetectionBoxes: {count} outputs, expected [boxes, scores]")
        boxes, scores = (as_array(one).astype(np.float64) for one in outputs)
        if boxes.ndim == 4 and boxes.shape[2] == 1:  # one box for all classes
            boxes = boxes[:, :, 0]
        if boxes.ndim != 3 or boxes.shape[2] != 4 or boxes.shape[:2] != scores.shape[:2]:
            raise DataError(
                f"DetectionBoxes: boxes of shape {boxes.shape} and scores of shape {scores.shape}, "
                "expected (n, anchors, 4) and (n, anchors, classes)"
            )
        for at in range(len(boxes)):
            if np.isnan(boxes[at]).any() or np.isnan(scores[at]).any():
                raise DataError(f"DetectionBoxes: NaN in the outputs of sample {at} of the batch")
        return self._pad([self._image(*one) for one in zip(boxes, scores, strict=True)]), labels

    def _image(self, boxes: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Rows of (box, score, class), best first."""
        if self.anchors is not None:
            if len(self.anchors) != len(boxes):
                raise DataError(
                    f"DetectionBoxes: {len(boxes)} boxes for {len(self.anchors)} anchors"
                )
            boxes = decode_boxes(boxes, self.anchors, self.scales)
        if self.box_order == "xyxy":
            boxes = boxes[:, [1, 0, 3, 2]]
        scores = _activate(scores, self.activation)[:, 1 if self.background else 0 :]
        rows = [np.empty((0, 6))]
        for kind, column in enumerate(scores.T, start=self.first_class):
            able = np.flatnonzero(column > self.score_threshold)
            kept = able[nms(boxes[able], column[able], self.iou_threshold, self.max_detections)]
            kinds = np.full(len(kept), kind)
            rows.append(np.column_stack([boxes[kept], column[kept], kinds]))
        table = np.concatenate(rows)
        if self.clip:
            table[:, :4] = table[:, :4].clip(0.0, 1.0)
        return table[np.argsort(-table[:, 4], kind="stable")[: self.max_detections]]

    def _pad(self, tables: list[np.ndarray]) -> list[np.ndarray]:
        whole = np.zeros((len(tables), self.max_detections, 6), dtype=np.float32)
        for row, table in zip(whole, tables, strict=True):
            row[: len(table)] = table
        counts = np.asarray([len(table) for table in tables], dtype=np.float32)
        return [counts, whole[..., :4], whole[..., 4], whole[..., 5]]


def _anchors(given: Any) -> np.ndarray | None:
    if given is None:
        return None
    try:
        loaded = np.load(given, allow_pickle=False) if isinstance(given, str | Path) else given
        array = np.asarray(loaded, dtype=np.float64)
    except (OSError, ValueError, EOFError, tokenize.TokenError) as error:
        raise DataError(f"DetectionBoxes: anchors {given!r:.80} can't be read: {error}") from error
    if array.ndim != 2 or array.shape[1] != 4:
        raise DataError(f"DetectionBoxes: anchors of shape {array.shape}, expected (anchors, 4)")
    return array


def _activate(scores: np.ndarray, kind: str) -> np.ndarray:
    if kind == "sigmoid":
        return np.asarray(0.5 * (1 + np.tanh(scores / 2)))  # does not overflow
    if kind == "softmax":
        raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=-1, keepdims=True))
    return scores
