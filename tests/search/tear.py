"""Nets torn apart in many ways: hard for INT8, the same function in FP32 wherever that can be.

Every net is small, seeded, and comes with the ops that must be found guilty (none where the tear
can be mended without leaving INT8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from backends.onnx.nets import Net

SPREAD = 4.0  # channels are scaled by exp(U(-SPREAD, SPREAD))


@dataclass(frozen=True, eq=False)
class Torn:
    """A model, batches for it, and whom to blame: a recipe must have one of `guilty` in float."""

    model: onnx.ModelProto
    batches: list[tuple[np.ndarray]]
    guilty: frozenset[str] = frozenset()

    def score(self, model: Any) -> float:
        """One minus the relative error of the outputs, on data that calibration has not seen."""
        truth, given = (outputs(proto, self.batches[-1]) for proto in (self.model, model))
        return 1.0 - float(np.linalg.norm(given - truth) / np.linalg.norm(truth))


def outputs(model: onnx.ModelProto, batch: tuple[np.ndarray]) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    session = ort.InferenceSession(model.SerializeToString(), options, providers=providers)
    return session.run(None, {"x": batch[0]})[0]


class Loom(Net):
    """A net whose channels can be torn: what one weight makes larger another makes smaller."""

    def factors(self, count: int, spread: float = SPREAD) -> np.ndarray:
        return np.exp(self.rng.uniform(-spread, spread, count)).astype(np.float32)

    def tear(self, makers: Iterable[str], readers: Iterable[str], spread: float = SPREAD) -> None:
        """Scale the channels that all these layers make, and that all those read."""
        makers = list(makers)
        scale = self.factors(self.weights[f"{makers[0]}.w"].shape[0], spread)
        for name in makers:
            weight = self.weights[f"{name}.w"]
            self.weights[f"{name}.w"] = weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
            if f"{name}.b" in self.weights:
                self.weights[f"{name}.b"] = self.weights[f"{name}.b"] * scale
        for name in readers:
            weight = self.weights[f"{name}.w"]
            depthwise = weight.ndim == 4 and weight.shape[1] == 1
            shape = (-1, 1, 1, 1) if depthwise else (1, -1, *[1] * (weight.ndim - 2))
            self.weights[f"{name}.w"] = weight / scale.reshape(shape)

    def relu(self, x: str) -> str:
        return self.add("Relu", [x], f"{x}.relu")

    def gemm(self, x: str, name: str, rows: int, columns: int) -> str:
        inputs = [
            x,
            self.weight(f"{name}.w", (columns, rows)),
            self.weight(f"{name}.b", (columns,), 0.1),
        ]
        return self.add("Gemm", inputs, name, transB=1)

    def head(self, x: str, channels: int) -> str:
        pooled = self.add("Flatten", [self.add("GlobalAveragePool", [x], "mean")], "flat")
        return self.gemm(pooled, "fc", channels, 10)

    def linear(self, x: str, name: str, rows: int, columns: int) -> str:
        """MatMul and bias, as transformers have it."""
        product = self.add(
            "MatMul", [x, self.weight(f"{name}.w", (rows, columns), rows**-0.5)], name
        )
        return self.add("Add", [product, self.weight(f"{name}.b", (columns,), 0.1)], f"{name}.sum")

    def norm(self, x: str, name: str, size: int) -> str:
        self.weights[f"{name}.w"] = np.ones(size, np.float32)
        self.weights[f"{name}.b"] = np.zeros(size, np.float32)
        return self.add("LayerNormalization", [x, f"{name}.w", f"{name}.b"], name, axis=-1)

    def outliers(
        self, norm: str, readers: Iterable[str], count: int = 3, size: float = 80.0
    ) -> None:
        """A few channels behind a norm far larger than the others, and read with less weight."""
        chosen = self.rng.choice(self.weights[f"{norm}.w"].size, count, replace=False)
        self.weights[f"{norm}.w"][chosen] *= size
        self.weights[f"{norm}.b"][chosen] *= size
        for name in readers:
            self.weights[f"{name}.w"][chosen] /= size


def pictures(seed: int, count: int = 8, channels: int = 3) -> list[tuple[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((8, channels, 12, 12)).astype(np.float32),) for _ in range(count)]


def sentences(seed: int, width: int = 32, count: int = 12) -> list[tuple[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((8, 6, width)).astype(np.float32),) for _ in range(count)]


# -- nets that can be mended ---------------------------------------------------------------------


def residual_stream(seed: int = 0) -> Torn:
    """The stream of a residual stage, which every block reads and adds to."""
    net = Loom(seed)
    x = net.relu(net.conv("x", "stem", (8, 3, 3, 3)))
    for block in ("a", "b"):
        y = net.relu(net.conv(x, f"{block}1", (8, 8, 3, 3)))
        x = net.relu(net.add("Add", [x, net.conv(y, f"{block}2", (8, 8, 3, 3))], f"{block}.add"))
    net.head(net.relu(net.conv(x, "last", (16, 8, 3, 3))), 16)
    net.tear(["stem", "a2", "b2"], ["a1", "b1", "last"])
    net.tear(["a1"], ["a2"])
    net.tear(["last"], ["fc"])
    return Torn(net.make({"x": ["n", 3, 12, 12]}, ["fc"]), pictures(seed))


def depthwise_chain(seed: int = 0) -> Torn:
    """Expand, depthwise, project, twice, with random scalings everywhere in between."""
    net = Loom(seed)
    x = net.relu(net.conv("x", "stem", (8, 3, 3, 3)))
    for block in ("a", "b"):
        y = net.relu(net.conv(x, f"{block}.expand", (24, 8, 1, 1)))
        y = net.relu(net.conv(y, f"{block}.depthwise", (24, 1, 3, 3), group=24))
        x = net.add("Add", [x, net.conv(y, f"{block}.project", (8, 24, 1, 1))], f"{block}.add")
    net.head(net.relu(net.conv(x, "last", (16, 8, 1, 1))), 16)
    for block in ("a", "b"):
        net.tear([f"{block}.expand"], [f"{block}.depthwise"])
        net.tear([f"{block}.depthwise"], [f"{block}.project"])
    net.tear(["stem", "a.project", "b.project"], ["a.expand", "b.expand", "last"])
    return Torn(net.make({"x": ["n", 3, 12, 12]}, ["fc"]), pictures(seed))


def branches(seed: int = 0) -> Torn:
    """Two branches that meet in a Concat, one of them read on its own as well."""
    net = Loom(seed)
    x = net.relu(net.conv("x", "stem", (8, 3, 3, 3)))
    left = net.relu(net.conv(x, "left", (6, 8, 1, 1)))
    right = net.relu(net.conv(x, "right", (10, 8, 3, 3)))
    both = net.add("Concat", [left, right], "both", axis=1)
    pooled = net.add("MaxPool", [both], "pool", kernel_shape=[2, 2], strides=[2, 2])
    net.head(net.relu(net.conv(pooled, "last", (16, 16, 3, 3))), 16)
    scale = net.factors(16)
    for name, part in (("left", scale[:6]), ("right", scale[6:])):
        net.weights[f"{name}.w"] *= part.reshape(-1, 1, 1, 1)
        net.weights[f"{name}.b"] *= part
    net.weights["last.w"] /= scale.reshape(1, -1, 1, 1)
    net.tear(["stem"], ["left", "right"])
    return Torn(net.make({"x": ["n", 3, 12, 12]}, ["fc"]), pictures(seed))


def perceptron(seed: int = 0) -> Torn:
    net = Loom(seed)
    x, size = "x", 32
    for name in ("one", "two", "three"):
        x, size = net.relu(net.gemm(x, name, size, 48)), 48
    net.gemm(x, "fc", 48, 10)
    net.tear(["one"], ["two"])
    net.tear(["two"], ["three"])
    net.tear(["three"], ["fc"])
    batches = [(batch[0][:, 0],) for batch in sentences(seed)]
    return Torn(net.make({"x": ["n", 32]}, ["fc"]), batches)


def transformer(net: Loom, blocks: int, width: int = 32, heads: int = 4) -> str:
    """Blocks with the norm in front, ReLU between the two products of the feed-forward part."""
    split, merged = f"split{heads}", "merged"
    net.weights |= {
        split: np.array([0, 0, heads, width // heads]),
        merged: np.array([0, 0, width]),
        "root": np.float32((width // heads) ** -0.5),
    }

    def head(y: str, name: str, order: list[int]) -> str:
        parts = net.add("Reshape", [net.linear(y, name, width, width), split], f"{name}.split")
        return net.add("Transpose", [parts], f"{name}.heads", perm=order)

    x = "x"
    for number in range(blocks):
        b = f"b{number}"
        y = net.norm(x, f"{b}.norm1", width)
        q, k, v = (
            head(y, f"{b}.{word}", order)
            for word, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3]))
        )
        scores = net.add("Mul", [net.add("MatMul", [q, k], f"{b}.qk"), "root"], f"{b}.scaled")
        weights = net.add("Softmax", [scores], f"{b}.softmax", axis=-1)
        mixed = net.add("MatMul", [weights, v], f"{b}.mixed")
        mixed = net.add("Transpose", [mixed], f"{b}.mixed.t", perm=[0, 2, 1, 3])
        mixed = net.add("Reshape", [mixed, merged], f"{b}.mixed.r")
        x = net.add("Add", [x, net.linear(mixed, f"{b}.out", width, width)], f"{b}.add1")
        y = net.norm(x, f"{b}.norm2", width)
        y = net.relu(net.linear(y, f"{b}.up", width, 2 * width))
        x = net.add("Add", [x, net.linear(y, f"{b}.down", 2 * width, width)], f"{b}.add2")
    return x


def norm_outliers(seed: int = 0) -> Torn:
    """Outlier channels behind the norms of a transformer, in a tensor that three products read."""
    net = Loom(seed)
    net.linear(net.norm(transformer(net, 2), "norm", 32), "fc", 32, 16)
    for b in ("b0", "b1"):
        net.outliers(f"{b}.norm1", [f"{b}.q", f"{b}.k", f"{b}.v"])
        net.outliers(f"{b}.norm2", [f"{b}.up"])
    net.outliers("norm", ["fc"])
    return Torn(net.make({"x": ["n", 6, 32]}, ["fc.sum"]), sentences(seed))


def torn_values(seed: int = 0) -> Torn:
    """The channels between the values of attention and the product behind it."""
    net = Loom(seed)
    net.linear(net.norm(transformer(net, 2), "norm", 32), "fc", 32, 16)
    for b in ("b0", "b1"):
        for maker, reader in ((f"{b}.v", f"{b}.out"), (f"{b}.up", f"{b}.down")):
            scale = net.factors(net.weights[f"{maker}.w"].shape[1])
            net.weights[f"{maker}.w"] *= scale
            net.weights[f"{maker}.b"] *= scale
            net.weights[f"{reader}.w"] /= scale[:, None]
    return Torn(net.make({"x": ["n", 6, 32]}, ["fc.sum"]), sentences(seed))


def wide_stream(seed: int = 0) -> Torn:
    """Norms behind the sums: outliers that the stream itself needs, and three products read."""
    net = Loom(seed)
    width = 32
    x = net.norm("x", "norm0", width)
    for number in range(2):
        b = f"b{number}"
        gate = net.add("Sigmoid", [net.linear(x, f"{b}.gate", width, width)], f"{b}.sigmoid")
        y = net.add("Mul", [net.linear(x, f"{b}.value", width, width), gate], f"{b}.product")
        x = net.norm(net.add("Add", [x, y], f"{b}.add"), f"{b}.norm", width)
    net.linear(x, "fc", width, 16)
    chosen = net.rng.choice(width, 2, replace=False)
    net.weights["b0.norm.w"][chosen] *= 150.0
    for name in ("b1.gate", "b1.value"):
        net.weights[f"{name}.w"][chosen] /= 150.0
    # The next norm sees little but the outliers: it must give the others back their size.
    net.weights["b1.norm.w"] *= 40.0
    net.weights["b1.norm.w"][chosen] /= 150.0
    return Torn(net.make({"x": ["n", 6, width]}, ["fc.sum"]), sentences(seed))


# -- nets in which something must go back --------------------------------------------------------


def stubborn_layer(seed: int = 0, place: int = 2) -> Torn:
    """One layer of a plain net that reads small differences of large values."""
    net = Loom(seed)
    x, size = "x", 3
    for number in range(6):
        name = f"conv{number}"
        if number == place:
            # A large offset that the next weights cancel: eight bits see the offset alone.
            net.weights["offset"] = np.float32(300.0)
            x = net.add("Add", [x, "offset"], "lifted")
        x = net.conv(x, name, (12, size, 3, 3))
        if number == place:
            weight = net.weights[f"{name}.w"]
            net.weights[f"{name}.w"] = np.ascontiguousarray(
                weight - weight.mean(axis=(1, 2, 3), keepdims=True)
            )
            net.nodes[-1].attribute[1].ints[:] = [0, 0, 0, 0]
        x, size = net.relu(x), 12
    net.head(x, 12)
    batches = pictures(seed)
    return Torn(net.make({"x": ["n", 3, 12, 12]}, ["fc"]), batches, frozenset({f"conv{place}"}))


def loud_tokens(seed: int = 0) -> Torn:
    """A few tokens far louder than the others, in a tensor that two products read.

    No channel stands out, so nothing can be moved to the weights; norms behind make all tokens
    count the same.
    """
    net = Loom(seed)
    width = 32
    first, second = (
        net.norm(net.linear("x", name, width, width), f"{name}.norm", width)
        for name in ("one", "two")
    )
    x = net.relu(net.linear(net.add("Add", [first, second], "sum"), "up", width, 48))
    net.linear(net.relu(net.linear(x, "middle", 48, 48)), "fc", 48, 16)
    batches = sentences(seed)
    for batch in batches:
        batch[0][:, ::6] *= 400.0
    model = net.make({"x": ["n", 6, width]}, ["fc.sum"])
    return Torn(model, batches, frozenset({"one", "two"}))


MENDED: dict[str, Callable[[int], Torn]] = {
    "residual stream": residual_stream,
    "depthwise chain": depthwise_chain,
    "branches": branches,
    "perceptron": perceptron,
    "norm outliers": norm_outliers,
    "torn values": torn_values,
    "wide stream": wide_stream,
}
GUILTY: dict[str, Callable[[int], Torn]] = {
    "stubborn layer": stubborn_layer,
    "loud tokens": loud_tokens,
}
