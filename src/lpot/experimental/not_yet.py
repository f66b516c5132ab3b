"""Components of the original whose work is still to come: importable, and clear when made."""

from __future__ import annotations

from typing import Any, ClassVar

from lpot.core.errors import NotAvailableYet


class _NotYet:
    """Raises when it is made, so that scripts which only import it go on working."""

    instead: ClassVar[str] = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotAvailableYet(type(self).__name__, self.instead)


class Pruning(_NotYet):
    instead = (
        "Prune with torch.nn.utils.prune or tensorflow_model_optimization first, then hand the "
        "pruned model to Quantization."
    )


class Distillation(_NotYet):
    instead = "Train the student with your own loop, then hand it to Quantization."


class ModelConversion(_NotYet):
    instead = (
        "Give the model as it was before fake-quant nodes were added to Quantization, with "
        "`approach: quant_aware_training` and your training loop as q_func."
    )


class Component(_NotYet):
    instead = "Call your own steps in order, or append Quantization to a Scheduler."


__all__ = ["Component", "Distillation", "ModelConversion", "Pruning"]
