"""Components of the original whose work is still to come: importable, and clear when made."""

from __future__ import annotations

from typing import Any, ClassVar

from lpot.core.errors import NotAvailableYet


class _NotYet:
    """Raises when it is made, so that scripts which only import it go on working."""

    instead: ClassVar[str] = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotAvailableYet(type(self).__name__, self.instead)


class ModelConversion(_NotYet):
    instead = (
        "Give the model as it was before fake-quant nodes were added to Quantization, with "
        "`approach: quant_aware_training` and your training loop as q_func."
    )


__all__ = ["ModelConversion"]
