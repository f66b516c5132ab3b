"""Graphs nobody would draw: ops chained at random, with weights small, large and shared."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from onnx import ModelProto, helper

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


# -- odd but legal -------------------------------------------------------------------------------


class Odd:
    """A few ops with whatever ONNX allows: constants shared between roles, tensors read twice,
    optional inputs there or not, every broadcast. Sizes are alike, so that mix-ups stay hidden."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.net = Net(self.draw.choice([11, 13, 17, 18]), seed)
        self.pool: list[tuple[str, Shape, bool]] = []  # constants: name, shape, all positive
        self.made: list[Made] = []

    def model(self) -> ModelProto:
        shape = self.draw.choice([(4, 4), (2, 4, 4), (4, 4, 4, 4), (2, 4, 5, 5)])
        self.made.append((self.net.input("x", shape), shape))
        wanted = self.draw.randrange(3, 8)
        verbs = self.draw.sample(ODD, 4)  # few kinds at a time meet each other more often
        for turn in range(60):
            if len(self.made) > wanted:
                break
            source = self.made[-1] if self.draw.random() < 0.8 else self.draw.choice(self.made)
            found = self.draw.choice(verbs if turn < 30 else ODD)(self, *source)
            self.made += [found] if found is not None else []
        names = {self.made[-1][0]}
        names |= {self.draw.choice(self.made[1:])[0]} if self.draw.random() < 0.3 else set()
        return self.net.model(*sorted(names))

    def some(self, shape: Shape, positive: bool = False) -> str:
        """A constant, often one that is there already; channels are far apart in size."""
        fitting = [name for name, own, above in self.pool if own == shape and above >= positive]
        if fitting and self.draw.random() < 0.5:
            return self.draw.choice(fitting)
        spread = 10.0 ** self.net.random.uniform(-0.5, 0.5, shape)
        for axis, size in enumerate(shape[:2]):
            far = [size if place == axis else 1 for place in range(len(shape))]
            spread = spread * 10.0 ** self.net.random.uniform(-1.0, 1.0, far)
        above = positive or self.draw.random() < 0.5
        signs = 1.0 if above else self.net.random.choice([-1.0, 1.0], shape)
        name = f"c{len(self.pool)}"
        self.pool.append((name, shape, above))
        return self.net.const(name, np.asarray(spread * signs, np.float32))

    def numbers(self, *values: int) -> str:
        return self.net.const(f"i{len(self.net.weights)}", np.array(values, np.int64))

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        return self.net.op(kind, inputs, **attributes)

    def hidden(self, name: str, shape: Shape) -> str:
        """A constant behind ops that only move it."""
        if self.draw.random() < 0.8 or len(shape) < 2:
            return name
        turned = self.op("Transpose", name, perm=[*range(1, len(shape)), 0])
        return self.op("Transpose", turned, perm=[len(shape) - 1, *range(len(shape) - 1)])

    def maybe(self, *shapes: Shape) -> list[str]:
        """An optional last input: left out, empty, or of one of these shapes."""
        choice = self.draw.randrange(4)
        return [[], [""], [self.some(self.draw.choice(shapes))]][min(choice, 2)]

    def conv(self, name: str, shape: Shape) -> Made | None:
        if len(shape) != 4 or min(shape[2:]) < 3:
            return None
        group = self.draw.choice([1, 1, 2, shape[1]])
        if shape[1] % group or shape[1] != 4:
            return None
        size, dilation = self.draw.choice([1, 2, 3]), self.draw.choice([1, 1, 2])
        stride, pad = self.draw.choice([1, 1, 2]), self.draw.choice([0, 1])
        kernel = (4, 4 // group, size, size)
        extra: dict[str, object] = {"group": group} if group > 1 or self.flip() else {}
        extra |= {"kernel_shape": [size, size]} if self.flip() else {}
        extra |= {"dilations": [dilation] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        sides = [(side + 2 * pad - dilation * (size - 1) - 1) // stride + 1 for side in shape[2:]]
        if min(sides) < 1:
            return None
        weight = self.hidden(self.some(kernel), kernel)
        made = self.op("Conv", name, weight, *self.maybe((4,)), **extra)
        return made, (shape[0], 4, *sides)

    def transposed(self, name: str, shape: Shape) -> Made | None:
        if len(shape) != 4 or shape[1] != 4 or max(shape) > 8:
            return None
        size, stride = self.draw.choice([1, 2, 3]), self.draw.choice([1, 2, 3])
        pad, more = self.draw.choice([0, 0, 1]), self.draw.choice([0, 0, 1])
        sides = [stride * (side - 1) + more + size - 2 * pad for side in shape[2:]]
        if more >= stride or min(sides) < 1:
            return None
        group = self.draw.choice([1, 1, 2])
        inputs = [name, self.some((4, 4 // group, size, size)), *self.maybe((4,))]
        extra = {"strides": [stride] * 2, "pads": [pad] * 4, "output_padding": [more] * 2}
        return self.op("ConvTranspose", *inputs, group=group, **extra), (shape[0], 4, *sides)

    def norm(self, name: str, shape: Shape) -> Made | None:
        if len(shape) < 2:
            return None
        width = (shape[1],)
        parts = [self.some(width), self.some(width), self.some(width), self.some(width, True)]
        if self.draw.random() < 0.3:
            parts[self.draw.randrange(3)] = parts[3]
        extra = {"epsilon": 0.01} if self.flip() else {}
        return self.op("BatchNormalization", name, *parts, **extra), shape

    def layer_norm(self, name: str, shape: Shape) -> Made | None:
        if self.net.opset < 17:
            return None
        axis = self.draw.choice([-1, len(shape) - 1, len(shape) - 2])
        rest = shape[axis:]
        inputs = [name, self.some(rest), *self.maybe(rest)]
        return self.op("LayerNormalization", *inputs, axis=axis), shape

    def gemm(self, name: str, shape: Shape) -> Made | None:
        if shape != (4, 4):
            return None
        shapes: list[Shape] = [(), (1,), (4,), (1, 4), (4, 1), (4, 4), (1, 1)]
        inputs = [name, self.hidden(self.some((4, 4)), (4, 4)), *self.maybe(*shapes)]
        inputs = [name, name, *inputs[2:]] if self.draw.random() < 0.1 else inputs
        extra: dict[str, object] = {}
        for word, value in (("transA", 1), ("transB", 1), ("alpha", 0.5), ("beta", 0.0)):
            extra |= {word: value} if self.draw.random() < 0.3 else {}
        return self.op("Gemm", *inputs, **extra), shape

    def product(self, name: str, shape: Shape) -> Made | None:
        if shape[-1] != 4 or len(shape) < 2 or shape[-2] != 4:
            return None
        sizes: list[Shape] = [(4, 4), (4, 4), (4,), (1, 4, 4)]
        size = self.draw.choice(sizes if len(shape) < 4 else sizes[:2])
        pair = [name, self.hidden(self.some(size), size)]
        if size == (4, 4) and self.draw.random() < 0.3:
            pair.reverse()
        if self.draw.random() < 0.1:
            pair, size = [name, name], (4, 4)
        if size == (4,):
            return self.op("MatMul", *pair), shape[:-1]
        made, form = self.op("MatMul", *pair), np.broadcast_shapes(shape, size)
        if self.flip():
            biases: list[Shape] = [(4,), (4,), (1, 4), (4, 1), (4, 4), (1, 1, 4)]
            bias = self.draw.choice(biases)
            made = self.op("Add", *self.shuffled(made, self.some(bias)))
            form = np.broadcast_shapes(form, bias)
        return made, form

    def summed(self, name: str, shape: Shape) -> Made | None:
        equation = self.draw.choice(["ij,jk->ik", "ij,kj->ik", "ij,ij->ij", "ij,jk->ki"])
        if shape != (4, 4) or self.net.opset < 12:
            return None
        return self.op("Einsum", name, self.some(shape), equation=equation), shape

    def sides(self, name: str, shape: Shape) -> Made:
        """Arithmetic with a constant of any shape that fits, with itself, or with another."""
        kind = self.draw.choice(["Add", "Add", "Mul", "Mul", "Sub", "Div", "Max"])
        cut = shape[self.draw.randrange(len(shape) + 1) :]
        size = tuple(self.draw.choice([side, side, 1]) for side in cut)
        other = self.draw.choice([self.some(size, True), self.some(size, True), name])
        if self.draw.random() < 0.3 and kind != "Div":
            other = self.draw.choice([known for known, own in self.made if own == shape])
        pair = [name, other]
        if kind != "Div" and self.flip():
            pair.reverse()
        return self.op(kind, *pair), shape

    def plain(self, name: str, shape: Shape) -> Made:
        kind = self.draw.choice(["Relu", "Relu", "LeakyRelu", "Sigmoid", "Clip", "PRelu", "Erf"])
        inputs = [name]
        if kind == "Clip":
            inputs += self.draw.choice(
                [[], ["", self.some((), True)], [self.net_number(0.0), self.net_number(6.0)]]
            )
        if kind == "PRelu":
            cut = shape[self.draw.randrange(len(shape) + 1) :]
            inputs.append(self.some(tuple(self.draw.choice([side, 1]) for side in cut)))
        return self.op(kind, *inputs), shape

    def net_number(self, value: float) -> str:
        return self.net.const(f"n{len(self.net.weights)}", np.float32(value))

    def gelu(self, name: str, shape: Shape) -> Made:
        erf = self.op("Erf", self.op("Div", name, self.net_number(2**0.5)))
        shifted = self.op("Add", *self.shuffled(erf, self.net_number(1.0)))
        half = self.op("Mul", *self.shuffled(shifted, self.net_number(0.5)))
        return self.op("Mul", *self.shuffled(name, half)), shape

    def shuffled(self, *names: str) -> list[str]:
        return self.draw.sample(names, len(names))

    def mean(self, name: str, shape: Shape) -> Made | None:
        if len(shape) != 4:
            return None
        keep, axes = self.draw.randrange(2), self.draw.choice([[2, 3], [3, 2], [-1, -2], [1], [-1]])
        inputs = [name, self.numbers(*axes)] if self.net.opset >= 18 else [name]
        extra: dict[str, object] = {} if self.net.opset >= 18 else {"axes": axes}
        gone = {axis % 4 for axis in axes}
        whole = [1 if axis in gone else side for axis, side in enumerate(shape)]
        rest = [side for axis, side in enumerate(shape) if axis not in gone]
        made = self.op("ReduceMean", *inputs, keepdims=keep, **extra)
        return made, tuple(whole if keep else rest)

    def turned(self, name: str, shape: Shape) -> Made:
        order = self.draw.sample(range(len(shape)), len(shape))
        return self.op("Transpose", name, perm=order), tuple(shape[axis] for axis in order)

    def reshaped(self, name: str, shape: Shape) -> Made | None:
        if len(shape) < 3:
            return None
        forms = [(0, -1), (shape[0], -1), (-1, *shape[2:])]
        form = self.draw.choice(forms)
        whole = int(np.prod(shape))
        sizes = [shape[0] if size == 0 else size for size in form]
        known = int(np.prod([size for size in sizes if size > 0]))
        made = tuple(whole // known if size < 0 else size for size in sizes)
        if self.draw.random() < 0.3:
            name = self.op("Reshape", name, self.numbers(-1, shape[-1]))
            return (self.op("Reshape", name, self.numbers(*made)), made)
        return self.op("Reshape", name, self.numbers(*form)), made

    def joined(self, name: str, shape: Shape) -> Made | None:
        axis = self.draw.randrange(len(shape))
        if shape[axis] > 4:
            return None
        made = self.op("Concat", name, name, axis=axis)
        halves = [f"{made}/{part}" for part in ("one", "two")]
        self.net.nodes[-1].name = f"{made}:Concat"
        inputs = [made, self.numbers(*[shape[axis]] * 2)] if self.net.opset >= 13 else [made]
        extra: dict[str, object] = {} if self.net.opset >= 13 else {"split": [shape[axis]] * 2}
        self.net.nodes.append(
            helper.make_node("Split", inputs, halves, name=f"{made}:Split", axis=axis, **extra)
        )
        return self.op("Add", *self.shuffled(*halves)), shape

    def padded(self, name: str, shape: Shape) -> Made | None:
        if len(shape) != 4 or shape[2] > 8:
            return None
        value = [self.some((), True)] if self.flip() else []
        made = self.op("Pad", name, self.numbers(0, 0, 1, 1, 0, 0, 1, 1), *value)
        return made, (*shape[:2], shape[2] + 2, shape[3] + 2)

    def flip(self) -> bool:
        return self.draw.random() < 0.5


OddVerb = Callable[[Odd, str, Shape], Made | None]
ODD: tuple[OddVerb, ...] = (
    *(Odd.conv, Odd.conv, Odd.transposed, Odd.norm, Odd.norm, Odd.layer_norm, Odd.gemm, Odd.gemm),
    *(Odd.product, Odd.product, Odd.summed, Odd.sides, Odd.sides, Odd.plain, Odd.plain, Odd.gelu),
    *(Odd.mean, Odd.turned, Odd.reshaped, Odd.joined, Odd.padded),
)


def odd_graph(seed: int) -> ModelProto:
    return Odd(seed).model()
