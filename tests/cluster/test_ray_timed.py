"""Times come from nodes of the target CPU, accuracy from the others."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

from cluster import cases
from cluster.conftest import Nodes
from lpot.jobs.execute.ray import elsewhere
from lpot.jobs.execute.ray_cluster import Demand, _fits
from search import scoring


def node(cpus: float, **labels: str) -> dict[str, object]:
    return {"Resources": {"CPU": cpus, "memory": 1e9, "big": 1.0}, "Labels": labels}


def test_workers_keep_away_from_the_nodes_that_time() -> None:
    demand = elsewhere(Demand(num_cpus=2), {"cpu": "amx"})
    assert demand.options()["label_selector"] == {"cpu": "!amx"}
    assert _fits(node(4, cpu="avx2"), demand) and _fits(node(4), demand)
    assert not _fits(node(4, cpu="amx"), demand) and not _fits(node(1), demand)


@pytest.mark.parametrize(
    ("demand", "fits"),
    [
        (Demand(), True),
        (Demand(memory=2 << 30), False),
        (Demand(resources={"big": 1}), True),
        (Demand(resources={"big": 2}), False),
        (Demand(labels={"cpu": "amx"}), True),
        (Demand(labels={"cpu": "vnni"}), False),
        (Demand(labels={"cpu": "in(amx,vnni)"}), True),
    ],
)
def test_what_a_node_has_room_for(demand: Demand, fits: bool) -> None:
    assert _fits(node(1, cpu="amx"), demand) is fits


@pytest.mark.slow
def test_trials_are_timed_on_the_target(nodes: Nodes, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'lpot[ray]'")
    nodes.add(2, labels={"cpu": "amx"})
    nodes.add(1)
    torn = scoring.net()
    executor = {
        "name": "ray",
        "workers": 2,
        "address": nodes.address,
        "ray": {"timed_labels": {"cpu": "amx"}},
    }
    result = cases.tune(
        torn.model,
        torn.batches[:-1],
        scoring.score,
        config={
            "tuning": {
                "accuracy_criterion": {"absolute": 0.1},
                "strategy": "mse",
                "executor": executor,
                "exit_policy": {"timeout": 600, "max_trials": 3},
            }
        },
        workspace=tmp_path,
    )
    assert [bool(trial.score and trial.score.latency) for trial in result.trials] == [True] * 3
