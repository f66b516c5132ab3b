"""The section of runtimes: who runs a net the fastest on this CPU, and how near to FP32."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import ours
import peers
from board import THREADS, Board
from models import CACHE, Net, export
from runtime_nets import RUNTIME_NETS

from lpot.backends import get_backend
from lpot.core.numerics.rounding import sqnr
from lpot.core.results.benchmark import Settings
from lpot.core.space import restrict
from lpot.jobs.benchmark.api import benchmark
from lpot.jobs.benchmark.contestant import Contestant
from lpot.jobs.benchmark.team import Team
from lpot.jobs.runtime.choose import fastest
from lpot.jobs.runtime.starts import in_order, measured
from lpot.jobs.settings import read_config
from lpot.jobs.tune.request import Request

logger = logging.getLogger(__name__)

SECONDS = 2.0  # of each contestant
OPENVINO = "lpot.backends.openvino.session:open_onnx"
ORT, OV = "ONNX Runtime", "OpenVINO"
PEER = CACHE.parent / "nncf"  # an environment of its own: `make nncf-env`
MOST_SAMPLES = 64  # rows that ranges are taken from, in nets of large batches


def runtimes(names: Sequence[str], board: Board) -> None:
    """FP32 in ONNX Runtime = 1; every file in a process of its own, in turns."""
    board.title("Runtimes: milliseconds, and the ratio to the fastest")
    if not (PEER / "bin" / "python").exists():
        board.say("NNCF is left out: make nncf-env")
    for name in names:
        net = RUNTIME_NETS[name]
        export(net)
        with TemporaryDirectory(prefix="lpot-runtimes-") as folder:
            _race(net, _contestants(net, Path(folder)), board)


def _race(net: Net, contestants: Sequence[Contestant], board: Board) -> None:
    near: dict[str, float] = {}
    result = benchmark(
        contestants,
        feeds=next(net.feeds(1, seed=7)),  # not one of those that ranges were taken from
        settings=Settings(threads=THREADS, seconds=SECONDS),
        look=lambda teams: near.update(_distances(teams)) or (),
    )
    best = min(model.timing.median for model in result.models if model.timing is not None)
    found: dict[str, Any] = {}
    for model in result.models:
        if model.timing is None:
            found[model.label] = {"error": model.error}
            board.row(net.title, model.label, "", str(model.error)[:50])
            continue
        took, decibels = model.timing.median, near.get(model.label, float("nan"))
        found[model.label] = {"ms": took * 1e3, "ratio": took / best, "sqnr": decibels}
        told = "" if np.isinf(decibels) else f"{decibels:.1f} dB"
        board.row(net.title, model.label, f"{took * 1e3:.2f} ms", f"{took / best:.2f}", told)
    for note in result.notes:
        board.say(f"{net.title}: {note}")
    board.keep("runtimes", net.name, found)


def _distances(teams: Sequence[Team]) -> dict[str, float]:
    """Of the worst output from that of the first, in dB."""
    truth = _outputs(teams[0])
    return {
        team.contestant.label: min(
            sqnr(exact, near) for exact, near in zip(truth, _outputs(team), strict=True)
        )
        for team in teams
    }


def _outputs(team: Team) -> list[np.ndarray]:
    with np.load(team.outputs) as stored:
        return [stored[name] for name in stored.files]


def _contestants(net: Net, folder: Path) -> list[Contestant]:
    found = [_in_ort(f"FP32 @ {ORT}", net.path)]
    found += _in_openvino("FP32", net.path)
    found.append(_in_ort(f"{ORT}'s quantizer @ {ORT}", peers.quantized(net)))
    if (peer := _nncf(net)) is not None:
        found += _in_openvino("NNCF", peer)
    static = ours.quantized(net, samples=_samples(net))
    found.append(_in_ort(f"ours @ {ORT}", static))
    if net.is_text:
        found.append(_in_ort(f"ours, dynamic @ {ORT}", ours.quantized(net, "dynamic")))
    built = ours.quantized(net, samples=_samples(net), runtime="openvino")
    found += _in_openvino("ours", built)
    found.append(_auto(net, folder))
    return found


def _in_ort(label: str, path: Path) -> Contestant:
    return Contestant("peers:session", "callable", label, arguments={"path": str(path)})


def _in_openvino(word: str, path: Path, floats: Sequence[str] = ()) -> list[Contestant]:
    """With what is not INT8 in each precision that pays on this CPU."""
    known = get_backend("openvino").floats
    return [
        Contestant(
            OPENVINO,
            "callable",
            f"{word} @ {OV}, {each}",
            arguments={"path": str(path), "floats": each},
        )
        for each in floats or ("f32", *known)
    ]


def _auto(net: Net, folder: Path) -> Contestant:
    """What `runtime="auto"` begins with."""
    request = fastest(
        Request(
            read_config({"model": {"runtime": "auto"}}),
            str(net.path),
            calib=list(net.feeds(_samples(net))),
            workspace=folder / "auto",
        )
    )
    backend = request.backend or get_backend("onnx")
    model = backend.load(net.path)
    recipe = restrict(backend.inspect(model), ()).default()
    observed = backend.observe(model, net.feeds(_samples(net)), (0,))[0]
    if backend.floats:
        recipe = in_order(measured(backend, model, recipe, observed, observed.probe[0]))[0].recipe
    path = backend.save(backend.build(model, recipe, observed), folder / "auto.onnx")
    logger.info(
        "%s: auto has %s, %d ops in INT8, floats in %s",
        net.name,
        backend.name,
        len(recipe.low_ops),
        recipe.repairs.floats or "f32",
    )
    one = (
        _in_openvino("", path, [recipe.repairs.floats or "f32"])[0]
        if backend.name == "openvino"
        else _in_ort("", path)
    )
    return replace(one, label=f"auto: {OV if backend.name == 'openvino' else ORT}")


def _samples(net: Net) -> int:
    rows = next(iter(net.inputs.values()))[0][0]
    return max(2, min(ours.SAMPLES, MOST_SAMPLES // rows))


def _nncf(net: Net) -> Path | None:
    """NNCF's model, made once."""
    path = CACHE / f"{net.name}.nncf.xml"
    program = PEER / "bin" / "python"
    if path.exists() or not program.exists():
        return path if path.exists() else None
    logger.info("NNCF quantizes %s", net.name)
    samples = CACHE / f"{net.name}.samples.npz"
    np.savez(samples, **_stacked(net))
    script = str(Path(__file__).with_name("nncf_peer.py"))
    done = subprocess.run(
        [str(program), script, str(net.path), str(samples), str(path)],
        capture_output=True,
        text=True,
    )
    samples.unlink()
    if done.returncode:
        logger.warning("NNCF failed on %s: %s", net.name, done.stderr.strip().splitlines()[-1])
        return None
    return path


def _stacked(net: Net) -> Mapping[str, np.ndarray]:
    feeds = list(net.feeds(_samples(net)))
    return {name: np.stack([feed[name] for feed in feeds]) for name in feeds[0]}
