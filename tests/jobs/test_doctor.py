"""`lpot doctor`: what is here, what is missing, and how to get it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from lpot.core.cpu import Cpu
from lpot.jobs import doctor
from lpot.jobs.doctor import PACKAGES, diagnose


def test_this_machine() -> None:
    pytest.importorskip("onnxruntime")
    found = diagnose()
    assert found.ok
    assert set(found.bits.values()) <= {7, 8} and "Conv" in found.bits
    names = [name for name, _, _ in found.rows()]
    assert {"lpot", "CPU", "features", "self-test", "onnxruntime"} <= set(names)
    assert json.loads(json.dumps(found.to_json()))["cpu"]["cores"] >= 1


def test_what_is_missing_is_named_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    found = diagnose()
    assert not found.ok and len(found.missing) == len(PACKAGES)
    rows = {name: (state, text) for name, state, text in found.rows()}
    assert rows["onnxruntime"] == ("missing", "for ONNX models: pip install onnxruntime")
    assert rows["scikit-learn"][1].endswith("pip install scikit-learn")
    assert "lpot[" not in json.dumps(found.to_json())


@pytest.mark.parametrize(
    ("features", "bits", "said"),
    [
        (("avx2",), 7, "8 bits overflow: 7 are used"),
        (("avx2", "avx512_vnni"), 8, "8-bit weights are exact"),
    ],
)
def test_both_kinds_of_cpu(features: tuple[str, ...], bits: int, said: str) -> None:
    cpu = Cpu("a CPU", "x86_64", features, 2, 2, 0, 0, ("memory can't be read",))
    found: Any = replace(diagnose(), cpu=cpu, bits={"Conv": bits})
    rows = {name: (state, text) for name, state, text in found.rows()}
    assert rows["self-test"][1] == f"Conv: {said}"
    assert ("no fast INT8" in rows["features"][1]) is (bits == 7)
    assert "memory" not in rows
