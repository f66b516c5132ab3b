"""More nets torn apart, of the kinds that people have: gates, dense blocks, heads, outliers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from search.tear import Loom, Torn, outputs, pictures, sentences, transformer

IMAGE = {"x": ["n", 3, 12, 12]}
TEXT = {"x": ["n", 6, 32]}


class Weaver(Loom):
    """The parts that the nets below are made of."""

    def const(self, name: str, value: object, kind: type = np.float32) -> str:
        self.weights[name] = np.asarray(value, kind)
        return name

    def hard_swish(self, x: str) -> str:
        return self.add("HardSwish", [x], f"{x}.hswish")

    def gelu(self, x: str) -> str:
        """As exporters write it: x / 2 * (1 + erf(x / sqrt(2)))."""
        root = self.const("gelu.root", 2**0.5)
        one, half = self.const("gelu.one", 1.0), self.const("gelu.half", 0.5)
        curve = self.add("Erf", [self.add("Div", [x, root], f"{x}.div")], f"{x}.erf")
        plus = self.add("Add", [curve, one], f"{x}.plus")
        return self.add("Mul", [self.add("Mul", [x, plus], f"{x}.twice"), half], f"{x}.gelu")

    def squeeze(self, x: str, name: str, channels: int, inside: int) -> str:
        """Squeeze and excitation: a gate for each channel from the channels' means."""
        mean = self.add("GlobalAveragePool", [x], f"{name}.mean")
        small = self.relu(self.conv(mean, f"{name}.down", (inside, channels, 1, 1)))
        gate = self.conv(small, f"{name}.up", (channels, inside, 1, 1))
        gate = self.add("HardSigmoid", [gate], f"{name}.gate", alpha=1 / 6, beta=0.5)
        return self.add("Mul", [x, gate], f"{name}.gated")

    def rms_norm(self, x: str, name: str, size: int) -> str:
        """Root mean square norm in single ops, as language models are exported."""
        self.const(f"{name}.two", 2.0)
        self.const(f"{name}.eps", 1e-5)
        square = self.add("Pow", [x, f"{name}.two"], f"{name}.square")
        mean = self.add("ReduceMean", [square], f"{name}.mean", axes=[-1], keepdims=1)
        root = self.add(
            "Sqrt", [self.add("Add", [mean, f"{name}.eps"], f"{name}.safe")], f"{name}.r"
        )
        self.weights[f"{name}.w"] = np.ones(size, np.float32)
        unit = self.add("Div", [x, root], f"{name}.unit")
        return self.add("Mul", [unit, f"{name}.w"], name)

    def batchnorm(self, x: str, name: str, size: int) -> str:
        rng = self.rng
        self.weights |= {
            f"{name}.w": (0.5 + rng.random(size)).astype(np.float32),
            f"{name}.b": (0.1 * rng.standard_normal(size)).astype(np.float32),
            f"{name}.m": (0.1 * rng.standard_normal(size)).astype(np.float32),
            f"{name}.v": (0.5 + rng.random(size)).astype(np.float32),
        }
        inputs = [x, *(f"{name}.{part}" for part in "wbmv")]
        return self.add("BatchNormalization", inputs, name)

    def shift_channels(self, makers: list[str], norms: list[str], start: int = 0) -> None:
        """Tear the channels between convolutions and the batch norms that read them."""
        size = self.weights[f"{makers[0]}.w"].shape[0]
        scale = self.factors(size)
        for name in makers:
            self.weights[f"{name}.w"] *= scale.reshape(-1, 1, 1, 1)
            self.weights[f"{name}.b"] *= scale
        for name in norms:
            part = slice(start, start + size)
            self.weights[f"{name}.m"][part] *= scale
            self.weights[f"{name}.w"][part] /= scale


def squeezed(seed: int = 0) -> Torn:
    """MobileNetV3's blocks: the gate's own layers read the torn channels as well."""
    net = Weaver(seed)
    x = net.hard_swish(net.conv("x", "stem", (8, 3, 3, 3)))
    for b in ("a", "b"):
        y = net.relu(net.conv(x, f"{b}.expand", (24, 8, 1, 1)))
        y = net.relu(net.conv(y, f"{b}.depthwise", (24, 1, 3, 3), group=24))
        y = net.squeeze(y, f"{b}.se", 24, 8)
        x = net.add("Add", [x, net.conv(y, f"{b}.project", (8, 24, 1, 1))], f"{b}.add")
    net.head(net.hard_swish(net.conv(x, "last", (16, 8, 1, 1))), 16)
    for b in ("a", "b"):
        net.tear([f"{b}.expand"], [f"{b}.depthwise"])
        net.tear([f"{b}.depthwise"], [f"{b}.se.down", f"{b}.project"])
        net.tear([f"{b}.se.down"], [f"{b}.se.up"])
    return Torn(net.make(IMAGE, ["fc"]), pictures(seed))


def grouped(seed: int = 0) -> Torn:
    """ResNeXt's blocks: convolutions in groups between two pointwise ones."""
    net = Weaver(seed)
    x = net.relu(net.conv("x", "stem", (16, 3, 3, 3)))
    for b in ("a", "b"):
        y = net.relu(net.conv(x, f"{b}1", (16, 16, 1, 1)))
        y = net.relu(net.conv(y, f"{b}2", (16, 4, 3, 3), group=4))
        x = net.relu(net.add("Add", [x, net.conv(y, f"{b}3", (16, 16, 1, 1))], f"{b}.add"))
    net.head(x, 16)
    for b in ("a", "b"):
        scale = net.factors(16)
        net.weights[f"{b}1.w"] *= scale.reshape(-1, 1, 1, 1)
        net.weights[f"{b}1.b"] *= scale
        net.weights[f"{b}2.w"] /= scale.reshape(4, 1, 4, 1, 1).repeat(4, 1).reshape(16, 4, 1, 1)
        net.tear([f"{b}2"], [f"{b}3"])
    net.tear(["stem", "a3", "b3"], ["a1", "b1", "fc"])
    return Torn(net.make(IMAGE, ["fc"]), pictures(seed))


def dense(seed: int = 0) -> Torn:
    """DenseNet's block: norms that can't be folded read what many layers made."""
    net = Weaver(seed)
    x, size = net.conv("x", "stem", (8, 3, 3, 3)), 8
    made = [("stem", 0, 8)]
    norms: list[tuple[str, int]] = []
    for number in range(3):
        name = f"layer{number}"
        norms.append((f"{name}.bn", size))
        y = net.relu(net.batchnorm(x, f"{name}.bn", size))
        y = net.conv(y, name, (6, size, 3, 3))
        x = net.add("Concat", [x, y], f"{name}.concat", axis=1)
        made.append((name, size, 6))
        size += 6
    norms.append(("bn", size))
    net.head(net.relu(net.batchnorm(x, "bn", size)), size)
    for maker, start, _ in made:
        readers = [name for name, width in norms if width > start]
        net.shift_channels([maker], readers, start)
    return Torn(net.make(IMAGE, ["fc"]), pictures(seed))


def flattened(seed: int = 0) -> Torn:
    """LeNet's and VGG's end: channels and places flattened together in front of the classifier."""
    net = Weaver(seed)
    x = net.relu(net.conv("x", "one", (8, 3, 3, 3)))
    x = net.add("MaxPool", [x], "pool1", kernel_shape=[2, 2], strides=[2, 2])
    x = net.relu(net.conv(x, "two", (12, 8, 3, 3)))
    x = net.add("MaxPool", [x], "pool2", kernel_shape=[2, 2], strides=[2, 2])
    x = net.add("Flatten", [x], "flat")
    x = net.relu(net.gemm(x, "hidden", 12 * 9, 32))
    net.gemm(x, "fc", 32, 10)
    net.tear(["one"], ["two"])
    net.tear(["hidden"], ["fc"])
    scale = net.factors(12)
    net.weights["two.w"] *= scale.reshape(-1, 1, 1, 1)
    net.weights["two.b"] *= scale
    net.weights["hidden.w"] /= scale.repeat(9)
    return Torn(net.make(IMAGE, ["fc"]), pictures(seed))


def giant_channel(seed: int = 0) -> Torn:
    """One channel of a layer's weights a thousand times the others, all else as it was."""
    net = Weaver(seed)
    x, size = "x", 3
    for number in range(6):
        x, size = net.relu(net.conv(x, f"conv{number}", (12, size, 3, 3))), 12
    net.head(x, 12)
    for number, factor in ((1, 1000.0), (3, 3000.0)):
        net.weights[f"conv{number}.w"][4] *= factor
        net.weights[f"conv{number}.b"][4] *= factor
        net.weights[f"conv{number + 1}.w"][:, 4] /= factor
    return Torn(net.make(IMAGE, ["fc"]), pictures(seed))


def leaky(seed: int = 0) -> Torn:
    """Leaky and learnt slopes, average pooling, a resize: all let positive factors through."""
    net = Weaver(seed)
    x = net.add("LeakyRelu", [net.conv("x", "one", (8, 3, 3, 3))], "leaky", alpha=0.1)
    x = net.add("AveragePool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    net.const("slope", np.linspace(0.1, 0.4, 12).reshape(12, 1, 1))
    x = net.add("PRelu", [net.conv(x, "two", (12, 8, 3, 3)), "slope"], "prelu")
    net.const("scales", [1.0, 1.0, 2.0, 2.0])
    x = net.add("Resize", [x, "", "scales"], "up", mode="nearest")
    net.head(net.relu(net.conv(x, "three", (16, 12, 3, 3))), 16)
    net.tear(["one"], ["two"])
    net.tear(["two"], ["three"])
    net.tear(["three"], ["fc"])
    return Torn(net.make(IMAGE, ["fc"]), pictures(seed))


def padded_shortcut(seed: int = 0) -> Torn:
    """CIFAR's ResNets: the stream goes on thinned out, with zeros for the channels it lacks."""
    net = Weaver(seed)
    net.const("starts", [0, 0], np.int64)
    net.const("ends", [2**31, 2**31], np.int64)
    net.const("axes", [2, 3], np.int64)
    net.const("steps", [2, 2], np.int64)
    net.const("zeros", [0, 4, 0, 0, 0, 4, 0, 0], np.int64)
    x = net.relu(net.conv("x", "stem", (8, 3, 3, 3)))
    y = net.conv(net.relu(net.conv(x, "a1", (8, 8, 3, 3))), "a2", (8, 8, 3, 3))
    x = net.relu(net.add("Add", [x, y], "a.add"))
    thin = net.add("Slice", [x, "starts", "ends", "axes", "steps"], "thin")
    wide = net.add("Pad", [thin, "zeros"], "wide")
    y = net.relu(net.conv(x, "b1", (16, 8, 3, 3)))
    y = net.add("Slice", [y, "starts", "ends", "axes", "steps"], "b.thin")
    y = net.conv(y, "b2", (16, 16, 3, 3))
    x = net.relu(net.add("Add", [wide, y], "b.add"))
    net.head(x, 16)
    stream = net.factors(16)
    for name, scale in (("stem", stream[4:12]), ("a2", stream[4:12]), ("b2", stream)):
        net.weights[f"{name}.w"] *= scale.reshape(-1, 1, 1, 1)
        net.weights[f"{name}.b"] *= scale
    for name in ("a1", "b1"):
        net.weights[f"{name}.w"] /= stream[4:12].reshape(1, -1, 1, 1)
    net.weights["fc.w"] /= stream
    net.tear(["a1"], ["a2"])
    net.tear(["b1"], ["b2"])
    return Torn(net.make(IMAGE, ["fc"]), pictures(seed))


def gelu_outliers(seed: int = 0) -> Torn:
    """Hidden channels of a feed-forward part that are huge, and read with little weight."""
    net = Weaver(seed)
    x = "x"
    for number in range(3):
        b = f"b{number}"
        y = net.norm(x, f"{b}.norm", 32)
        y = net.gelu(net.linear(y, f"{b}.up", 32, 64))
        x = net.add("Add", [x, net.linear(y, f"{b}.down", 64, 32)], f"{b}.add")
        for channel in net.rng.choice(64, 3, replace=False):
            net.weights[f"{b}.up.b"][channel] = 60.0  # GELU is a straight line there
            net.weights[f"{b}.up.w"][:, channel] *= 20.0
            net.weights[f"{b}.down.w"][channel] /= 60.0
    net.linear(net.norm(x, "norm", 32), "fc", 32, 16)
    return Torn(net.make(TEXT, ["fc.sum"]), sentences(seed))


def query_outliers(seed: int = 0) -> Torn:
    """Channels of the queries far larger than the others, the keys' as much smaller."""
    net = Weaver(seed)
    net.linear(net.norm(transformer(net, 2), "norm", 32), "fc", 32, 16)
    for b in ("b0", "b1"):
        scale = net.factors(32, 3.0)
        for maker, factor in ((f"{b}.q", scale), (f"{b}.k", 1 / scale)):
            net.weights[f"{maker}.w"] *= factor
            net.weights[f"{maker}.b"] *= factor
    return Torn(net.make(TEXT, ["fc.sum"]), sentences(seed))


def rms_outliers(seed: int = 0) -> Torn:
    """A language model's gated feed-forward part behind norms in single ops, with outliers."""
    net = Weaver(seed)
    x = "x"
    for number in range(2):
        b = f"b{number}"
        y = net.rms_norm(x, f"{b}.norm", 32)
        gate = net.linear(y, f"{b}.gate", 32, 48)
        gate = net.add("Mul", [gate, net.add("Sigmoid", [gate], f"{b}.sig")], f"{b}.silu")
        y = net.add("Mul", [gate, net.linear(y, f"{b}.up", 32, 48)], f"{b}.product")
        x = net.add("Add", [x, net.linear(y, f"{b}.down", 48, 32)], f"{b}.add")
        net.weights[f"{b}.norm.b"] = np.zeros(32, np.float32)
        net.outliers(f"{b}.norm", [f"{b}.gate", f"{b}.up"], size=100.0)
        del net.weights[f"{b}.norm.b"]
        scale = net.factors(48, 3.0)
        net.weights[f"{b}.up.w"] *= scale
        net.weights[f"{b}.up.b"] *= scale
        net.weights[f"{b}.down.w"] /= scale[:, None]
    net.linear(net.rms_norm(x, "norm", 32), "fc", 32, 16)
    return Torn(net.make(TEXT, ["fc.sum"]), sentences(seed))


# -- nets in which something must go back --------------------------------------------------------


class Each(Torn):
    """Every output channel counts the same, however small its values are."""

    def score(self, model: Any) -> float:
        truth, given = (outputs(proto, self.batches[-1]) for proto in (self.model, model))
        axes = tuple(axis for axis in range(truth.ndim) if axis != 1)
        error = ((given - truth) ** 2).sum(axes) / (truth**2).sum(axes)
        return 1.0 - float(np.sqrt(error).mean())


def mixed_head(seed: int = 0) -> Torn:
    """A detector's head: pixels and probabilities in one tensor."""
    net = Weaver(seed)
    x, size = "x", 3
    for number in range(7):
        x, size = net.relu(net.conv(x, f"conv{number}", (12, size, 3, 3))), 12
    net.conv(x, "head", (6, 12, 1, 1))
    net.weights["head.w"][:2] *= 3000.0
    net.weights["head.b"][:2] *= 3000.0
    return Each(net.make(IMAGE, ["head"]), pictures(seed), frozenset({"head"}))


def two_stubborn(seed: int = 0) -> Torn:
    """Two layers far apart, each of which reads small differences of large values."""
    net = Weaver(seed)
    x, size = "x", 3
    for number in range(14):
        name = f"conv{number}"
        bad = number in (3, 10)
        if bad:
            x = net.add("Add", [x, net.const("offset", 200.0)], f"lifted{number}")
        x = net.conv(x, name, (12, size, 1, 1) if bad else (12, size, 3, 3))
        weight = net.weights[f"{name}.w"]
        net.weights[f"{name}.w"] = weight * 1.4
        if bad:
            net.weights[f"{name}.w"] = weight - weight.mean(axis=(1, 2, 3), keepdims=True)
            net.weights[f"{name}.w"] *= 2.0
        x, size = net.relu(x), 12
    net.head(x, 12)
    return Torn(net.make(IMAGE, ["fc"]), pictures(seed), frozenset({"conv3", "conv10"}))


def hot_pixel(seed: int = 0) -> Torn:
    """One place of the input far outside of what the rest is like, and a norm behind it."""
    net = Weaver(seed)
    x = net.conv("x", "first", (8, 3, 1, 1))
    x = net.add("Tanh", [x], "tanh")
    for number in range(5):
        x = net.relu(net.conv(x, f"conv{number}", (8, 8, 3, 3)))
    net.head(x, 8)
    batches = pictures(seed)
    for batch in batches:
        batch[0][:, :, 5, 7] *= 3000.0
    return Torn(net.make(IMAGE, ["fc"]), batches, frozenset({"first"}))


def common_height(seed: int = 0) -> Torn:
    """Scores of classes with one large value added to all of them: no label sees how bad it is.

    Four layers of its branch are as stubborn as the one of the scores that is to blame.
    """
    net = Loom(seed)

    def branch(names: list[str], stubborn: set[str]) -> str:
        x, size = "x", 3
        for name in names:
            if name in stubborn:
                net.weights[f"{name}.offset"] = np.float32(300.0)
                x = net.add("Add", [x, f"{name}.offset"], f"{name}.lifted")
            x = net.conv(x, name, (12, size, 3, 3))
            if name in stubborn:
                weight = net.weights[f"{name}.w"]
                net.weights[f"{name}.w"] = weight - weight.mean(axis=(1, 2, 3), keepdims=True)
                net.nodes[-1].attribute[1].ints[:] = [0, 0, 0, 0]
            x, size = net.relu(x), 12
        return net.add("Flatten", [net.add("GlobalAveragePool", [x], f"{x}.mean")], f"{x}.flat")

    heights = [f"height{number}" for number in range(4)]
    height = net.gemm(branch(heights, set(heights)), "height", 12, 1)
    net.weights["height.w"] *= 30.0
    scores = net.gemm(branch([f"conv{number}" for number in range(5)], {"conv2"}), "fc", 12, 10)
    net.weights["fc.w"] *= 3.0
    net.add("Add", [scores, height], "logits")
    rng = np.random.default_rng(seed)
    loudness = [rng.uniform(0.5, 2.0, (64, 1, 1, 1)).astype(np.float32) for _ in range(4)]
    batches = [
        (rng.standard_normal((64, 3, 12, 12)).astype(np.float32) * loud,) for loud in loudness
    ]
    return Torn(net.make({"x": ["n", 3, 12, 12]}, ["logits"]), batches, frozenset({"conv2"}))


MENDED_MORE: dict[str, Callable[[int], Torn]] = {
    "squeeze and excite": squeezed,
    "grouped": grouped,
    "dense": dense,
    "flattened": flattened,
    "giant channel": giant_channel,
    "leaky": leaky,
    "padded shortcut": padded_shortcut,
    "gelu outliers": gelu_outliers,
    "query outliers": query_outliers,
    "rms outliers": rms_outliers,
}
GUILTY_MORE: dict[str, Callable[[int], Torn]] = {
    "mixed head": mixed_head,
    "two stubborn": two_stubborn,
    "hot pixel": hot_pixel,
}
