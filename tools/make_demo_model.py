"""Make the demo's assets: train a digit classifier, write it as ONNX, store the digits beside it.

    python tools/make_demo_model.py     (half a minute; needs torch, scikit-learn and onnx)
    python tools/check_demo_model.py    (what INT8 does to it, op by op)

Why plain INT8 fails on it, and why no rescaling of channels can help: before `mix`, the image's
brightness times a large gain is taken from every feature, and `mix` (a Hadamard transform without
its constant row: entries +-1/8, exact in INT8, each row adding up to zero) takes that common level
out again. In floating point nothing happens. In 8 bits the step is set by the level, which is far
wider than the features that ride on it, in each channel alike: the features drown (0.99 falls to
about 0.82), and with `mix` alone in float all is well. Sensors with a common-mode level, and
residual streams with a large mean, do the same to real nets.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from torch import nn

FOLDER = Path(__file__).resolve().parents[1] / "src" / "lpot" / "demo"
SEED = 0
TRAINING = 1000  # the rest, in the order of the file, are kept for evaluation
EPOCHS, BATCH = 45, 64
WIDTHS = (48, 96, 96, 96)
STRIDES = (1, 1, 1, 2)
FEATURES = 64
LEVEL_SPAN = 1000.0  # the common level's largest value, in standard deviations of a feature
OPSET = 17  # low enough for older runtimes; one reduction keeps its axes as an attribute


def hadamard(size: int) -> np.ndarray:
    """Orthonormal +-1 rows; all but the first add up to zero."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return (matrix / np.sqrt(size)).astype(np.float32)


class Net(nn.Module):
    """Four convolutions, a feature layer, the fixed mix, the classifier."""

    def __init__(self) -> None:
        super().__init__()
        inputs = (1, *WIDTHS[:-1])
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, 3, stride=stride, padding=1)
            for a, b, stride in zip(inputs, WIDTHS, STRIDES, strict=True)
        )
        self.fc1 = nn.Linear(WIDTHS[-1] * 16, FEATURES)
        self.mix = nn.Linear(FEATURES, FEATURES - 1)
        self.fc2 = nn.Linear(FEATURES - 1, 10)
        self.mix.weight.data = torch.from_numpy(hadamard(FEATURES)[1:])
        self.mix.weight.requires_grad = False

    def features(self, x: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            x = F.relu(conv(x))
        return self.fc1(F.dropout(x.flatten(1), 0.3, self.training))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(F.relu(self.mix(self.features(x))))


def jitter(images: torch.Tensor) -> torch.Tensor:
    """Small random rotation, size, shear and shift: 1000 digits are few."""
    count = len(images)
    draw = torch.rand(5, count) - 0.5
    turn, size, shear = 0.5 * draw[0], 1 + 0.3 * draw[1], 0.3 * draw[2]
    first = torch.stack([size * turn.cos(), shear - turn.sin(), 0.35 * draw[3]], 1)
    second = torch.stack([turn.sin(), size * turn.cos(), 0.35 * draw[4]], 1)
    grid = F.affine_grid(torch.stack([first, second], 1), images.shape, align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def train(images: torch.Tensor, labels: torch.Tensor) -> Net:
    torch.manual_seed(SEED)
    net = Net()
    steps = len(images) // BATCH
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=EPOCHS * steps)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(images))[: steps * BATCH].split(BATCH):
            logits = net(jitter(images[chosen]))
            loss = F.cross_entropy(logits, labels[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def level_gain(net: Net, images: torch.Tensor) -> float:
    with torch.no_grad():
        spread = float(net.features(images).std())
    return LEVEL_SPAN * spread / float(images.mean(dim=(1, 2, 3)).max())


def write_onnx(net: Net, gain: float) -> onnx.ModelProto:
    nodes, weights, last = [], {}, "image"
    for number, (conv, stride) in enumerate(zip(net.convs, STRIDES, strict=True), start=1):
        name = f"conv{number}"
        weights |= {f"{name}.weight": conv.weight, f"{name}.bias": conv.bias}
        inputs = [last, f"{name}.weight", f"{name}.bias"]
        window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [stride, stride]}
        nodes.append(helper.make_node("Conv", inputs, [f"{name}.out"], name, **window))
        last = f"relu{number}.out"
        nodes.append(helper.make_node("Relu", [f"{name}.out"], [last], f"relu{number}"))
    for name in ("fc1", "mix", "fc2"):
        layer = getattr(net, name)
        weights |= {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}
    weights["level.gain"] = torch.tensor([gain])
    nodes += [
        helper.make_node("Flatten", [last], ["flat"], "flatten"),
        gemm("fc1", "flat", "features"),
        helper.make_node("Flatten", ["image"], ["pixels"], "pixels"),
        helper.make_node("ReduceMean", ["pixels"], ["brightness"], "brightness", axes=[1]),
        helper.make_node("Mul", ["brightness", "level.gain"], ["level"], "level"),
        helper.make_node("Sub", ["features", "level"], ["referred"], "refer"),
        gemm("mix", "referred", "mixed"),
        helper.make_node("Relu", ["mixed"], ["mixed.relu"], "relu5"),
        gemm("fc2", "mixed.relu", "logits"),
    ]
    return assemble(nodes, weights)


def gemm(name: str, source: str, target: str) -> onnx.NodeProto:
    inputs = [source, f"{name}.weight", f"{name}.bias"]
    return helper.make_node("Gemm", inputs, [target], name, transB=1)


def assemble(nodes: list[onnx.NodeProto], weights: dict[str, torch.Tensor]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(value.detach().numpy(), key) for key, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    model.producer_name = "lpot"
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    digits = load_digits()
    FOLDER.mkdir(parents=True, exist_ok=True)
    stored = {"images": digits.images.astype(np.uint8), "labels": digits.target.astype(np.uint8)}
    np.savez_compressed(FOLDER / "digits.npz", **stored)
    images = torch.from_numpy((digits.images[:, None] / 16).astype(np.float32))
    labels = torch.from_numpy(digits.target.astype(np.int64))
    net = train(images[:TRAINING], labels[:TRAINING])
    with torch.no_grad():
        right = net(images[TRAINING:]).argmax(1) == labels[TRAINING:]
    model = write_onnx(net, level_gain(net, images[:TRAINING]))
    onnx.save(model, FOLDER / "digits.onnx")
    for name in ("digits.npz", "digits.onnx"):
        print(f"{name}: {(FOLDER / name).stat().st_size / 1024:.0f} KB")
    print(f"FP32 accuracy in torch, without the level: {float(right.float().mean()):.4f}")


if __name__ == "__main__":
    main()
