"""`import lpot` is light and changes nothing in the process."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import logging, random, sys
handler = logging.NullHandler()
logging.getLogger().addHandler(handler)
state = random.getstate()
import lpot
frameworks = {"onnx", "onnxruntime", "torch", "tensorflow", "mxnet", "sklearn", "scipy", "optuna"}
assert not frameworks & set(sys.modules), frameworks & set(sys.modules)
assert handler in logging.getLogger().handlers
assert random.getstate() == state
import lpot.experimental, lpot.quantization, lpot.experimental.common, lpot.jobs.tune.api
assert not frameworks & set(sys.modules), frameworks & set(sys.modules)
for name in lpot.__all__:
    assert getattr(lpot, name) is not None, name
assert not frameworks & set(sys.modules), frameworks & set(sys.modules)
try:
    lpot.no_such_name
except AttributeError as error:
    assert "no_such_name" in str(error)
else:
    raise SystemExit("an unknown name was accepted")
"""


def test_import_has_no_side_effects() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_all_doors_lead_to_the_same_room() -> None:
    import lpot
    import lpot.experimental
    import lpot.quantization
    from lpot.jobs.component.quantizer import Quantizer

    assert lpot.Quantization is lpot.quantization.Quantization
    assert issubclass(lpot.experimental.Quantization, Quantizer)
    assert issubclass(lpot.Quantization, Quantizer)
