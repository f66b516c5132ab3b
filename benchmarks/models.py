"""The FP32 nets of the benchmark: random weights, exported to ONNX once and kept in build/bench."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CACHE = Path(__file__).resolve().parent.parent / "build" / "bench"
OPSET = 18
SEED = 0
VOCABULARY = 30_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Net:
    """One net: how to make it and what it eats."""

    name: str
    title: str
    make: Callable[[], Any]
    inputs: dict[str, tuple[tuple[int, ...], str]]
    is_text: bool = False  # quantized dynamically by the peer, whose static way loses on such nets

    @property
    def path(self) -> Path:
        return CACHE / f"{self.name}.onnx"

    def feeds(self, count: int, seed: int = SEED) -> Iterator[dict[str, np.ndarray]]:
        """Made-up samples, one at a time: they must not count as a calibrator's memory."""
        random = np.random.default_rng(seed)
        for _ in range(count):
            yield {
                name: _values(random, name, shape, dtype)
                for name, (shape, dtype) in self.inputs.items()
            }


def _values(
    random: np.random.Generator, name: str, shape: tuple[int, ...], dtype: str
) -> np.ndarray:
    if "mask" in name:
        return np.ones(shape, dtype)
    if dtype == "int64":
        return random.integers(0, VOCABULARY, shape)
    return random.standard_normal(shape).astype(dtype)


def _resnet50() -> Any:
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig(num_labels=1000))


def _mobilenet_v2() -> Any:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    return MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=1000))


def _bert_base() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(attn_implementation="eager"))


_IMAGE = {"pixel_values": ((1, 3, 224, 224), "float32")}
_TEXT = {"input_ids": ((1, 128), "int64"), "attention_mask": ((1, 128), "int64")}

NETS = {
    "resnet50": Net("resnet50", "ResNet-50 b1", _resnet50, _IMAGE),
    "mobilenet_v2": Net("mobilenet_v2", "MobileNetV2 b1", _mobilenet_v2, _IMAGE),
    "bert_base": Net("bert_base", "BERT-base seq 128 b1", _bert_base, _TEXT, is_text=True),
}


def export(net: Net) -> Path:
    """The net as an ONNX file; made on the first call only."""
    if net.path.exists():
        return net.path
    import torch

    logger.info("exporting %s", net.name)
    CACHE.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    torch.set_num_threads(2)
    module = net.make()
    _settle(module, net)
    (feed,) = net.feeds(1)
    partial = net.path.with_suffix(".part.onnx")
    torch.onnx.export(
        module.eval(),
        kwargs={name: torch.from_numpy(value) for name, value in feed.items()},
        f=str(partial),
        input_names=list(feed),
        opset_version=OPSET,
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    partial.rename(net.path)
    return net.path


def _settle(module: Any, net: Net) -> None:
    """Let batch norms see data, so that activations of a random net neither vanish nor explode."""
    import torch

    module.train()
    with torch.no_grad():
        for feed in net.feeds(8, seed=SEED + 1):
            module(**{name: torch.from_numpy(value) for name, value in feed.items()})
