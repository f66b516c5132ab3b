"""`quantization.weight_only`: formats of weights, and what prompts and tokens count."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from lpot.config.fields import Flag, Natural, Positive, Share, Text, split, wrong
from lpot.config.section import Section
from lpot.core.weight_only.grid import BITS, GROUPS, PER_CHANNEL

SHORTEST = 2  # tokens of a window


def _check_widths(values: tuple[int, ...]) -> tuple[int, ...]:
    for value in values:
        if value not in BITS:
            raise wrong(f"given {value}, expected one or more of {', '.join(map(str, BITS))}")
    return values


def _check_groups(values: tuple[int, ...]) -> tuple[int, ...]:
    accepted = (PER_CHANNEL, *GROUPS)
    for value in values:
        if value not in accepted:
            raise wrong(
                f"given {value}, expected one or more of {', '.join(map(str, accepted))}; "
                "0 is one group per row"
            )
    return values


Naturals = Annotated[
    tuple[Natural, ...],
    BeforeValidator(split, json_schema_input_type=int | list[int] | str),
]


GroupSizes = Annotated[Naturals, AfterValidator(_check_groups)]
SchemeWord = Literal["sym", "asym"]
SchemeWords = Annotated[
    tuple[SchemeWord, ...],
    BeforeValidator(split, json_schema_input_type=SchemeWord | list[SchemeWord] | str),
]
AlgorithmWord = Literal["learned", "gptq", "rtn", "awq", "signround"]
AlgorithmWords = Annotated[
    tuple[AlgorithmWord, ...],
    BeforeValidator(split, json_schema_input_type=AlgorithmWord | list[AlgorithmWord] | str),
]


class WeightOnly(Section):
    """`approach: weight_only`: weights in few bits, activations in FP32 or INT8 as they come."""

    bits: Annotated[Naturals, AfterValidator(_check_widths)] = Field(
        default=(4, 8), description="Bits that a weight may have: 2, 3, 4, 8.", examples=[(4, 8)]
    )
    group_size: GroupSizes = Field(
        default=(32, 128),
        description="Columns that share a scale: 16 to 256, 0 for a whole row. Halved where it "
        "does not divide a row.",
        examples=[(32, 128)],
    )
    scheme: SchemeWords = Field(
        default=("sym", "asym"),
        description="Symmetric around zero, or with zero points, which lose less for a few more "
        "bytes.",
    )
    algorithm: AlgorithmWords = Field(
        default=("learned",),
        description="How weights are rounded: to nearest with clip search (rtn), with AWQ's "
        "scaling of the inputs, by GPTQ, by GPTQ followed by learning codes and scales (learned), "
        "or by AutoRound's signed gradients (signround, which needs PyTorch). Of several, each op "
        "takes the one that loses least on calibration data that had no part in the rounding. "
        "Without data, rtn.",
    )
    prompt: Share = Field(
        default=0.3,
        description="Weight of reading a prompt against generating a token: 0 for tokens only, 1 "
        "for prompts only.",
    )
    prompt_length: Positive = Field(
        default=512, description="Number of tokens in a timed prompt, and in a window of text."
    )
    two_formats: Flag = Field(
        default=False,
        description="Hold weights in a second format for prompts where that saves time: faster, "
        "but uses more memory.",
    )
    calibration_text: Text | None = Field(
        default=None, description="File of text to calibrate on, if the program provides none."
    )
    evaluation_text: Text | None = Field(
        default=None,
        description="File of text to measure on. Default: a part of the calibration text.",
    )

    @model_validator(mode="after")
    def _something_is_left(self) -> WeightOnly:
        for key in ("bits", "group_size", "scheme", "algorithm"):
            if not getattr(self, key):
                default = ", ".join(map(str, type(self).model_fields[key].default))
                raise wrong(f"nothing is given, expected one or more, such as {default}", key=key)
        if self.prompt_length < SHORTEST:
            raise wrong(
                f"given {self.prompt_length}, expected 2 or more: a token to read and one to "
                "predict",
                key="prompt_length",
            )
        return self

    @model_validator(mode="after")
    def _share_is_one(self) -> WeightOnly:
        if not 0.0 <= self.prompt <= 1.0:
            raise wrong(f"given {self.prompt:g}, expected a share from 0 to 1", key="prompt")
        return self
