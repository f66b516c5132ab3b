"""BERT with QuantStub and DeQuantStub put in by hand, as the tutorial's fork of transformers did.

lpot needs none of this: it is here to show that a model prepared by hand works as well. The classes
take a checkpoint of the plain model, and `add_stubs` prepares a model that is loaded already.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn
from torch.ao.quantization import DeQuantStub, QuantStub


class QuantizableLinear(nn.Module):
    """A Linear whose input enters int8 and whose output leaves it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.quant = QuantStub()
        self.linear = linear
        self.dequant = DeQuantStub()

    @property
    def weight(self) -> torch.Tensor:
        return self.linear.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dequant(self.linear(self.quant(x)))


def add_stubs(model: nn.Module) -> nn.Module:
    """Stubs around every Linear of the model, in place. BERT has no pattern to fuse."""
    if any(isinstance(module, QuantStub) for module in model.modules()):
        return model
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and not isinstance(parent, QuantizableLinear):
                setattr(parent, name, QuantizableLinear(child))
    return model


class BertForSequenceClassification(transformers.BertForSequenceClassification):
    """`from_pretrained` reads a plain checkpoint and puts the stubs in."""

    @classmethod
    def from_pretrained(cls, *args: Any, **options: Any) -> Any:
        return add_stubs(super().from_pretrained(*args, **options))


class BertForQuestionAnswering(transformers.BertForQuestionAnswering):
    """`from_pretrained` reads a plain checkpoint and puts the stubs in."""

    @classmethod
    def from_pretrained(cls, *args: Any, **options: Any) -> Any:
        return add_stubs(super().from_pretrained(*args, **options))
