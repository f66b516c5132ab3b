"""A Ray cluster of several small nodes, on loopback addresses alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

STORE = 90 << 20  # bytes of each node's object store


class Nodes:
    """The cluster that a test plays with. CPUs are labels here: the machine need not have them."""

    def __init__(self, cpus: int) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": cpus, "include_dashboard": False, **self._common()}
        self._cluster = _patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
        self.address: str = self._cluster.address

    def add(self, cpus: int = 1, **more: Any) -> Any:
        return _patiently(lambda: self._cluster.add_node(num_cpus=cpus, **self._common(), **more))

    def kill(self, node: Any) -> None:
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()

    def _common(self) -> dict[str, Any]:
        return {"object_store_memory": STORE, "node_ip_address": "127.0.0.2"}


def _patiently(start: Callable[[], Any]) -> Any:
    """Ray gives a node 30 s to start, which a busy machine may not manage at once."""
    for _ in range(2):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    return start()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """One with a single CPU at first; the driver joins it as any other would."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'lpot[ray]'")
    made = Nodes(cpus=1)
    yield made
    made.close()


@pytest.fixture
def empty() -> Iterator[Nodes]:
    """A head without any CPU, as an autoscaler leaves it when nobody works."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'lpot[ray]'")
    made = Nodes(cpus=0)
    yield made
    made.close()
