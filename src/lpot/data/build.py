"""From the yaml's `dataloader` to a loader: dataset, filter and transforms put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lpot.core.errors import ConfigError, did_you_mean
from lpot.data.datasets import DATASETS
from lpot.data.draw import DEFAULT_SEED
from lpot.data.filters import FILTERS
from lpot.data.loader import DataLoader
from lpot.data.transforms import compose, options_of

LOADER_OPTIONS = ("batch_size", "last_batch", "shuffle", "num_workers", "distributed")
KEYS = (*LOADER_OPTIONS, "dataset", "filter", "transform")


def build_loader(
    section: Mapping[str, Any], path: str = "dataloader", seed: int = DEFAULT_SEED
) -> DataLoader:
    """The loader a `dataloader` section describes.

    >>> loader = build_loader({"batch_size": 2, "dataset": {"dummy": {"shape": [4, 3]}}})
    >>> [batch.shape for batch in loader]
    [(2, 3), (2, 3)]
    """
    if not isinstance(section, Mapping):
        raise ConfigError(f"expected {', '.join(KEYS)}, not {section!r}", path=path)
    for key in section:
        if key not in KEYS:
            near = did_you_mean(str(key), KEYS) or ";"
            raise ConfigError(f"unknown key {key!r}{near} Known: {', '.join(KEYS)}", path=path)
    dataset = build_dataset(
        section.get("dataset"), section.get("transform"), section.get("filter"), path
    )
    options = {k: section[k] for k in LOADER_OPTIONS if section.get(k) is not None}
    return DataLoader(dataset, seed=seed, **options)


def build_dataset(
    section: Mapping[str, Any] | None,
    transform: Mapping[str, Any] | None = None,
    filter: Mapping[str, Any] | None = None,
    path: str = "dataloader",
) -> Any:
    """The one dataset a `dataset` section names, with its transforms and filter."""
    name, given = _only(section, "dataset", DATASETS, f"{path}.dataset")
    place = f"{path}.dataset.{name}"
    options = dict(options_of(DATASETS.find(name, place), given))
    if transform:
        options["transform"] = compose(transform, f"{path}.transform")
    if filter:
        kind, chosen = _only(filter, "filter", FILTERS, f"{path}.filter")
        where = f"{path}.filter.{kind}"
        options["filter"] = FILTERS.make(kind, options_of(FILTERS.find(kind, where), chosen), where)
    return DATASETS.make(name, options, place)


def _only(section: Any, kind: str, known: Mapping[str, Any], path: str) -> tuple[str, Any]:
    if isinstance(section, str):
        return section, None
    if not isinstance(section, Mapping) or len(section) != 1:
        given = list(section) if isinstance(section, Mapping) else section
        raise ConfigError(
            f"expected exactly one {kind} with its options, not {given!r}; "
            f"known: {', '.join(sorted(known, key=str.lower))}",
            path=path,
        )
    return next(iter(section.items()))
