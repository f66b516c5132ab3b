"""Image transforms: every name of the yaml's `transform`, one code for all frameworks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from lpot.core.errors import ConfigError
from lpot.data.registry import Registry
from lpot.data.transforms.base import Compose, Sample, Transform, apply
from lpot.data.transforms.color import ColorJitter
from lpot.data.transforms.geometry import (
    CenterCrop,
    CropToBoundingBox,
    Pad,
    PaddedCenterCrop,
    RandomCrop,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    Transpose,
    TransposeLastChannel,
)
from lpot.data.transforms.imagenet import BilinearImagenet, ResizeCropImagenet
from lpot.data.transforms.parse import ParseDecodeCoco, ParseDecodeImagenet, ParseDecodeVoc
from lpot.data.transforms.resize import (
    CropResize,
    RandomResizedCrop,
    Resize,
    ResizeWithAspectRatio,
    ResizeWithRatio,
)
from lpot.data.transforms.value import (
    AlignImageChannel,
    Cast,
    DecodeImage,
    EncodeJpeg,
    KerasRescale,
    Normalize,
    QuantizedInput,
    Rescale,
    ShiftRescale,
    ToArray,
    ToNDArray,
    ToPILImage,
    ToTensor,
)

BaseTransform = Transform
ComposeTransform = Compose


class _Transforms(Registry):
    """The registry of transforms; asked for 'postprocess', it hands out that one."""

    def __call__(self, framework: str = "", process: str = "") -> Registry:
        return _registry_of(process)


TRANSFORMS = _Transforms(
    "transform",
    {
        "AlignImageChannel": AlignImageChannel,
        "BilinearImagenet": BilinearImagenet,
        "Cast": Cast,
        "CenterCrop": CenterCrop,
        "ColorJitter": ColorJitter,
        "Compose": Compose,
        "CropResize": CropResize,
        "CropToBoundingBox": CropToBoundingBox,
        "DecodeImage": DecodeImage,
        "EncodeJpeg": EncodeJpeg,
        "KerasRescale": KerasRescale,
        "Normalize": Normalize,
        "Pad": Pad,
        "PaddedCenterCrop": PaddedCenterCrop,
        "ParseDecodeCoco": ParseDecodeCoco,
        "ParseDecodeImagenet": ParseDecodeImagenet,
        "ParseDecodeVoc": ParseDecodeVoc,
        "QuantizedInput": QuantizedInput,
        "RandomCrop": RandomCrop,
        "RandomHorizontalFlip": RandomHorizontalFlip,
        "RandomResizedCrop": RandomResizedCrop,
        "RandomVerticalFlip": RandomVerticalFlip,
        "Rescale": Rescale,
        "Resize": Resize,
        "ResizeCropImagenet": ResizeCropImagenet,
        "ResizeWithAspectRatio": ResizeWithAspectRatio,
        "ResizeWithRatio": ResizeWithRatio,
        "ShiftRescale": ShiftRescale,
        "ToArray": ToArray,
        "ToNDArray": ToNDArray,
        "ToPILImage": ToPILImage,
        "ToTensor": ToTensor,
        "Transpose": Transpose,
        "TransposeLastChannel": TransposeLastChannel,
    },
)

__all__ = ["TRANSFORMS", "BaseTransform", "Compose", "Transform", "apply", "compose"]


def compose(section: Mapping[str, Any] | None, path: str = "transform") -> Compose:
    """The chain an ordered yaml mapping names: `{'Resize': {'size': 256}, 'ToTensor': {}}`.

    A transform's value is its options, nothing, or for short its first argument alone.

    >>> compose({"Resize": {"size": 4}, "Rescale": None, "CenterCrop": 2}).transform_list[2]
    CenterCrop(size=(2, 2))
    """
    if not isinstance(section, Mapping | None):
        raise ConfigError(
            f"expected transform names with their options, not {section!r}", path=path
        )
    made: list[Callable[[Sample], Sample]] = []
    for name, given in (section or {}).items():
        place = f"{path}.{name}"
        made.append(TRANSFORMS.make(name, options_of(TRANSFORMS.find(name, place), given), place))
    return Compose(made)


def options_of(entry: Callable[..., Any], given: Any) -> Mapping[str, Any]:
    """A yaml value as options by name: a mapping, nothing, or the first argument alone."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return given
    first = next(iter(inspect.signature(entry).parameters), "value")
    return {first: given}


def transform_registry(
    transform_type: str, process: str = "preprocess", framework: str = ""
) -> Callable[[type], type]:
    """Class decorator: make a transform of your own known by name to yaml, for this process."""

    def register(entry: type) -> type:
        _registry_of(process).add(transform_type, entry)
        return entry

    return register


def _registry_of(process: str) -> Registry:
    if process != "postprocess":
        return TRANSFORMS
    # Postprocessing stands on the transforms, so it can't be imported before them.
    from lpot.data.postprocess import POSTPROCESSES

    return POSTPROCESSES
