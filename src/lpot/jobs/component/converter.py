"""The object behind `ModelConversion`: a model trained with fake quantization becomes INT8."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from lpot.backends import detect, get_backend
from lpot.config.load import override
from lpot.config.rules import model_spec
from lpot.core.backend import ModelSpec
from lpot.core.errors import ConfigError
from lpot.jobs.component.quantizer import Quantizer
from lpot.jobs.component.records import as_native


@runtime_checkable
class Converts(Protocol):
    """Can take fake quantization out of a model."""

    def without_fake_quant(self, source: Any, spec: ModelSpec) -> Any:
        """The float model with the trained weights."""
        ...


class Converter(Quantizer):
    """The trained weights are kept; the ranges are calibrated anew, on `calib_dataloader` or, where
    there is none, on the data of the evaluation."""

    source: Any = "QAT"
    destination: Any = "default"

    def adapted(self, model: Any, calib: Any, eval_loader: Any) -> tuple[Any, Any]:
        if str(self.source).lower() != "qat" or self.destination != "default":
            raise ConfigError(
                f"given {self.source!r} to {self.destination!r}, expected 'QAT' to 'default'",
                "source",
            )
        native = as_native(model)
        backend = get_backend(self._backend or self.config.model.framework or detect(native))
        if not isinstance(backend, Converts):
            raise ConfigError(
                f"backend {backend.name} does not support fake quantization: give a torch module "
                "prepared by torch.ao, or a TensorFlow graph",
                "model",
            )
        plain = backend.without_fake_quant(native, model_spec(self.config))
        self.config = override(self.config, {"model_conversion": None})
        return plain, calib if calib is not None else eval_loader
