"""A Ray cluster as its driver sees it: joined, asked what it has, and noticed when it is gone."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lpot.core.errors import ConfigError, LpotError
from lpot.jobs.benchmark.team import threading

if TYPE_CHECKING:
    from lpot.config.schema_tuning import RayOptions

PATIENCE = 5.0  # seconds in which a head that is there takes a call
TRIES = 3
MOST_MEMORY = 1 << 49  # bytes; Ray counts in ten-thousandths, and above this they overflow
SHOWN = 8  # nodes named in a message
# How a client of HTTP/2 begins (RFC 9113): its preface, and a frame of settings that has none.
_SETTINGS = 4
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0))


@dataclass(frozen=True)
class Demand:
    """What one worker asks of the node that it runs on."""

    num_cpus: float = 1.0
    memory: int = 0  # bytes; 0 for no limit
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    wait: float = 30.0

    @classmethod
    def of(cls, section: RayOptions, memory: int) -> Demand:
        return cls(
            num_cpus=section.num_cpus,
            memory=memory,
            resources=dict(section.resources),
            labels=dict(section.labels),
            runtime_env=thawed(section.runtime_env),
            wait=section.wait,
        )

    def options(self) -> dict[str, Any]:
        """As Ray wants to hear it. Losses are counted here, so Ray itself repeats nothing."""
        more: dict[str, Any] = {"label_selector": dict(self.labels)} if self.labels else {}
        if self.memory:
            more["memory"] = min(self.memory, MOST_MEMORY)
        return {
            "num_cpus": self.num_cpus,
            "resources": dict(self.resources),
            "runtime_env": self._environment(),
            "max_restarts": 0,
            "max_task_retries": 0,
            **more,
        }

    def _environment(self) -> dict[str, Any]:
        """Without one of the user's, modules are found where the driver finds them."""
        given = dict(self.runtime_env)
        variables = threading(max(1, math.floor(self.num_cpus)), 1)
        if not given:
            variables["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        return {**given, "env_vars": {**variables, **given.get("env_vars", {})}}

    def __str__(self) -> str:
        words = [f"{self.num_cpus:g} CPU"]
        if self.memory:
            words.append(f"{self.memory >> 20} MiB of memory")
        words += [f"{count:g} {name}" for name, count in self.resources.items()]
        words += [f"label {name}={value}" for name, value in self.labels.items()]
        return ", ".join(words)


class Cluster:
    """The connection to Ray. We end what we started, and nothing else."""

    def __init__(self, address: str | None) -> None:
        self.ray = _import_ray()
        self._given = address or os.environ.get("RAY_ADDRESS") or "local"
        self._owns = False
        self._head = ""  # host and port that tell whether the cluster is there

    def join(self) -> None:
        """The cluster that is named, or one of our own: never one that somebody left behind."""
        if self.ray.is_initialized():
            self._head = self.ray.get_runtime_context().gcs_address
            return
        self.look_for_head()
        more = {"include_dashboard": False} if self._given == "local" else {}
        try:
            self.ray.init(address=self._given, log_to_driver=False, **more)
        except (ConnectionError, ValueError, RuntimeError) as error:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise LpotError(f"executor: ray: no cluster at {self._given!r}: {said}") from error
        self._owns = True
        is_client = self._given.startswith("ray://")
        self._head = self._given if is_client else self.ray.get_runtime_context().gcs_address

    def look_for_head(self) -> None:
        """Ray itself would look for minutes."""
        if ":" not in self._given or self.ray.is_initialized():
            return
        if not _answers(self._given):
            raise LpotError(
                f"executor: ray: nothing answers at {self._given!r}: is the cluster up, and can "
                "this machine reach that host and port? `ray status` on the head shows it"
            )
        if not _speaks_http2(self._given):
            raise LpotError(
                f"executor: ray: what answers at {self._given!r} is not the head of a Ray cluster: "
                "something else uses that port; `ray start --head` prints its address"
            )
        host, _, port = self._given.rpartition(":")
        real = f"{self.ray.util.get_node_ip_address()}:{port}"
        # Ray takes these words for the machine's own address in the network.
        if host in ("localhost", "127.0.0.1", "[::1]") and not _answers(real):
            raise LpotError(
                f"executor: ray: Ray looks for {self._given!r} at {real}, where nothing answers: "
                "start the head without --node-ip-address, or with one such as 127.0.0.2"
            )

    def leave(self) -> None:
        if self._owns:
            self.ray.shutdown()

    def is_there(self) -> bool:
        """Does the head still take calls? Ray itself may ask for minutes."""
        for _ in range(TRIES):
            if _answers(self._head):
                return True
            time.sleep(1.0)
        return False

    def has_lost(self, node: str) -> bool:
        """Is this node gone, with all that ran there?"""
        return all(found["NodeID"] != node for found in self._nodes())

    def could_place(self, demand: Demand) -> bool:
        """Would a node that is there have room, if nobody else used it?"""
        return any(_fits(node, demand) for node in self._nodes())

    def cpus_of(self, labels: Mapping[str, str]) -> float:
        """The CPUs of a node with these labels; 1 as long as there is none."""
        for node in self._nodes():
            if labels.items() <= (node.get("Labels") or {}).items():
                return float(node["Resources"].get("CPU", 1.0))
        return 1.0

    def inventory(self) -> str:
        """What there is, for someone whose request was not met."""
        nodes = self._nodes()
        shown = "; ".join(_node_text(node) for node in nodes[:SHOWN])
        more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
        free = self.ray.available_resources().get("CPU", 0.0)
        return f"{len(nodes)} node(s): {shown}{more}; {free:g} CPU free now"

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self.ray.nodes() if node["Alive"]]


def _node_text(node: Mapping[str, Any]) -> str:
    found = node["Resources"]
    words = [f"{found.get('CPU', 0.0):g} CPU", f"{int(found.get('memory', 0)) >> 20} MiB"]
    plain = ("CPU", "memory", "object_store_memory")
    words += [
        f"{n:g} {k}" for k, n in found.items() if k not in plain and not k.startswith("node:")
    ]
    labels = node.get("Labels") or {}
    words += [f"label {k}={v}" for k, v in labels.items() if not k.startswith("ray.io/node-id")]
    return " + ".join(words)


def _fits(node: Mapping[str, Any], demand: Demand) -> bool:
    has, labels = node["Resources"], node.get("Labels") or {}
    wanted = {"CPU": demand.num_cpus, "memory": float(demand.memory), **demand.resources}
    enough = all(has.get(name, 0.0) >= count for name, count in wanted.items())
    return enough and all(_agrees(labels.get(key), word) for key, word in demand.labels.items())


def _agrees(label: str | None, wanted: str) -> bool:
    """Ray knows `value`, `!value` and lists; lists are left to it."""
    if "in(" in wanted:
        return True
    return label != wanted[1:] if wanted.startswith("!") else label == wanted


def _answers(address: str) -> bool:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    with contextlib.suppress(OSError, ValueError):
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
        return True
    return False


def _speaks_http2(address: str) -> bool:
    """Does a server answer as gRPC's do? They greet with a frame of settings once greeted.

    Ray itself asks whatever holds the port for minutes.
    """
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return True  # it would greet over TLS, with keys that are Ray's affair
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PATIENCE) as line:
            line.sendall(_GREETING)
            return _frame_kind(line) == _SETTINGS
    except (OSError, ValueError):
        return False


def _frame_kind(line: socket.socket) -> int:
    """The type of the frame that comes: the fourth byte of its head; -1 if none does."""
    head, end = b"", time.monotonic() + PATIENCE
    while len(head) < 4 and time.monotonic() < end:
        piece = line.recv(4 - len(head))
        if not piece:
            return -1
        head += piece
    return head[3] if len(head) == 4 else -1


def thawed(value: Any) -> Any:
    """Plain dicts and lists, as Ray checks for."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    return [thawed(item) for item in value] if isinstance(value, tuple) else value


def _import_ray() -> Any:
    # Asked twenty times, a port that is taken by something else keeps Ray busy for 14 minutes.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
    try:
        import ray
    except ImportError:
        raise ConfigError(
            "needs the package 'ray', which can't be imported: pip install ray, or use process",
            path="tuning.executor.name",
        ) from None
    return ray
