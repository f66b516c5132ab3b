"""Graphs nobody would draw: ops chained at random, with weights small, large and shared."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from onnx import ModelProto

from onnx_models import Net

Shape = tuple[int, ...]  # without the batch
Made = tuple[str, Shape]


class Chain:
    """One graph in the making; each verb appends an op that fits `source`, or gives None."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.net = Net(self.draw.choice([12, 13, 17]), seed)
        self.made: list[Made] = []
        self.count = 0

    def model(self) -> ModelProto:
        image = self.draw.random() < 0.6
        shape: Shape = (3, 8, 8) if image else (6, 8)
        self.made.append((self.net.input("x", ["n", *shape]), shape))
        verbs = IMAGE if image else ROWS
        while len(self.made) < self.draw.randrange(4, 14):
            found = self.draw.choice(verbs)(self, self.draw.choice(self.made[-3:]))
            self.made += [found] if found is not None else []
        names = {self.made[-1][0], self.draw.choice(self.made[1:])[0]}
        return self.net.model(*sorted(names))

    # -- parts -------------------------------------------------------------------------------

    def weight(self, *shape: int) -> str:
        self.count += 1
        return self.net.weight(f"w{self.count}", *shape, scale=self.draw.choice([None, 0.01, 3.0]))

    def const(self, value: object, dtype: type = np.float32) -> str:
        self.count += 1
        return self.net.const(f"c{self.count}", np.array(value, dtype))

    def twin(self, shape: Shape) -> str:
        return self.draw.choice([name for name, other in self.made if other == shape])

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        # Node and tensor of one name, as some exporters have it.
        name = f"t{len(self.net.nodes)}"
        if self.draw.random() < 0.5:
            attributes["name"] = name
        return self.net.op(kind, inputs, name, **attributes)

    # -- images ------------------------------------------------------------------------------

    def conv(self, source: Made) -> Made:
        name, (channels, height, width) = source
        size, outputs = self.draw.choice([1, 3]), self.draw.choice([4, 8])
        inputs = [name, self.weight(outputs, channels, size, size)]
        inputs += [self.weight(outputs)] if self.draw.random() < 0.5 else []
        made = self.op("Conv", *inputs, pads=[size // 2] * 4)
        return made, (outputs, height, width)

    def depthwise(self, source: Made) -> Made:
        name, shape = source
        weight = self.weight(shape[0], 1, 3, 3)
        return self.op("Conv", name, weight, group=shape[0], pads=[1] * 4), shape

    def transposed(self, source: Made) -> Made | None:
        name, (channels, height, width) = source
        if height > 8:
            return None
        made = self.op("ConvTranspose", name, self.weight(channels, 4, 2, 2), strides=[2, 2])
        return made, (4, 2 * height, 2 * width)

    def norm(self, source: Made) -> Made:
        name, shape = source
        spread = self.draw.choice([1.0, 20.0])
        parts = [np.abs(self.net.random.standard_normal(shape[0])) + 0.3 for _ in range(4)]
        parts[0] *= spread
        return self.op("BatchNormalization", name, *map(self.const, parts)), shape

    def pool(self, source: Made) -> Made | None:
        name, (channels, height, width) = source
        kind = self.draw.choice(["MaxPool", "AveragePool", "GlobalAveragePool"])
        if kind == "GlobalAveragePool":
            return self.op(kind, name), (channels, 1, 1)
        if min(height, width) < 2:
            return None
        made = self.op(kind, name, kernel_shape=[2, 2], strides=[2, 2])
        return made, (channels, height // 2, width // 2)

    def concat(self, source: Made) -> Made:
        name, shape = source
        other = self.draw.choice([made for made in self.made if made[1][1:] == shape[1:]])
        made = self.op("Concat", name, other[0], axis=1)
        return made, (shape[0] + other[1][0], *shape[1:])

    def channels(self, source: Made) -> Made:
        name, shape = source
        return self.op(self.draw.choice(["Add", "Mul"]), name, self.weight(shape[0], 1, 1)), shape

    # -- rows --------------------------------------------------------------------------------

    def product(self, source: Made) -> Made:
        name, (rows, columns) = source
        outputs = self.draw.choice([8, 16])
        made = self.op("MatMul", name, self.weight(columns, outputs))
        if self.draw.random() < 0.6:
            shape = self.draw.choice([(outputs,), (1, outputs), (rows, outputs), (1,)])
            pair = [made, self.weight(*shape)]
            self.draw.shuffle(pair)
            made = self.op("Add", *pair)
        return made, (rows, outputs)

    def gemm(self, source: Made) -> Made:
        name, (rows, columns) = source
        flat = self.op("Reshape", name, self.const([-1, columns], np.int64))
        inputs = [flat, self.weight(8, columns)]
        if self.draw.random() < 0.6:
            inputs.append(self.weight(*self.draw.choice([(8,), (1, 8), (1,)])))
        numbers = {"alpha": self.draw.choice([1.0, 0.5]), "beta": self.draw.choice([1.0, 2.0])}
        made = self.op("Gemm", *inputs, transB=1, **numbers)
        return self.op("Reshape", made, self.const([-1, rows, 8], np.int64)), (rows, 8)

    def shared(self, source: Made) -> Made | None:
        name, shape = source
        if shape[1] != 8:
            return None
        if all(tensor.name != "shared" for tensor in self.net.weights):
            self.net.weight("shared", 8, 8)
        return self.op("MatMul", name, "shared"), shape

    def gelu(self, source: Made) -> Made:
        name, shape = source
        erf = self.op("Erf", self.op("Div", name, self.const(2**0.5)))
        twice = self.op("Mul", name, self.op("Add", erf, self.const(1.0)))
        return self.op("Mul", twice, self.const(0.5)), shape

    def attention(self, source: Made) -> Made:
        name, (rows, _) = source
        turned = self.op("Transpose", name, perm=[0, 2, 1])
        return self.op("Softmax", self.op("MatMul", name, turned), axis=-1), (rows, rows)

    def turned(self, source: Made) -> Made:
        name, (rows, columns) = source
        return self.op("Transpose", name, perm=[0, 2, 1]), (columns, rows)

    # -- both --------------------------------------------------------------------------------

    def plain(self, source: Made) -> Made:
        name, shape = source
        kind = self.draw.choice(["Relu", "Relu", "LeakyRelu", "Sigmoid", "Clip"])
        bounds = [self.const(0.0), self.const(6.0)] if kind == "Clip" else []
        return self.op(kind, name, *bounds), shape

    def pair(self, source: Made) -> Made:
        name, shape = source
        return self.op(self.draw.choice(["Add", "Mul"]), name, self.twin(shape)), shape


Verb = Callable[[Chain, Made], Made | None]
IMAGE: tuple[Verb, ...] = (
    *(Chain.conv, Chain.conv, Chain.conv, Chain.depthwise, Chain.transposed, Chain.norm),
    *(Chain.pool, Chain.concat, Chain.channels, Chain.plain, Chain.plain, Chain.pair),
)
ROWS: tuple[Verb, ...] = (
    *(Chain.product, Chain.product, Chain.product, Chain.gemm, Chain.shared, Chain.gelu),
    *(Chain.attention, Chain.turned, Chain.plain, Chain.pair),
)


def random_graph(seed: int) -> ModelProto:
    return Chain(seed).model()
