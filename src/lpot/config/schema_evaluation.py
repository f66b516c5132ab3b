"""`evaluation`: how accuracy and speed are measured when the program does not do it itself."""

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
    Text,
    Whole,
    read_number,
    split,
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


Labels = Annotated[
    tuple[Whole, ...], BeforeValidator(split, json_schema_input_type=int | str | list[int])
]


class TopK(Section):
    k: Positive = Field(default=1, description="Right if the label is among the k best.")


class Cut(Section):
    threshold: Number | None = Field(
        default=None,
        description="Scores above it are class 1; 0 suits logits. Not given: 0.5, or the highest.",
        examples=[0.5],
    )


class FOne(Cut):
    average: Literal["binary", "macro", "micro", "weighted"] = Field(
        default="binary", description="How the classes' scores become one; binary: one class's."
    )
    pos_label: Whole = Field(default=1, description="The class that binary is about.")


class Translation(Section):
    tokenize: Text = Field(
        default="13a", description="The tokenizer of sacrebleu: 13a, intl, char, zh and others."
    )
    lowercase: Flag = Field(default=False, description="Ignore case.")


class OutputOrder(Section):
    num_detections: Whole = Field(default=-1, description="Place of the count; -1: none.")
    boxes: Natural = Field(default=0, description="Place of the boxes.")
    scores: Natural = Field(default=1, description="Place of the scores.")
    classes: Natural = Field(default=2, description="Place of the classes.")


class Boxes(Section):
    anno_path: Text | None = Field(
        default=None,
        description="A yaml of `name: number`, or COCO's json.",
        examples=["label_map.yaml"],
    )
    iou_thrs: Thresholds | None = Field(
        default=None,
        description="Overlap that counts as a hit: a number, or '0.5:0.05:0.95', which is COCO's.",
        examples=[0.5],
    )
    map_points: Literal[0, 11, 101] | None = Field(
        default=None,
        description="Points of the precision curve; 0 takes all of them, COCO takes 101.",
        examples=[101],
    )
    map_key: Text = Field(
        default="DetectionBoxes_Precision/mAP", description="Which of the COCO figures counts."
    )
    output_index_mapping: OutputOrder | None = Field(
        default=None,
        description="Which output of the model holds what; not given: found out by their number.",
        examples=[{"num_detections": 0, "boxes": 1, "scores": 2, "classes": 3}],
    )
    box_order: Literal["yxyx", "xyxy"] = Field(
        default="yxyx", description="Order of a predicted box: (ymin, xmin, …) or (xmin, ymin, …)."
    )


class MeanAveragePrecision(Boxes):
    iou_thrs: Thresholds = Field(
        default=0.5, description="Overlap that counts as a hit: a number, or '0.5:0.05:0.95'."
    )
    map_points: Literal[0, 11, 101] = Field(
        default=0, description="Points of the precision curve; 0 takes all of them."
    )


class Comparison(Section):
    compare_label: Flag = Field(
        default=True, description="Compare with the labels; false: with the FP32 outputs."
    )


class Segmentation(Section):
    num_classes: Positive = Field(default=21, description="Number of classes.")
    ignore_label: Labels = Field(
        default=(255,), description="Pixels with these labels don't count.", examples=[255]
    )


class GlueTask(Section):
    task: Text = Field(default="mrpc", description="Which task.", examples=["sst-2"])
    key: Text | None = Field(
        default=None,
        description="Another of the task's figures than its headline one.",
        examples=["acc"],
    )


class RocTask(Section):
    task: Text = Field(default="dlrm", description="dlrm, dien or wide_deep; all are the same.")


class NoArguments(Section):
    """Takes no arguments."""


class _MetricKeys(Section):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Arguments]

    topk: Annotated[TopK, BeforeValidator(_bare_k, json_schema_input_type=TopK | int)] | None = (
        Field(default=None, description="Share of samples whose label is among the k best.")
    )
    Accuracy: Cut | None = Field(default=None, description="Share of right answers.")
    F1: FOne | None = Field(default=None, description="F1 of answers.")
    MCC: Cut | None = Field(default=None, description="Matthews correlation of classes.")
    MSE: Comparison | None = Field(default=None, description="Mean squared error.")
    RMSE: Comparison | None = Field(default=None, description="Root of the mean squared error.")
    MAE: Comparison | None = Field(default=None, description="Mean absolute error.")
    Loss: NoArguments | None = Field(default=None, description="Mean of a loss.")
    Pearson: NoArguments | None = Field(default=None, description="Linear correlation.")
    Spearman: NoArguments | None = Field(default=None, description="Correlation of ranks.")
    mAP: MeanAveragePrecision | None = Field(default=None, description="Mean average precision.")
    COCOmAP: Boxes | None = Field(default=None, description="The same as COCO counts it.")
    COCOmAPv2: Boxes | None = Field(
        default=None, description="The same for models whose outputs lie in another order."
    )
    VOCmAP: Boxes | None = Field(default=None, description="The same as VOC counts it.")
    SquadF1: NoArguments | None = Field(default=None, description="F1 on SQuAD answers.")
    SquadEM: NoArguments | None = Field(default=None, description="Exact SQuAD answers.")
    BLEU: Translation | None = Field(default=None, description="BLEU of translations.")
    mIOU: Segmentation | None = Field(default=None, description="Mean overlap of segments.")
    GLUE: GlueTask | None = Field(default=None, description="The metric of a GLUE task.")
    ROC: RocTask | None = Field(default=None, description="Area under the ROC curve.")


class Metric(OneOf, _MetricKeys):
    """Exactly one metric and its arguments; the name of a metric of your own will do too."""

    what: ClassVar[str] = "metric"


class MultiMetrics(_MetricKeys):
    """Several metrics, weighed."""

    weight: Numbers = Field(
        default=(), description="How much each metric counts, in the order they are written."
    )
    higher_is_better: Flags = Field(
        default=(), description="Which direction each has, in the same order."
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
    """How accuracy is measured, when there is no eval_func."""

    metric: Metric | None = Field(default=None, description="Exactly one metric.")
    multi_metrics: MultiMetrics | None = Field(
        default=None,
        description="Several metrics, in place of `metric`, and how each is weighed.",
        examples=[{"topk": 1, "MSE": {}, "weight": [0.7, 0.3], "higher_is_better": [True, False]}],
    )
    configs: Configs = Field(default=Configs(), description="How the processor is used.")
    iteration: Iteration = Field(default=-1, description="Batches to evaluate; -1: all of them.")
    dataloader: Dataloader | None = Field(default=None, description="Evaluation batches.")
    held_out: Dataloader | None = Field(
        default=None,
        description="Batches that have no part in the search: the winner is confirmed on them.",
    )
    postprocess: Postprocess = Field(
        default=Postprocess(), description="What is done before the metric sees the outputs."
    )

    @model_validator(mode="after")
    def _one_metric(self) -> AccuracySection:
        if self.metric is not None and self.multi_metrics is not None:
            raise wrong("given beside metric: keep one of them", key="multi_metrics")
        return self


class PerformanceSection(Section):
    """How speed is measured by `lpot benchmark`."""

    warmup: Natural = Field(default=5, description="Batches run before the clock starts.")
    iteration: Iteration = Field(default=-1, description="Batches to time; -1: all of them.")
    configs: Configs = Field(default=Configs(), description="How the processor is used.")
    dataloader: Dataloader | None = Field(default=None, description="Batches to time.")
    postprocess: Postprocess = Field(
        default=Postprocess(), description="What is done with the outputs; it is not timed."
    )


class EvaluationSection(Section):
    """How accuracy and speed are measured."""

    accuracy: AccuracySection = Field(
        default=AccuracySection(), description="How accuracy is measured."
    )
    performance: PerformanceSection = Field(
        default=PerformanceSection(), description="How speed is measured."
    )
