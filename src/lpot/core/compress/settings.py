"""How a smaller model is trained after the original, and how much is removed from it: values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Distill:
    """Fine-tuning by distillation: Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural
    Network" (2015), with the outputs of intermediate layers as further targets (Romero et al.,
    "FitNets", 2015) and inputs mixed for teacher and student alike (Beyer et al., "Knowledge
    distillation: A good teacher is patient and consistent", 2022).
    """

    epochs: int = 10
    learning_rate: float = 1e-3
    temperature: float = 4.0
    logits: float = 1.0  # weight of the outputs' loss
    features: float = 1.0  # weight of the intermediate layers' loss
    labels: float = 0.0  # weight of the labels' cross entropy
    mixup: bool = True  # of pictures; tokens can't be mixed
    seed: int = 1978

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Structured:
    """Structured pruning: shares of the latency to remove, each tried, the boldest first."""

    ratios: tuple[float, ...] = (0.5, 0.35, 0.2)
    blocks: bool = True  # may whole blocks of layers be removed?
    samples: int = 128  # that sensitivity is measured on
    batch_size: int | None = None  # that latency is measured with; None: a training batch
    distill: Distill = Distill()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
