"""`quantization`: how to calibrate, and which precisions each op may have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from lpot.config.fields import Counts, Flag, Number, read_entries, split, wrong
from lpot.config.frozen import FrozenDict
from lpot.config.scalar import show
from lpot.config.schema_data import Dataloader, Train
from lpot.config.section import Section

Approach = Literal[
    "post_training_static_quant",
    "post_training_dynamic_quant",
    "post_training_auto_quant",
    "quant_aware_training",
]
Target = Literal["this", "avx2", "vnni", "amx"]
GranularityWord = Literal["per_channel", "per_tensor"]
SchemeWord = Literal["asym", "sym", "asym_float", "placeholder"]
DtypeWord = Literal["int8", "uint8", "fp32", "bf16", "fp16"]
ComputeWord = Literal["int8", "uint8", "fp32", "bf16", "None"]
WeightWord = Literal["minmax", "kl"]
ActivationWord = Literal["minmax", "kl", "percentile", "mse", "placeholder"]


def _no_flag(value: Any) -> Any:
    # True equals 1 in Python, and would pass for it.
    return show(value) if isinstance(value, bool) else value


def _check_bits(values: tuple[float, ...]) -> tuple[float, ...]:
    for value in values:
        if not (0 < value <= 7 and value.is_integer()):
            raise wrong(
                f"given {value:g}, expected whole numbers from 1 to 7: bits beside the sign, "
                "7 being the whole range of int8"
            )
    return values


QuantLevel = Annotated[
    Literal["auto", 0, 1],
    BeforeValidator(_no_flag, json_schema_input_type=Literal["auto", 0, 1]),
]
Granularities = Annotated[
    tuple[GranularityWord, ...],
    BeforeValidator(split, json_schema_input_type=GranularityWord | list[GranularityWord] | str),
]
Schemes = Annotated[
    tuple[SchemeWord, ...],
    BeforeValidator(split, json_schema_input_type=SchemeWord | list[SchemeWord] | str),
]
Dtypes = Annotated[
    tuple[DtypeWord, ...],
    BeforeValidator(split, json_schema_input_type=DtypeWord | list[DtypeWord] | str),
]
ComputeDtypes = Annotated[
    tuple[ComputeWord, ...],
    BeforeValidator(split, json_schema_input_type=ComputeWord | list[ComputeWord] | str),
]
WeightAlgorithms = Annotated[
    tuple[WeightWord, ...],
    BeforeValidator(split, json_schema_input_type=WeightWord | list[WeightWord] | str),
]
ActivationAlgorithms = Annotated[
    tuple[ActivationWord, ...],
    BeforeValidator(split, json_schema_input_type=ActivationWord | list[ActivationWord] | str),
]
Bits = Annotated[
    tuple[Number, ...],
    BeforeValidator(split, json_schema_input_type=float | list[float] | str),
    AfterValidator(_check_bits),
]


class Weight(Section):
    """What weights may be. Each key allows what it lists; an absent one allows anything."""

    granularity: Granularities = Field(
        default=(), description="One scale for each channel, or one for the tensor."
    )
    scheme: Schemes = Field(
        default=(),
        description="Symmetric around zero or not; `placeholder` leaves it open.",
    )
    dtype: Dtypes = Field(default=(), description="Number formats; `fp32` alone keeps FP32.")
    algorithm: WeightAlgorithms = Field(default=(), description="How the range is chosen.")
    bit: Bits = Field(
        default=(),
        description="Bits used beside the sign, from 1 to 7. 7 is the whole range, or the safe "
        "part of it on processors whose kernels saturate.",
    )


class Activation(Section):
    """What activations may be. Each key allows what it lists; an absent one allows anything."""

    granularity: Granularities = Field(
        default=(), description="One scale for each channel, or one for the tensor."
    )
    scheme: Schemes = Field(
        default=(),
        description="Symmetric around zero or not; `placeholder` leaves it open.",
    )
    dtype: Dtypes = Field(default=(), description="Number formats; `fp32` alone keeps FP32.")
    algorithm: ActivationAlgorithms = Field(
        default=(),
        description="How the range is chosen from calibration; `placeholder` leaves it open.",
    )
    compute_dtype: ComputeDtypes = Field(
        default=(), description="Number formats a dynamic op computes in."
    )


class OpRule(Section):
    """What an op, a type of op or the whole model may be."""

    weight: Weight | None = Field(default=None, description="What weights may be.")
    activation: Activation | None = Field(default=None, description="What activations may be.")


OpRules = Annotated[
    dict[str, OpRule],
    BeforeValidator(read_entries, json_schema_input_type=dict[str, OpRule]),
    AfterValidator(FrozenDict),
]


class Calibration(Section):
    """Which data the ranges are learnt from."""

    sampling_size: Counts = Field(
        default=(),
        description="Number of samples, or several numbers, each of which is tried. "
        "Absent: the whole loader.",
        examples=[(100, 200)],
    )
    iterations: Counts = Field(
        default=(),
        description="The same in batches, as the oldest files have it; not beside sampling_size.",
        examples=[10],
    )
    dataloader: Dataloader | None = Field(
        default=None, description="Calibration batches, when the program gives no loader."
    )

    @model_validator(mode="after")
    def _one_measure(self) -> Calibration:
        if self.sampling_size and self.iterations:
            raise wrong(
                "given beside sampling_size: both say how much data to use, keep one of them",
                key="iterations",
            )
        return self


class Recipes(Section):
    """Graph-wide switches."""

    scale_propagation_max_pooling: Flag = Field(
        default=True, description="Pooling takes the scale of its input."
    )
    scale_propagation_concat: Flag = Field(
        default=True, description="Inputs of a concatenation take its scale."
    )
    first_conv_or_matmul_quantization: Flag = Field(
        default=True, description="Quantize the first convolution or matrix product."
    )
    last_conv_or_matmul_quantization: Flag = Field(
        default=True, description="Quantize the last convolution or matrix product."
    )
    pre_post_process_quantization: Flag = Field(
        default=True, description="Quantize what comes before the first and after the last of them."
    )
    smooth_quant: Flag = Field(
        default=True,
        description="Move outlier channels of activations into the weights of the matrix products "
        "that read them, wherever that brings the outputs nearer to FP32.",
    )
    fast_bias_correction: Flag = Field(
        default=True,
        description="Mend the bias by the mean error that rounding the weights makes in the "
        "output, known from calibration; it costs nothing when the model runs.",
    )
    weight_correction: Flag = Field(
        default=False, description="Mend the spread of every channel of a rounded weight."
    )


class Advance(Section):
    """Repairs of the oldest files."""

    bias_correction: Literal["weight_empirical"] | None = Field(
        default=None, description="Mend the bias by the error of the weights."
    )


class QuantizationSection(Section):
    """How to quantize, and what is allowed."""

    approach: Approach = Field(
        default="post_training_static_quant",
        description="Static: ranges from calibration data. Dynamic: ranges while running. "
        "Auto: whichever suits each op. The last one trains.",
    )
    target: Target = Field(
        default="this",
        description="Processor the model will run on: this one, or one with that ability.",
    )
    calibration: Calibration = Field(
        default=Calibration(), description="Which data the ranges are learnt from."
    )
    recipes: Recipes = Field(default=Recipes(), description="Graph-wide switches.")
    model_wise: OpRule = Field(default=OpRule(), description="What every op may be.")
    op_wise: OpRules = Field(
        default=FrozenDict(),
        description="What single ops may be, by name; a name that is no plain name is a regular "
        "expression; one that names no op is read as a type. `default_qconfig` is for the rest.",
        examples=[{"MatMul": {"activation": {"dtype": ["fp32"]}, "weight": {"dtype": ["fp32"]}}}],
    )
    optype_wise: OpRules = Field(
        default=FrozenDict(),
        description="What the ops of a type may be, by the type's name.",
        examples=[{"Softmax": {"activation": {"dtype": ["fp32"]}}}],
    )
    quant_level: QuantLevel = Field(
        default=1,
        description="0: from FP32 towards INT8, one type of op after another. "
        "1: the strategy named in tuning. auto: 0, then 1.",
    )
    train: Train | None = Field(default=None, description="Training of quant_aware_training.")
    advance: Advance | None = Field(default=None, description="Repairs of the oldest files.")
