"""What the five-minute page asks of its reader: a ResNet, and images in folders by class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CLASSES = ("red", "green", "blue", "grey")
SIZE = 224


class Maker:
    """Nodes and weights of a net with random features."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, value: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def conv(self, source: str, name: str, shape: tuple[int, ...], stride: int) -> str:
        fan = float(np.prod(shape[1:]))
        kernel = self.random.standard_normal(shape) * np.sqrt(2 / fan)
        pad = shape[2] // 2
        inputs = [source, self.weight(f"{name}.w", kernel)]
        node = helper.make_node(
            "Conv", inputs, [name], name=name, strides=[stride, stride], pads=[pad] * 4
        )
        self.nodes.append(node)
        return name

    def op(self, kind: str, name: str, *inputs: str, **attributes: int) -> str:
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def block(self, source: str, name: str, width: int, given: int) -> str:
        """Two convolutions and a shortcut, half the size."""
        first = self.op(
            "Relu", f"{name}.r1", self.conv(source, f"{name}.c1", (width, given, 3, 3), 2)
        )
        second = self.conv(first, f"{name}.c2", (width, width, 3, 3), 1)
        short = self.conv(source, f"{name}.s", (width, given, 1, 1), 2)
        return self.op("Relu", f"{name}.r2", self.op("Add", f"{name}.a", second, short))


def make_model(head: np.ndarray | None = None) -> onnx.ModelProto:
    """Features without a head; with one, the logits."""
    maker = Maker()
    found = maker.op("Relu", "stem.r", maker.conv("image", "stem", (16, 3, 7, 7), 4))
    for number, (given, width) in enumerate(((16, 16), (16, 32), (32, 64)), start=1):
        found = maker.block(found, f"layer{number}", width, given)
    found = maker.op("Flatten", "flat", maker.op("GlobalAveragePool", "pool", found))
    width = 64
    if head is not None:
        width = head.shape[1]
        bias = maker.weight("fc.b", head[-1])
        found = maker.op("Gemm", "fc", found, maker.weight("fc.w", head[:-1]), bias)
    graph = helper.make_graph(
        maker.nodes,
        "resnet",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, SIZE, SIZE])],
        [helper.make_tensor_value_info(found, TensorProto.FLOAT, ["batch", width])],
        maker.weights,
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def make_images(folder: Path, each: int = 12) -> None:
    """Noise with a tint: easy, but not to be told by one pixel."""
    from PIL import Image

    random = np.random.default_rng(1)
    for number, name in enumerate(CLASSES):
        place = folder / name
        place.mkdir(parents=True)
        for index in range(each):
            pixels = random.integers(0, 200, (240, 260, 3))
            if number < 3:
                pixels[..., number] += 55
            Image.fromarray(pixels.astype(np.uint8)).save(place / f"{index}.jpg")


def make_own_resnet(folder: Path, read: object) -> None:
    """`resnet.onnx`, with a last layer that was fitted to the images below `images/`."""
    import onnxruntime

    assert callable(read)
    session = onnxruntime.InferenceSession(make_model().SerializeToString())
    files = sorted((folder / "images").glob("*/*"))
    names = sorted(CLASSES)
    features = np.concatenate([session.run(None, {"image": read(file)[None]})[0] for file in files])
    features = np.hstack([features, np.ones((len(files), 1), np.float32)])
    wanted = np.eye(len(names))[[names.index(file.parent.name) for file in files]]
    head = np.linalg.solve(features.T @ features + 1e-3 * np.eye(65), features.T @ wanted)
    onnx.save(make_model(head), folder / "resnet.onnx")
