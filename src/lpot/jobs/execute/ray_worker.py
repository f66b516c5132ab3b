"""What runs on the nodes of a Ray cluster."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lpot.core.recipe import Recipe
from lpot.core.trial import Trial
from lpot.jobs.execute.kit import unpack
from lpot.jobs.execute.parcel import Parcel
from lpot.jobs.execute.processes import resident

logger = logging.getLogger(__name__)

LOOK = 0.2  # seconds between two looks at a worker's memory


@dataclass(frozen=True)
class Place:
    """Where a worker has come to lie."""

    node: str
    pid: int
    host: str
    has_files: bool  # the model lies there already, or comes with the kit


@dataclass(frozen=True)
class Sent:
    """A kit whose large parts lie in the object store, from which each node fetches them once."""

    head: bytes
    sizes: list[int]
    chunks: list[Any]  # references


class BenchActor:
    """One worker. It answers as soon as it has a place; the kit is opened after that."""

    def where(self, parcel: Parcel | None) -> Place:
        import ray

        node = str(ray.get_runtime_context().get_node_id())
        known = parcel is None or parcel.is_here()
        return Place(node, os.getpid(), socket.gethostname(), known)

    def open(self, kit: Sent, parcel: Parcel | None, chunks: Sequence[Any]) -> None:
        """`chunks` are references: one at a time is fetched, by one worker of each node."""
        import ray

        self.kit = unpack(kit.head, kit.sizes, (ray.get(chunk) for chunk in kit.chunks))
        if parcel is not None:
            place = parcel.unpack((ray.get(chunk) for chunk in chunks), logger.info)
            self.kit = self.kit.with_model(place)
        self.bench: Any = self.kit.open()

    def attempt(self, number: int, recipe: Recipe) -> Trial:
        return self.kit.attempt(self.bench, number, recipe)


def exceeds(pid: int, allowed: int) -> int:
    """Answered when a process of this node holds more bytes than it may; 0 when it is gone.

    A process of its own asks: the worker itself may be in a kernel that answers nobody.
    """
    while used := resident(pid):
        if used > allowed:
            return used
        time.sleep(LOOK)
    return 0
