"""`quantization`: how to calibrate, and which precisions each op may have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from lpot.config.fields import Counts, Flag, Numbers, Several, read_entries, wrong
from lpot.config.frozen import FrozenDict
from lpot.config.scalar import show
from lpot.config.schema_data import Dataloader, Train
from lpot.config.schema_weight_only import GroupSizes, WeightOnly
from lpot.config.section import Section

Approach = Literal[
    "post_training_static_quant",
    "post_training_dynamic_quant",
    "post_training_auto_quant",
    "quant_aware_training",
    "weight_only",
]
Target = Literal["this", "avx2", "vnni", "amx"]
GranularityWord = Literal["per_channel", "per_tensor"]
SchemeWord = Literal["asym", "sym", "asym_float", "placeholder"]
DtypeWord = Literal["int8", "uint8", "fp32", "bf16", "fp16"]
WeightGranularityWord = Literal["per_channel", "per_tensor", "per_group"]
WeightDtypeWord = Literal["int8", "uint8", "int4", "int3", "int2", "fp32", "bf16", "fp16"]
ComputeWord = Literal["int8", "uint8", "fp32", "bf16", "None"]
WeightWord = Literal["minmax", "kl", "learned", "gptq", "rtn", "awq", "signround"]
ActivationWord = Literal["minmax", "kl", "percentile", "mse", "placeholder"]


def _no_flag(value: Any) -> Any:
    # True equals 1 in Python, and would pass for it.
    return show(value) if isinstance(value, bool) else value


def _check_bits(values: tuple[float, ...]) -> tuple[float, ...]:
    for value in values:
        if not (0 < value <= 7 and value.is_integer()):
            raise wrong(
                f"given {value:g}, expected whole numbers from 1 to 7: bits besides the sign, "
                "7 being the full range of int8"
            )
    return values


QuantLevel = Annotated[
    Literal["auto", 0, 1],
    BeforeValidator(_no_flag, json_schema_input_type=Literal["auto", 0, 1]),
]
Granularities = Several[GranularityWord]
Schemes = Several[SchemeWord]
Dtypes = Several[DtypeWord]
WeightGranularities = Several[WeightGranularityWord]
WeightDtypes = Several[WeightDtypeWord]
ComputeDtypes = Several[ComputeWord]
WeightAlgorithms = Several[WeightWord]
ActivationAlgorithms = Several[ActivationWord]
Bits = Annotated[Numbers, AfterValidator(_check_bits)]


class Weight(Section):
    """Allowed settings for weights. A key allows what it lists; if omitted, anything."""

    granularity: WeightGranularities = Field(
        default=(),
        description="One scale per channel, one per tensor, or (few bits) one per group.",
    )
    scheme: Schemes = Field(
        default=(),
        description="Symmetric around zero or not; `placeholder` allows both.",
    )
    dtype: WeightDtypes = Field(
        default=(),
        description="Data types; `fp32` alone keeps FP32. int4, int3 and int2 are few bits for "
        "the weight alone, on ONNX in every approach that does not train.",
    )
    algorithm: WeightAlgorithms = Field(
        default=(),
        description="How the range is chosen, or (few bits) how weights are rounded.",
    )
    group_size: GroupSizes = Field(
        default=(), description="Columns that share a scale, of weights in few bits."
    )
    bit: Bits = Field(
        default=(),
        description="Bits besides the sign, from 1 to 7. 7 is the full range, or the safe part of "
        "it on CPUs whose kernels saturate.",
    )


class Activation(Section):
    """Allowed settings for activations. A key allows what it lists; if omitted, anything."""

    granularity: Granularities = Field(
        default=(), description="One scale per channel, or one per tensor."
    )
    scheme: Schemes = Field(
        default=(),
        description="Symmetric around zero or not; `placeholder` allows both.",
    )
    dtype: Dtypes = Field(default=(), description="Data types; `fp32` alone keeps FP32.")
    algorithm: ActivationAlgorithms = Field(
        default=(),
        description="How the range is chosen from calibration data; `placeholder` allows any.",
    )
    compute_dtype: ComputeDtypes = Field(
        default=(), description="Data types a dynamic op computes in."
    )


class OpRule(Section):
    """Allowed settings for an op, an op type or the whole model."""

    weight: Weight | None = Field(default=None, description="Allowed settings for weights.")
    activation: Activation | None = Field(
        default=None, description="Allowed settings for activations."
    )


OpRules = Annotated[
    dict[str, OpRule],
    BeforeValidator(read_entries, json_schema_input_type=dict[str, OpRule]),
    AfterValidator(FrozenDict),
]


class Calibration(Section):
    """Which data the ranges are calibrated on."""

    sampling_size: Counts = Field(
        default=(),
        description="Number of samples, or several numbers to try. Default: the whole loader.",
        examples=[(100, 200)],
    )
    iterations: Counts = Field(
        default=(),
        description="The same in batches, as in the oldest files; not together with sampling_size.",
        examples=[10],
    )
    dataloader: Dataloader | None = Field(
        default=None, description="Calibration batches, if the program provides no loader."
    )

    @model_validator(mode="after")
    def _one_measure(self) -> Calibration:
        if self.sampling_size and self.iterations:
            raise wrong(
                "cannot be combined with sampling_size: both set how much data to use",
                key="iterations",
            )
        return self


class Recipes(Section):
    """Graph-wide switches."""

    scale_propagation_max_pooling: Flag = Field(
        default=True, description="Pooling shares the scale of its input."
    )
    scale_propagation_concat: Flag = Field(
        default=True, description="Inputs of a concatenation share its scale."
    )
    first_conv_or_matmul_quantization: Flag = Field(
        default=True, description="Quantize the first convolution or matrix product."
    )
    last_conv_or_matmul_quantization: Flag = Field(
        default=True, description="Quantize the last convolution or matrix product."
    )
    pre_post_process_quantization: Flag = Field(
        default=True, description="Quantize ops before the first and after the last of them."
    )
    smooth_quant: Flag = Field(
        default=True,
        description="SmoothQuant: move outliers of activation channels into the weights that "
        "consume them, wherever that brings the outputs closer to FP32.",
    )
    fast_bias_correction: Flag = Field(
        default=True,
        description="Correct the bias for the mean output error caused by rounding the weights, "
        "estimated on the calibration data; it costs nothing at run time.",
    )
    weight_correction: Flag = Field(
        default=False,
        description="Correct the mean and variance of each channel of a rounded weight.",
    )


class Advance(Section):
    """Corrections as the oldest files name them."""

    bias_correction: Literal["weight_empirical"] | None = Field(
        default=None, description="Correct the bias for the error of the weights."
    )


class QuantizationSection(Section):
    """How to quantize, and what is allowed."""

    approach: Approach = Field(
        default="post_training_static_quant",
        description="Static: ranges from calibration data. Dynamic: ranges computed at run time. "
        "Auto: whichever suits each op. quant_aware_training trains the model first. "
        "weight_only: few bits for the weights of decoders, see `weight_only`.",
    )
    target: Target = Field(
        default="this",
        description="CPU the model will run on: this one, or one with that instruction set.",
    )
    calibration: Calibration = Field(
        default=Calibration(), description="Which data the ranges are calibrated on."
    )
    recipes: Recipes = Field(default=Recipes(), description="Graph-wide switches.")
    model_wise: OpRule = Field(default=OpRule(), description="Allowed settings for all ops.")
    op_wise: OpRules = Field(
        default=FrozenDict(),
        description="Allowed settings for single ops, by name or regular expression; a name that "
        "matches no op is read as an op type. `default_qconfig` is for all other ops.",
        examples=[{"MatMul": {"activation": {"dtype": ["fp32"]}, "weight": {"dtype": ["fp32"]}}}],
    )
    optype_wise: OpRules = Field(
        default=FrozenDict(),
        description="Allowed settings for all ops of a type.",
        examples=[{"Softmax": {"activation": {"dtype": ["fp32"]}}}],
    )
    quant_level: QuantLevel = Field(
        default=1,
        description="0: from FP32 towards INT8, one op type at a time. 1: the strategy in "
        "`tuning`. auto: 0, then 1.",
    )
    weight_only: WeightOnly = Field(
        default=WeightOnly(), description="Formats and phases of `approach: weight_only`."
    )
    train: Train | None = Field(default=None, description="Training for quant_aware_training.")
    advance: Advance | None = Field(
        default=None, description="Corrections, as in the oldest files."
    )
