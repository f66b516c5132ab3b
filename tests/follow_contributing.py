"""What test_contributing.py adds to a copy of lpot by CONTRIBUTING's table, and how it is used.

Each addition is what its row says and no more: text put into files, and lines into lists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Addition:
    """`lines`: (file, pattern of the line before it, line). `files`: what is written or appended.

    `use` runs in a process that imports the copy."""

    lines: tuple[tuple[str, str, str], ...]
    use: str
    files: tuple[tuple[str, str], ...] = ()
    slow: bool = False  # imports a large framework, or times models

    def made(self, package: Path) -> None:
        for name, text in self.files:
            with (package / name).open("a", encoding="utf-8") as file:
                file.write(text)
        for name, before, line in self.lines:
            path = package / name
            text, count = re.subn(
                rf"^(.*{before}.*)$",
                rf"\g<1>\n{line}",
                path.read_text("utf-8"),
                count=1,
                flags=re.M,
            )
            assert count == 1, f"{name} has no line like {before}"
            path.write_text(text, "utf-8")


METRIC = """

class Worst(BaseMetric):
    higher_is_better = False

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.largest = 0.0

    def update(self, preds: Any, labels: Any = None) -> None:
        self.largest = max(self.largest, float(np.abs(np.subtract(preds, labels)).max()))

    def result(self) -> float:
        return self.largest
"""
TRANSFORM = """

class Negate(Transform):
    def on_image(self, image: Any) -> np.ndarray:
        return -to_array(image)
"""
DATASET = """

class Steps(Dataset):
    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def count(self) -> int:
        return self._count

    def read(self, number: int) -> Any:
        return np.full(2, number, np.float32), number
"""
STRATEGY = """
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, policy


@policy()
def once(space: TuningSpace, context: StrategyContext) -> Proposals:
    yield [space.default()]
"""
ONNX_PASS = """
from lpot.backends.onnx.graph import Graph


def cancel_negations(graph: Graph) -> Graph:
    first = {node.output[0]: node.input[0] for node in graph.nodes if node.op_type == "Neg"}
    nodes = [node for node in graph.nodes if node.op_type != "Neg"]
    for node in nodes:
        node.input[:] = [first.get(first.get(name, name), name) for name in node.input]
    return graph.replaced(nodes, graph.weights)
"""
LOW_BILINEAR = """
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from lpot.backends.torch.modules.base import LowModule
from lpot.backends.torch.weights import Weights


class LowBilinear(LowModule):
    def __init__(self, original: nn.Module, weights: Weights) -> None:
        super().__init__(original, {"weight": weights})

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return functional.bilinear(left, right, self.weight, self.parts["weight"].bias)

    def facts(self) -> dict[str, Any]:
        return {}
"""
RUNTIME = """
from lpot.core.batch import InputSpec


class Runner:
    framework = "again"
    size = 1

    def __init__(self, path):
        import onnxruntime

        self.versions = {"again": onnxruntime.__version__}
        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.inputs = tuple(
            InputSpec(each.name, "float32", (None, *each.shape[1:]))
            for each in self._session.get_inputs()
        )

    def __call__(self, feed):
        return self._session.run(None, dict(feed))


def open_onnx(path):
    runner = Runner(path)
    return runner, runner.inputs
"""

ONNX_NET = """
import numpy as np, lpot
from onnx_models import Net
net = Net()
last = net.input("x", ["n", 3, 8, 8])
last = net.op("Conv", [last, net.weight("w0", 8, 3, 3, 3)], name="first")
for kind in KINDS:
    last = net.op(kind, [last], name=kind.lower())
last = net.op("Conv", [last, net.weight("w1", 8, 8, 3, 3)], "y", name="last")
model = net.model("y")
x = np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32)
"""

ADDITIONS: dict[str, Addition] = {
    "a metric": Addition(
        files=(("metric/regression.py", METRIC),),
        lines=(
            ("metric/registry.py", "import MeanIoU", "from lpot.metric.regression import Worst"),
            ("metric/registry.py", '"topk": TopK', '        "Worst": Worst,'),
        ),
        use="""
from lpot.metric import get_metric
metric = get_metric("Worst")
metric.update([[1.0], [5.0]], [[1.5], [3.0]])
assert metric.result() == 2.0
""",
    ),
    "a dataset, a transform": Addition(
        files=(("data/datasets/dummy.py", DATASET), ("data/transforms/value.py", TRANSFORM)),
        lines=(
            (
                "data/datasets/__init__.py",
                "import GLUE",
                "from lpot.data.datasets.dummy import Steps",
            ),
            ("data/datasets/__init__.py", '"CIFAR10": CIFAR10', '        "Steps": Steps,'),
            (
                "data/transforms/__init__.py",
                "import ColorJitter",
                "from lpot.data.transforms.value import Negate",
            ),
            ("data/transforms/__init__.py", '"Cast": Cast', '        "Negate": Negate,'),
        ),
        use="""
import numpy as np
from lpot.data.datasets import get_dataset
from lpot.data.transforms import TRANSFORMS
steps = get_dataset("Steps", count=3)
assert len(steps) == 3 and steps[2][1] == 2
image, _ = TRANSFORMS.make("Negate", {})((np.ones((2, 2, 3), np.float32), 0))
assert (image == -1).all()
""",
    ),
    "a strategy": Addition(
        files=(("strategy/once.py", STRATEGY),),
        lines=(
            (
                "strategy/__init__.py",
                "import .*mse_v2",
                "from lpot.strategy.once import once",
            ),
            ("strategy/__init__.py", '"basic": basic', '    "once": once,'),
            ("config/schema_tuning.py", '"basic",', '        "once",'),
        ),
        use="""
import pathlib, tempfile, lpot
from lpot.config import load
from lpot.demo import demo_data, demo_model_path
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "conf.yaml").write_text(
    "model: {name: net, framework: onnx}\\ntuning: {strategy: {name: once}}\\n"
)
assert load(folder / "conf.yaml").tuning.strategy.name == "once"
images = demo_data().calib_images[:64]
result = lpot.tune(
    str(demo_model_path()), [(images,)], lambda model: 0.5, 0.01,
    strategy="once", workspace=folder, measure_speed=False, really=True,
)
assert result.evaluations == 2 and result.met, result
""",
    ),
    "a yaml key": Addition(
        lines=(
            (
                "config/schema_tuning.py",
                "class ExitPolicy",
                "    patience: Positive = Field(default=5, description='Misses in a row.')",
            ),
        ),
        use="""
import pathlib, tempfile
from lpot.config import document, load
path = pathlib.Path(tempfile.mkdtemp(), "conf.yaml")
path.write_text(
    "model: {name: net, framework: onnx}\\ntuning: {exit_policy: {patience: 3}}\\n"
)
assert load(path).tuning.exit_policy.patience == 3
assert "Misses in a row." in document.page()
""",
    ),
    "an op on ONNX": Addition(
        lines=(("backends/onnx/abilities.py", "^ARITHMETIC", 'ARITHMETIC = (*ARITHMETIC, "Elu")'),),
        use=ONNX_NET.replace("KINDS", '["Elu"]')
        + """
import tempfile
result = lpot.tune(model, [(x,)], workspace=tempfile.mkdtemp(), measure_speed=False)
assert {key.name: how for key, how in result.model.precisions.items()}["elu"] == "int8"
""",
    ),
    "a rewrite of graphs": Addition(
        files=(("backends/onnx/passes/cancel_negations.py", ONNX_PASS),),
        lines=(
            (
                "backends/onnx/prepare.py",
                "import merge_reshapes",
                "from lpot.backends.onnx.passes.cancel_negations import cancel_negations",
            ),
            ("backends/onnx/prepare.py", "^    merge_reshapes,", "    cancel_negations,"),
        ),
        use=ONNX_NET.replace("KINDS", '["Neg", "Neg"]')
        + """
from lpot.backends import get_backend
from lpot.core.backend import ModelSpec
backend = get_backend("onnx")
opened = backend.load(model, ModelSpec())
assert [node.op_type for node in opened.prepared.nodes] == ["Conv", "Conv"]
""",
    ),
    "an op on PyTorch": Addition(
        slow=True,
        files=(("backends/torch/modules/bilinear.py", LOW_BILINEAR),),
        lines=(
            ("backends/torch/kinds.py", "nn.Embedding: _LOOKUP", "    nn.Bilinear: _LOOKUP,"),
            (
                "backends/torch/build.py",
                "import HalfModule",
                "from lpot.backends.torch.modules.bilinear import LowBilinear",
            ),
            (
                "backends/torch/build.py",
                "^        module: Any = layer.module",
                "        if isinstance(module, nn.Bilinear):\n"
                '            return LowBilinear(module, parts["weight"])',
            ),
        ),
        use="""
import tempfile, torch, lpot
torch.manual_seed(0)
net = torch.nn.Bilinear(16, 16, 8).eval()
class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.both = net
    def forward(self, x):
        return self.both(x, x.flip(1))
x = torch.randn(4, 16)
result = lpot.tune(
    Both().eval(), [x], approach="dynamic", workspace=tempfile.mkdtemp(), measure_speed=False
)
assert {key.name: how for key, how in result.model.precisions.items()} == {"both": "int8"}
error = result.model.native(x) - net(x, x.flip(1))
assert 0 < error.norm() < 0.02 * net(x, x.flip(1)).norm()
""",
    ),
    "an op on TensorFlow": Addition(
        slow=True,
        lines=(
            (
                "backends/tensorflow/structure/affine.py",
                "one, zero = np.ones",
                '    if node.op == "BiasAddV1":\n        return Affine(one, value)',
            ),
        ),
        use="""
import tempfile, numpy as np, lpot, tensorflow as tf
random = np.random.default_rng(0)
with tf.Graph().as_default() as graph:
    x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 4], name="x")
    weight = random.standard_normal((3, 3, 4, 8)).astype(np.float32)
    y = tf.nn.conv2d(x, weight, 1, "SAME", name="conv")
    y = tf.raw_ops.BiasAddV1(value=y, bias=random.standard_normal(8).astype(np.float32))
    tf.nn.relu(y, name="y")
data = [random.standard_normal((4, 8, 8, 4)).astype(np.float32)]
result = lpot.tune(
    graph.as_graph_def(), data, workspace=tempfile.mkdtemp(), measure_speed=False
)
kinds = {node.op for node in result.model.net.nodes.values()}
assert "_FusedQuantizedConv2D" in kinds and not {"BiasAddV1", "Relu"} & kinds, kinds
""",
    ),
    "a runtime to compare with": Addition(
        slow=True,
        files=(("backends/again.py", RUNTIME),),
        lines=(
            (
                "jobs/benchmark/runtimes.py",
                "^OTHERS = ",
                'OTHERS["again"] = ("Again", "onnxruntime", "lpot.backends.again:open_onnx")',
            ),
        ),
        use="""
import lpot
from lpot.core.results.benchmark import Settings
from lpot.demo import demo_model_path
from lpot.jobs.benchmark.runtimes import runtimes
quick = Settings(warmup=1, rounds=8, iteration=16)
found = runtimes(lpot.load(demo_model_path()), batch_size=4, settings=quick)
assert "Again" in [model.label for model in found.result.models], found
assert not any("outputs" in note for note in found.result.notes), found.result.notes
""",
    ),
}
RUN_ALL = """
import json, pathlib, runpy, sys, traceback
failed = {}
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.py")):
    try:
        runpy.run_path(str(path))
    except Exception:
        failed[path.stem] = traceback.format_exc()
print(json.dumps(failed))
"""
