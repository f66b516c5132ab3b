"""torch removes its quantized tensors: what is named where, and what works without them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import lpot
from backends.torch import torch_nets as nets
from lpot.backends.torch.weight_only import kernels
from lpot.core.weight_only.grid import Format
from lpot.core.weight_only.nearest import round_to_nearest

HERE = Path(__file__).parent
ROOM = Path(lpot.__file__).parent / "backends" / "torch"

# Deprecated, or about to be: https://github.com/pytorch/pytorch/issues/184982
DEPRECATED = re.compile(
    r"quantize_per_(tensor|channel)\b|_make_per_\w+_quantized|ops\.quantized\b|is_quantized\b"
    r"|\.dequantize\(|int_repr|q_scale|q_zero_point|q_per_channel|torch\.qu?int\d+"
    r"|backends\.quantized|quantized_(lstm|gru)|import.*torch\.ao|torch\.ao\.quantization"
)
# The model's own property of that name, and the export's words, which are nodes of a graph.
OTHERS = re.compile(r"model\.is_quantized|def is_quantized|self\._ops\.(de)?quantize")

PACKED = (
    "_convert_weight_to_int4pack_for_cpu",
    "_weight_int4pack_mm_for_cpu",
    "_weight_int8pack_mm",
)


def child(*words: str) -> subprocess.CompletedProcess[str]:
    tests = HERE.parents[1]
    path = os.pathsep.join([str(tests), str(tests.parent / "src")])
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        cwd=tests.parent,
        timeout=900,
        check=False,
    )


def test_deprecated_names_stand_in_the_kernels_room_alone() -> None:
    found = [
        f"{path.relative_to(ROOM)}:{number}: {line.strip()}"
        for path in ROOM.rglob("*.py")
        if "kernels" not in path.parts
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if DEPRECATED.search(OTHERS.sub("", line))
    ]
    assert not found


def test_conformance_holds_without_quantized_tensors() -> None:
    done = child(
        *("-m", "pytest", "-q", "-p", "backends.torch.hidden_ops", "-p", "no:cacheprovider"),
        str(HERE / "test_torch_conformance.py") + "::TestCnn",
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


SCRIPT = """
import sys
from backends.torch import hidden_ops
import torch, lpot
from backends.torch import torch_nets as nets

folder, step = sys.argv[1:]
module, x = nets.seeded(nets.Cnn()), nets.images()[0][0]
if step == "tune":
    lpot.tune(module, calib=nets.images(), workspace=folder, measure_speed=False)
model = lpot.load(folder + "/checkpoint", module=module)
with torch.no_grad():
    torch.save((x, model.native(x)), folder + "/found.pt")
print(sorted(set(map(str, model.precisions.values()))))
"""


@pytest.mark.parametrize("made_without", [True, False])
def test_models_go_from_torch_to_torch(tmp_path: Path, made_without: bool) -> None:
    """Saved with quantized tensors and opened without, and the other way round."""
    module = nets.seeded(nets.Cnn())
    if not made_without:
        lpot.tune(module, calib=nets.images(), workspace=tmp_path, measure_speed=False)
    done = child("-c", SCRIPT, str(tmp_path), "tune" if made_without else "load")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "int8" in done.stdout
    x, theirs = torch.load(tmp_path / "found.pt", weights_only=True)
    with torch.no_grad():
        ours = lpot.load(tmp_path / "checkpoint", module=module).native(x)
        exact = module.eval()(x)
    error = (ours - exact).norm() / exact.norm()
    assert (theirs - exact).norm() / exact.norm() < 2 * error + 0.01
    assert (ours - theirs).norm() / exact.norm() < 2 * error + 0.01


@pytest.mark.parametrize("bits, group", [(4, 32), (8, 0)])
def test_weights_of_few_bits_are_written_out_where_their_kernels_are_gone(
    bits: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*given: object) -> None:
        raise NotImplementedError("removed from this torch, for a test")

    for name in PACKED:
        monkeypatch.setattr(torch.ops.aten, name, gone)
    weight = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    rounded = round_to_nearest(weight, Format(bits, group))
    choose = kernels.Chooser()
    kernel = kernels.KERNELS[choose(rounded)]
    assert kernel is kernels.KERNELS[kernels.FLOAT]
    assert "removed from this torch" in str(choose.refused)
    x = torch.randn(3, 128)
    truth = x @ torch.from_numpy(rounded.values()).T
    assert torch.allclose(kernel.run(x, kernel.pack(rounded)), truth, atol=1e-4)


WARNED = """
import sys, warnings
warnings.filterwarnings("error", message=".*(quantiz|torch[.]ao).*")
import torch, lpot
from backends.torch import torch_nets as nets

module = nets.seeded(nets.Cnn())
lpot.tune(module, calib=nets.images(), workspace=sys.argv[1], measure_speed=False)
lpot.load(sys.argv[1] + "/checkpoint", module=module)
"""


@pytest.mark.parametrize("text", ["torch.ao.quantization is deprecated", "torch.quantize_per_"])
def test_such_a_warning_is_an_error_in_these_tests(text: str) -> None:
    with pytest.raises(DeprecationWarning, match=re.escape(text)):
        warnings.warn(f"{text} and will be removed", DeprecationWarning, stacklevel=1)


def test_no_warning_of_a_deprecation_reaches_the_user(tmp_path: Path) -> None:
    """As errors, which they are in a stricter user's tests."""
    done = child("-c", WARNED, str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "deprecated" not in done.stderr
