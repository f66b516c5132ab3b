"""`lpot doctor`: what is here, what is missing, and how to get it."""

from __future__ import annotations

import importlib.util
import json
import platform
import sys
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from lpot.cli import cli
from lpot.core.cpu import KINDS, Cpu
from lpot.jobs import doctor
from lpot.jobs.doctor import MEANINGS, PACKAGES, diagnose


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of the packages that lpot can use, only these are installed."""
    real = importlib.util.find_spec
    ours = {package.module for package in PACKAGES}
    monkeypatch.delenv("LPOT_MXNET_PYTHON", raising=False)

    def set_to(*modules: str) -> None:
        def find(name: str, package: str | None = None) -> Any:
            if name in ours and name not in modules:
                return None
            return real("json") if name in ours else real(name, package)

        monkeypatch.setattr(importlib.util, "find_spec", find)

    return set_to


def rows_of(found: Any) -> dict[str, tuple[str, str]]:
    return {name: (state, text) for name, state, text in found.rows()}


def test_this_machine() -> None:
    pytest.importorskip("onnxruntime")
    found = diagnose()
    assert found.ok
    assert set(found.bits.values()) <= {7, 8} and "Conv" in found.bits
    names = [name for name, _, _ in found.rows()]
    assert {"lpot", "CPU", "kind", "features", "self-test", "onnxruntime"} <= set(names)
    told = json.loads(json.dumps(found.to_json()))
    assert told["cpu"]["cores"] >= 1 and told["cpu"]["kind"] == found.cpu.kind


def test_what_is_missing_is_named_by_its_own_name(only: Any) -> None:
    only()
    found = diagnose()
    assert not found.ok and len(found.missing) == len(PACKAGES)
    rows = rows_of(found)
    assert rows["onnxruntime"] == ("missing", "for ONNX models: pip install onnxruntime")
    assert rows["scikit-learn"][1].endswith("pip install scikit-learn")
    assert rows["serves"] == ("fail", "none") and "one is enough" in found.trouble[0]
    assert "lpot[" not in json.dumps(found.to_json())
    assert CliRunner().invoke(cli, ["doctor"]).exit_code == 2


@pytest.mark.parametrize(
    ("modules", "served"),
    [(["torch"], ["pytorch"]), (["tensorflow"], ["tensorflow"]), (["torch", "onnx"], ["pytorch"])],
)
def test_one_framework_is_enough(only: Any, modules: list[str], served: list[str]) -> None:
    only(*modules)
    done = CliRunner().invoke(cli, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["frameworks"] == served and told["trouble"] == []
    assert told["safe_weight_bits"] == {}  # the self-test is ONNX Runtime's


@pytest.mark.parametrize("version", [(3, 11, 9), (3, 13, 0)])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_no_advice_that_can_not_be_followed(
    only: Any, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], machine: str
) -> None:
    only("torch")
    monkeypatch.setattr(sys, "version_info", version)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    advice = {found.package.module: found.package.install for found in diagnose().packages}
    assert advice["tensorflow"].endswith("-cpu") == (machine == "x86_64")
    mxnet = advice["mxnet"]
    assert mxnet != "pip install mxnet"  # beside today's numpy it can't be imported
    assert ("pip install" in mxnet) == (machine == "x86_64")
    assert ("with Python 3.11" in mxnet) == (machine == "x86_64" and version >= (3, 12))


def test_mxnet_elsewhere_counts(only: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    only()
    monkeypatch.setenv("LPOT_MXNET_PYTHON", sys.executable)
    found = diagnose()
    assert found.ok and found.frameworks == ("mxnet",)
    assert rows_of(found)["mxnet"] == ("ok", f"for MXNet models: run by {sys.executable}")
    monkeypatch.setenv("LPOT_MXNET_PYTHON", "/no/such/python")
    assert not diagnose().ok


@pytest.mark.parametrize(
    ("features", "bits", "said", "kind"),
    [
        (("avx2",), 7, "8 bits overflow: 7 are used", "avx2"),
        (("avx2", "avx512_vnni"), 8, "8-bit weights are exact", "vnni"),
        ((), 8, "8-bit weights are exact", "x86_64"),
    ],
)
def test_each_kind_of_cpu(features: tuple[str, ...], bits: int, said: str, kind: str) -> None:
    cpu = Cpu("a CPU", "x86_64", features, 2, 2, 0, 0, ("memory can't be read",))
    found: Any = replace(diagnose(), cpu=cpu, bits={"Conv": bits})
    rows = rows_of(found)
    assert rows["self-test"][1] == f"Conv: {said}"
    assert rows["kind"][1].startswith(f"{kind}: ")
    assert ("7 bits" in rows["kind"][1]) is (kind == "avx2")
    assert rows["kind"][0] == ("ok" if kind in MEANINGS else "note")
    assert "memory" not in rows


def test_every_kind_has_a_meaning() -> None:
    assert set(MEANINGS) == set(KINDS)
    assert doctor.UNKNOWN
