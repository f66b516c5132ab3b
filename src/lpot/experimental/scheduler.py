"""Door: `lpot.experimental.scheduler`, which runs components one after the other."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from lpot.core.compress.resume import held
from lpot.core.errors import ConfigError
from lpot.jobs.component.benchmarker import Benchmarker
from lpot.jobs.component.chain import Step, chain_report
from lpot.jobs.component.component import Combined
from lpot.jobs.component.component import combine as combined


class Scheduler:
    """Each component gets the model that the one before it gave.

    >>> scheduler = Scheduler()
    >>> scheduler.model = "model.onnx"
    >>> scheduler()
    Traceback (most recent call last):
    ...
    lpot.core.errors.ConfigError: the scheduler has no component: append one before calling it
    """

    def __init__(self) -> None:
        self.model: Any = None
        self.components: list[Any] = []
        self.steps: list[Step] = []  # of the last call

    def append(self, *components: Any) -> None:
        for component in components:
            if isinstance(component, type):
                name = component.__name__
                raise ConfigError(
                    f"{name} is a class, not a component: make an object of it, {name}(conf)"
                )
            if not callable(component) or isinstance(component, FunctionType):
                raise ConfigError(
                    f"{component!r} is not a component: append objects that have a `model` and "
                    "can be called, such as Quantization(conf); a function of the model goes into "
                    "a Component as its train_func"
                )
            self.components.append(component)

    def combine(self, *components: Any) -> Combined:
        """Pruning and quantization-aware training in one; append what this gives."""
        return combined(components)

    def report(self) -> str:
        """What each step of the last call gave, in one table."""
        return chain_report(self.steps)

    def __call__(self) -> Any:
        if not self.components:
            raise ConfigError("the scheduler has no component: append one before calling it")
        with held():
            return self._run(self.model)

    def _run(self, model: Any) -> Any:
        self.steps = []
        for component in self.components:
            if model is not None:  # the first may have a model of its own
                component.model = model
            found = component()
            # A benchmark gives figures, and a step of the user's may give nothing: the model stays.
            if found is not None and not isinstance(component, Benchmarker):
                model = found
            self.steps.append(Step.of(component))
        return model


__all__ = ["Scheduler"]
