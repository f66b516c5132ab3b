"""lpot without any framework: light, and kind about what is missing."""

import subprocess
import sys
import tempfile
from pathlib import Path

import lpot

assert "numpy" not in sys.modules, "import lpot brought numpy with it"
program = [sys.executable, "-m", "lpot.cli"]
for words in (["--help"], ["schema"]):
    subprocess.run([*program, *words], check=True, stdout=subprocess.DEVNULL)
told = subprocess.run([*program, "doctor"], capture_output=True, text=True)
assert told.returncode == 2, "doctor finds no framework, and says so by its exit status"
assert "pip install" in told.stdout + told.stderr, told

from lpot.metric import get_metric  # noqa: E402

metric = get_metric("topk", k=2)
metric.update([[0.1, 0.7, 0.2], [0.6, 0.1, 0.3]], [2, 1])
assert metric.result() == 0.5

with tempfile.TemporaryDirectory() as name:
    model = Path(name, "model.onnx")
    model.write_bytes(b"\x08\x08")
    told = subprocess.run([*program, "inspect", str(model)], capture_output=True, text=True)
assert told.returncode not in (0, 1), told
assert "pip install" in told.stderr and "Traceback" not in told.stderr, told.stderr
print(lpot.__version__)
