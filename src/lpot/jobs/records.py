"""What old scripts hand to a component: records that become real when they are used."""

from __future__ import annotations

from typing import Any


class Model:
    """A model and what goes with it; the component reads `root`."""

    def __init__(self, root: Any, **kwargs: Any) -> None:
        self.root = root
        self.kwargs = kwargs


class DataLoader:
    """Arguments of a loader; it becomes real when a component uses it."""

    def __init__(self, dataset: Any, batch_size: int = 1, **options: Any) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.options = options


class Metric:
    """A metric class and its arguments."""

    def __init__(self, metric_cls: type, name: str = "user_metric", **kwargs: Any) -> None:
        self.metric_cls = metric_cls
        self.name = name
        self.kwargs = kwargs


class Postprocess:
    """A postprocess class and its arguments."""

    def __init__(
        self, postprocess_cls: type, name: str = "user_postprocess", **kwargs: Any
    ) -> None:
        self.postprocess_cls = postprocess_cls
        self.name = name
        self.kwargs = kwargs


def as_loader(given: Any) -> Any:
    """A record as a real loader; anything else as it is."""
    if not isinstance(given, DataLoader):
        return given
    from lpot.data import DataLoader as Real

    return Real(given.dataset, batch_size=given.batch_size, **given.options)


def as_model(given: Any) -> Any:
    """What a record holds; anything else as it is."""
    return given.root if isinstance(given, Model) else given
