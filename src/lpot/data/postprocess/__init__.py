"""What is done with a model's outputs and labels before the metric sees them."""

from __future__ import annotations

from lpot.data.postprocess.boxes import DetectionBoxes, decode_boxes, nms
from lpot.data.postprocess.chain import POSTPROCESSES, Chain, as_postprocess
from lpot.data.postprocess.label import LabelShift
from lpot.data.postprocess.squad import SquadV1

SquadV1PostTransform = SquadV1  # the name of the tutorials

__all__ = [
    "POSTPROCESSES",
    "Chain",
    "DetectionBoxes",
    "LabelShift",
    "SquadV1",
    "SquadV1PostTransform",
    "as_postprocess",
    "decode_boxes",
    "nms",
]
