"""The object behind both `Quantization` classes: what the original's scripts set and call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lpot.core.backend import Backend
from lpot.core.errors import ConfigError
from lpot.core.progress import Listener
from lpot.core.results.result import Result
from lpot.jobs.component.records import as_loader, as_model, terminal
from lpot.jobs.settings import Conf, read_config
from lpot.jobs.tune.quantize import Request, quantize


class Quantizer:
    """Holds what a request needs until it is called. `result` is the last call's Result."""

    q_func: Any = None  # the training loop of quant_aware_training
    train_func: Any = None  # the same under its later name

    def __init__(
        self, conf_fname_or_obj: Conf = None, *, framework: Backend[Any] | None = None
    ) -> None:
        self.config = read_config(conf_fname_or_obj)
        self.result: Result | None = None
        self.listener: Listener = terminal()
        self.measure_speed = True
        self._backend = framework

    def adapted(self, model: Any, calib: Any, eval_loader: Any) -> tuple[Any, Any]:
        """Model and calibration data as they are tuned; a component may settle its own first."""
        return model, calib

    def run(
        self,
        model: Any,
        calib: Any = None,
        eval_func: Callable[[Any], Any] | None = None,
        eval_loader: Any = None,
        metric: Any = None,
        postprocess: Any = None,
    ) -> Result:
        if model is None:
            raise ConfigError("no model was given: set `quantizer.model`, or pass it to the call")
        model, calib = self.adapted(model, calib, eval_loader)
        request = Request(
            config=self.config,
            model=as_model(model),
            calib=as_loader(calib),
            eval_func=eval_func,
            eval_loader=as_loader(eval_loader),
            metric=metric,
            postprocess=postprocess,
            q_func=self.q_func or self.train_func,
            backend=self._backend,
            measure_speed=self.measure_speed,
            listener=self.listener,
        )
        try:
            self.result = quantize(request)
        finally:
            self.listener.close()
        return self.result

    def dataset(self, dataset_type: str, *args: Any, **kwargs: Any) -> Any:
        """A dataset by name, as the yaml names them."""
        from lpot.data import get_dataset

        return get_dataset(dataset_type, *args, **kwargs)

    def dataloader(
        self, dataset: Any, batch_size: int = 1, collate_fn: Any = None, **options: Any
    ) -> Any:
        """Batches of a dataset: anything with `__getitem__` and `__len__`, or `__iter__`."""
        from lpot.data import DataLoader

        return DataLoader(dataset, batch_size=batch_size, collate_fn=collate_fn, **options)
