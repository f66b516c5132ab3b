"""Door: `lpot.model.nets_factory`, the nets of TF-Slim."""

from __future__ import annotations

from typing import Any

from lpot.core.errors import NotAvailableYet


class TFSlimNetsFactory:
    """TF-Slim ended with TensorFlow 1."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotAvailableYet(
            "TFSlimNetsFactory",
            "TF-Slim needs TensorFlow 1: freeze the net there (export_inference_graph, "
            "freeze_graph) and give the .pb.",
        )


__all__ = ["TFSlimNetsFactory"]
