"""`import lpot` is light and changes nothing in the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


CLOCK = "import time; t = time.process_time(); import lpot; print(time.process_time() - t)"


def test_import_takes_a_twentieth_of_a_second_of_cpu() -> None:
    """CPU time, and the best of some: other work on the machine hardly counts."""
    seconds = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", CLOCK], capture_output=True, text=True)
        seconds.append(float(done.stdout))
        if seconds[-1] <= 0.05:
            return
    raise AssertionError(f"seconds of CPU for `import lpot`: {seconds}")


def test_the_package_is_small() -> None:
    """15 MB as installed, of which compiled Python takes about half."""
    import lpot

    folder = Path(lpot.__file__).parent
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) < 7_500_000
