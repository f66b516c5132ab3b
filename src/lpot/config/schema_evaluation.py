"""`evaluation`: how accuracy and speed are measured if the program does not do it itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from lpot.config.fields import (
    Arguments,
    Flag,
    Flags,
    Natural,
    Number,
    Numbers,
    Positive,
    Several,
    Text,
    Whole,
    read_number,
    wrong,
)
from lpot.config.scalar import show
from lpot.config.schema_data import Configs, Dataloader, Iteration, Postprocess
from lpot.config.section import OneOf, Section

COCO_THRESHOLDS = "0.5:0.05:0.95"


def _bare_k(value: Any) -> Any:
    return {"k": value} if isinstance(value, int | str) and not isinstance(value, bool) else value


def _read_thresholds(value: Any) -> float | str:
    if value == COCO_THRESHOLDS:
        return COCO_THRESHOLDS
    number = read_number(value) if not isinstance(value, str) or value[:1].isdigit() else math.nan
    if not 0 <= number <= 1:
        raise wrong(f"given {show(value)}, expected a number from 0 to 1, or '{COCO_THRESHOLDS}'")
    return number


Thresholds = Annotated[
    float | str, BeforeValidator(_read_thresholds, json_schema_input_type=float | str)
]


Labels = Several[Whole]


class TopK(Section):
    k: Positive = Field(
        default=1, description="Correct if the label is among the k highest scores."
    )


class Cut(Section):
    threshold: Number | None = Field(
        default=None,
        description="Scores above it are class 1; use 0 for logits. Default: 0.5, or the highest "
        "score.",
        examples=[0.5],
    )


class FOne(Cut):
    average: Literal["binary", "macro", "micro", "weighted"] = Field(
        default="binary", description="How per-class scores are averaged; binary scores one class."
    )
    pos_label: Whole = Field(default=1, description="The positive class for binary.")


class Translation(Section):
    tokenize: Text = Field(
        default="13a", description="Tokenizer of sacrebleu: 13a, intl, char, zh and others."
    )
    lowercase: Flag = Field(default=False, description="Ignore case.")


class OutputOrder(Section):
    num_detections: Whole = Field(
        default=-1, description="Index of the count; -1 if there is none."
    )
    boxes: Natural = Field(default=0, description="Index of the boxes.")
    scores: Natural = Field(default=1, description="Index of the scores.")
    classes: Natural = Field(default=2, description="Index of the classes.")


class Boxes(Section):
    anno_path: Text | None = Field(
        default=None,
        description="A yaml of `name: number`, or a COCO json.",
        examples=["label_map.yaml"],
    )
    iou_thrs: Thresholds | None = Field(
        default=None,
        description="IoU threshold for a match: a number, or '0.5:0.05:0.95' as COCO uses.",
        examples=[0.5],
    )
    map_points: Literal[0, 11, 101] | None = Field(
        default=None,
        description="Points on the precision-recall curve; 0 uses all of them, COCO uses 101.",
        examples=[101],
    )
    map_key: Text = Field(
        default="DetectionBoxes_Precision/mAP", description="Which COCO figure to use."
    )
    output_index_mapping: OutputOrder | None = Field(
        default=None,
        description="Which model output is which. Default: inferred from their number.",
        examples=[{"num_detections": 0, "boxes": 1, "scores": 2, "classes": 3}],
    )
    box_order: Literal["yxyx", "xyxy"] = Field(
        default="yxyx", description="Order of a predicted box: (ymin, xmin, …) or (xmin, ymin, …)."
    )


class MeanAveragePrecision(Boxes):
    iou_thrs: Thresholds = Field(
        default=0.5, description="IoU threshold for a match: a number, or '0.5:0.05:0.95'."
    )
    map_points: Literal[0, 11, 101] = Field(
        default=0, description="Points on the precision-recall curve; 0 uses all of them."
    )


class Comparison(Section):
    compare_label: Flag = Field(
        default=True, description="Compare with the labels; if false, with the FP32 outputs."
    )


class Segmentation(Section):
    num_classes: Positive = Field(default=21, description="Number of classes.")
    ignore_label: Labels = Field(
        default=(255,), description="Pixels with these labels are ignored.", examples=[255]
    )


class GlueTask(Section):
    task: Text = Field(default="mrpc", description="Which task.", examples=["sst-2"])
    key: Text | None = Field(
        default=None,
        description="A figure of the task other than its main one.",
        examples=["acc"],
    )


class RocTask(Section):
    task: Text = Field(
        default="dlrm", description="dlrm, dien or wide_deep; all are treated the same."
    )


class NoArguments(Section):
    """Takes no arguments."""


class _MetricKeys(Section):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Arguments]

    topk: Annotated[TopK, BeforeValidator(_bare_k, json_schema_input_type=TopK | int)] | None = (
        Field(
            default=None, description="Share of samples whose label is among the k highest scores."
        )
    )
    Accuracy: Cut | None = Field(default=None, description="Share of correct answers.")
    F1: FOne | None = Field(default=None, description="F1 score.")
    MCC: Cut | None = Field(default=None, description="Matthews correlation coefficient.")
    MSE: Comparison | None = Field(default=None, description="Mean squared error.")
    RMSE: Comparison | None = Field(default=None, description="Root mean squared error.")
    MAE: Comparison | None = Field(default=None, description="Mean absolute error.")
    Loss: NoArguments | None = Field(default=None, description="Mean loss.")
    Pearson: NoArguments | None = Field(default=None, description="Linear correlation.")
    Spearman: NoArguments | None = Field(default=None, description="Rank correlation.")
    mAP: MeanAveragePrecision | None = Field(default=None, description="Mean average precision.")
    COCOmAP: Boxes | None = Field(
        default=None, description="Mean average precision as COCO defines it."
    )
    COCOmAPv2: Boxes | None = Field(
        default=None, description="COCOmAP for models whose outputs come in another order."
    )
    VOCmAP: Boxes | None = Field(
        default=None, description="Mean average precision as VOC defines it."
    )
    SquadF1: NoArguments | None = Field(default=None, description="F1 on SQuAD answers.")
    SquadEM: NoArguments | None = Field(default=None, description="Exact matches on SQuAD answers.")
    BLEU: Translation | None = Field(default=None, description="BLEU of translations.")
    mIOU: Segmentation | None = Field(
        default=None, description="Mean intersection over union of segments."
    )
    GLUE: GlueTask | None = Field(default=None, description="The metric of a GLUE task.")
    ROC: RocTask | None = Field(default=None, description="Area under the ROC curve.")
    perplexity: NoArguments | None = Field(
        default=None, description="Perplexity of the next token; lower is better."
    )
    last_word: NoArguments | None = Field(
        default=None, description="Share of texts whose last word is predicted exactly."
    )


class Metric(OneOf, _MetricKeys):
    """Exactly one metric and its arguments; a metric of your own works too."""

    what: ClassVar[str] = "metric"


class MultiMetrics(_MetricKeys):
    """Several metrics, weighted."""

    weight: Numbers = Field(
        default=(), description="Weight of each metric, in the order they are listed."
    )
    higher_is_better: Flags = Field(
        default=(), description="Whether higher is better for each, in the same order."
    )

    _order: tuple[str, ...] = PrivateAttr(default=())  # of the keys as they are written

    @model_validator(mode="wrap")
    @classmethod
    def _keep_order(cls, value: Any, handler: ModelWrapValidatorHandler[MultiMetrics]) -> Any:
        made = handler(value)
        if isinstance(value, Mapping):
            made._order = tuple(map(str, value))
        return made

    @model_serializer(mode="wrap")
    def _in_order(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        raw: dict[str, Any] = handler(self)
        return {key: raw[key] for key in dict.fromkeys((*self._order, *raw)) if key in raw}

    @property
    def names(self) -> tuple[str, ...]:
        keys = (*self._order, *type(self).model_fields, *(self.model_extra or {}))
        return tuple(
            key
            for key in dict.fromkeys(keys)
            if key in self.model_fields_set and key not in ("weight", "higher_is_better")
        )

    @model_validator(mode="after")
    def _equal_lengths(self) -> MultiMetrics:
        for key, values in (("weight", self.weight), ("higher_is_better", self.higher_is_better)):
            if values and len(values) != len(self.names):
                raise wrong(f"given {len(values)} values for {len(self.names)} metrics", key=key)
        return self


class AccuracySection(Section):
    """How accuracy is measured if there is no eval_func."""

    metric: Metric | None = Field(default=None, description="Exactly one metric.")
    multi_metrics: MultiMetrics | None = Field(
        default=None,
        description="Several metrics instead of `metric`, with their weights.",
        examples=[{"topk": 1, "MSE": {}, "weight": [0.7, 0.3], "higher_is_better": [True, False]}],
    )
    configs: Configs = Field(default=Configs(), description="How the CPU is used.")
    iteration: Iteration = Field(default=-1, description="Batches to evaluate; -1 for all.")
    dataloader: Dataloader | None = Field(default=None, description="Evaluation batches.")
    held_out: Dataloader | None = Field(
        default=None,
        description="Data not used in the search, to confirm the winner on.",
    )
    postprocess: Postprocess = Field(
        default=Postprocess(), description="Processing of the outputs before the metric sees them."
    )

    @model_validator(mode="after")
    def _one_metric(self) -> AccuracySection:
        if self.metric is not None and self.multi_metrics is not None:
            raise wrong("cannot be combined with metric: use one of them", key="multi_metrics")
        return self


class PerformanceSection(Section):
    """How speed is measured by `lpot benchmark`."""

    warmup: Natural = Field(default=5, description="Warm-up batches before timing.")
    iteration: Iteration = Field(default=-1, description="Batches to time; -1 for all.")
    configs: Configs = Field(default=Configs(), description="How the CPU is used.")
    dataloader: Dataloader | None = Field(default=None, description="Batches to time.")
    postprocess: Postprocess = Field(
        default=Postprocess(), description="Processing of the outputs; it is not timed."
    )


class EvaluationSection(Section):
    """How accuracy and speed are measured."""

    accuracy: AccuracySection = Field(
        default=AccuracySection(), description="How accuracy is measured."
    )
    performance: PerformanceSection = Field(
        default=PerformanceSection(), description="How speed is measured."
    )
