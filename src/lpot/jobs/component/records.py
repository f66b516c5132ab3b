"""What old scripts hand to a component: records that become real when they are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lpot.core.errors import ConfigError, a_kind
from lpot.core.model import Model as Handle
from lpot.core.progress import Listener


class Model:
    """A model and what goes with it; the component reads `root`."""

    def __init__(self, root: Any, **kwargs: Any) -> None:
        self.root = root
        self.kwargs = kwargs


class DataLoader:
    """Arguments of a loader; it becomes real when a component, or a loop, uses it."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        collate_fn: Any = None,
        last_batch: str = "rollover",
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        shuffle: bool = False,
        distributed: bool = False,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.options = {
            "collate_fn": collate_fn,
            "last_batch": last_batch,
            "sampler": sampler,
            "batch_sampler": batch_sampler,
            "num_workers": num_workers,
            "pin_memory": pin_memory,
            "shuffle": shuffle,
            "distributed": distributed,
        }

    def __iter__(self) -> Iterator[Any]:
        return iter(as_loader(self))

    def __len__(self) -> int:
        return len(as_loader(self))


class Metric:
    """A metric class and its arguments."""

    def __init__(self, metric_cls: type, name: str = "user_metric", **kwargs: Any) -> None:
        _check_class(metric_cls, "metric_cls", "update, reset and result")
        self.metric_cls = metric_cls
        self.name = name
        self.kwargs = kwargs


class Postprocess:
    """A postprocess class and its arguments."""

    def __init__(
        self, postprocess_cls: type, name: str = "user_postprocess", **kwargs: Any
    ) -> None:
        _check_class(postprocess_cls, "postprocess_cls", "__call__")
        self.postprocess_cls = postprocess_cls
        self.name = name
        self.kwargs = kwargs


def _check_class(given: Any, name: str, methods: str) -> None:
    if not callable(given):
        raise ConfigError(f"given {a_kind(given)}, expected a class with {methods}", name)


def as_loader(given: Any) -> Any:
    """A record as a real loader; anything else as it is."""
    if not isinstance(given, DataLoader):
        return given
    from lpot.data import DataLoader as Real

    return Real(given.dataset, batch_size=given.batch_size, **given.options)


def as_model(given: Any) -> Any:
    """What a record holds; anything else as it is."""
    return given.root if isinstance(given, Model) else given


def as_native(given: Any) -> Any:
    """The framework's own object, of a record or a handle: what a training loop works on."""
    inner = as_model(given)
    if not isinstance(inner, Handle):
        return inner
    return inner.native if inner.trainable is None else inner.trainable


def terminal() -> Listener:
    """Progress as the command shows it; imported where it is used, for those who show none."""
    from lpot.report.terminal import TerminalListener

    return TerminalListener()
