"""INT8 graphs: every op in its surroundings, signs, ranges, granularities, the user's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mxnet")

import mxnet as mx

from backends.mxnet.nets import cnn, conv, images, mlp, pairs, relu, with_params
from lpot.backends.mxnet import MxnetBackend, abilities
from lpot.backends.mxnet.build import tensor_range
from lpot.backends.mxnet.graph import Graph
from lpot.backends.mxnet.model import MxnetModel
from lpot.core.backend import Observations
from lpot.core.errors import CalibrationError, ConfigError
from lpot.core.numerics.rounding import TensorStats, sqnr
from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import Rule, TensorRule, TuningSpace, restrict

BACKEND = MxnetBackend()
CONV, DENSE = "Convolution", "FullyConnected"
SHAPE = (4, 8, 6, 6)


def pool(data: Any, kind: str = "max", **options: Any) -> Any:
    return mx.sym.Pooling(data, name="pool", kernel=(2, 2), pool_type=kind, **options)


def norm(data: Any) -> Any:
    return mx.sym.BatchNorm(data, name="norm", fix_gamma=False)


def add(left: Any, right: Any) -> Any:
    return mx.sym.elemwise_add(left, right, name="add")


def clip(data: Any) -> Any:
    return mx.sym.clip(data, a_min=0, a_max=6, name="clip")


def leaky(data: Any, kind: str) -> Any:
    return mx.sym.LeakyReLU(data, act_type=kind, name="leaky")


def between(middle: Callable[[Any], Any]) -> Any:
    """An op between two convolutions."""
    return conv(middle(conv(mx.sym.var("data"), "c1")), "c2")


def residual(summand: Callable[[Any], Any], after: Callable[[Any], Any]) -> Any:
    start = relu(conv(mx.sym.var("data"), "c1"), "r1")
    return conv(after(add(conv(start, "c2"), summand(start))), "c4")


def of_floats(data: Any) -> Any:
    """The summand has no negatives and no INT8 op before it."""
    return conv(add(conv(data, "c1"), mx.sym.abs(data)), "c2")


NETS: dict[str, Any] = {
    "plain": between(lambda x: x),
    "relu": between(lambda x: relu(x, "r")),
    "norm and relu": between(lambda x: relu(norm(x), "r")),
    "norm behind relu": between(lambda x: norm(relu(x, "r"))),
    "max pool": between(pool),
    "average pool": between(lambda x: pool(x, "avg", stride=(2, 2))),
    "sum pool": between(lambda x: pool(x, "sum")),
    "clip": between(clip),
    "leaky": between(lambda x: leaky(x, "leaky")),
    "gelu": between(lambda x: leaky(x, "gelu")),
    "prelu": between(lambda x: leaky(x, "prelu")),
    "dropout": between(lambda x: mx.sym.Dropout(relu(x, "r"), name="drop")),
    "dense dropout": mx.sym.FullyConnected(
        mx.sym.Dropout(
            relu(mx.sym.FullyConnected(mx.sym.var("data"), name="d1", num_hidden=8), "r"),
            name="drop",
        ),
        name="d2",
        num_hidden=8,
    ),
    "sigmoid": between(lambda x: mx.sym.Activation(x, act_type="sigmoid", name="bend")),
    "concat": between(lambda x: mx.sym.concat(x, relu(conv(x, "c3"), "r"), dim=1)),
    "grouped": between(lambda x: conv(relu(x, "r"), "c3", num_group=2)),
    "depthwise": between(lambda x: conv(relu(x, "r"), "c3", num_group=8, no_bias=True)),
    "transposed": between(
        lambda x: mx.sym.Deconvolution(x, name="up", num_filter=8, kernel=(2, 2))
    ),
    "slices": between(lambda x: mx.sym.SliceChannel(x, num_outputs=2, name="cut")[1]),
    "sum of signed": residual(lambda x: conv(x, "c3"), lambda x: x),
    "sum of signed, relu": residual(lambda x: conv(x, "c3"), lambda x: relu(x, "r")),
    "sum of unsigned": residual(lambda x: x, lambda x: x),
    "sum of unsigned, relu": residual(lambda x: x, lambda x: relu(x, "r")),
    "sum of pooled": residual(
        lambda x: mx.sym.Pooling(x, kernel=(1, 1), pool_type="max"), lambda x: x
    ),
    "sum of floats": of_floats(mx.sym.var("data")),
}


class Bench:
    """A model with its statistics, ready for recipes."""

    def __init__(self, source: Any, batches: Sequence[Any]) -> None:
        self.batches = batches
        self.model: MxnetModel = BACKEND.load(source)
        self.observations: Observations = BACKEND.observe(self.model, iter(batches), (0,))[0]
        self.space: TuningSpace = restrict(BACKEND.inspect(self.model), ())
        self.truth = self.outputs(self.model)

    def build(self, recipe: Recipe | None = None) -> MxnetModel:
        return BACKEND.build(self.model, recipe or self.space.default(), self.observations)

    def outputs(self, model: MxnetModel) -> np.ndarray:
        found = [BACKEND.run(model, batch) for batch in self.batches]
        return np.concatenate([output.ravel() for outputs in found for output in outputs])

    def quality(self, recipe: Recipe | None = None) -> float:
        return sqnr(self.truth, self.outputs(self.build(recipe)))


def bench(symbol: Any, shape: tuple[int, ...] = SHAPE) -> Bench:
    random = np.random.default_rng(1)
    batches = [(random.normal(size=shape).astype(np.float32),) for _ in range(2)]
    return Bench(with_params(symbol, data=shape), batches)


@pytest.mark.parametrize("name", NETS)
def test_int8_is_right_in_every_surrounding(name: str) -> None:
    """Several of these are wrong in MXNet's own quantization; 24 dB is far above any of that."""
    case = bench(NETS[name])
    start = case.space.default()
    assert case.quality(start) > 24
    for key in case.space.choices:
        assert case.quality(case.space.with_float(start, [key])) > 24, f"{key} in FP32"


def test_ops_without_a_sound_kernel_say_why() -> None:
    def reason(net: str, op: str) -> str:
        ops = BACKEND.inspect(BACKEND.load(with_params(NETS[net], data=SHAPE))).ops
        return next(info.reason for info in ops.values() if info.key.name == op)

    assert "grouped convolutions" in reason("grouped", "c3")
    assert "GELU" in reason("gelu", "c1")
    assert "sum pooling" in reason("sum pool", "pool")
    assert "not in MXNet" in reason("transposed", "up")
    assert "no INT8 kernel" in reason("prelu", "leaky")
    assert "inside c1 (Convolution)" in reason("relu", "r")


def test_a_convolution_of_one_dimension_stays_float() -> None:
    symbol = conv(mx.sym.var("data"), "c1", (3,))
    model = BACKEND.load(with_params(symbol, data=(2, 3, 8)))
    (info,) = BACKEND.inspect(model).ops.values()
    assert not info.can_be_low
    assert "no INT8 kernel" in info.reason


def test_layers_are_known_by_the_users_names() -> None:
    case = Bench(cnn(), images())
    names = {key.name for key in case.space.choices}
    assert "net_conv0_fwd" in names
    assert not any("sg_mkldnn" in key.name for key in BACKEND.inspect(case.model).ops)
    keep = TensorRule(dtype=("fp32",))
    space = restrict(BACKEND.inspect(case.model), [Rule("net_residual0_conv.*", keep, keep)])
    built = case.build(space.default())
    floats = {key.name for key, word in built.precisions.items() if word == "fp32"}
    assert not any(key.name.startswith("net_residual0_conv") for key in space.choices)
    assert floats == set()
    inside = [node.name for node in Graph.of(built.symbol).ops if not node.flag("quantized")]
    assert any("conv" in name for name in inside)


def test_what_ops_became_is_told() -> None:
    case = Bench(cnn(), images())
    key = OpKey("net_conv0_fwd", CONV)
    built = case.build(case.space.with_float(case.space.default(), [key]))
    assert built.precisions[key] == "fp32"
    assert set(built.precisions.values()) == {"fp32", "int8"}


@pytest.mark.parametrize("algorithm", abilities.ALGORITHMS)
@pytest.mark.parametrize("granularity", ["per_channel", "per_tensor"])
def test_granularities_and_algorithms(granularity: str, algorithm: str) -> None:
    case = Bench(mlp(), pairs())
    rules = [
        Rule(
            activation=TensorRule(algorithm=(algorithm,)),
            weight=TensorRule(granularity=(granularity,)),
        )
    ]
    space = restrict(BACKEND.inspect(case.model), rules)
    recipe = space.default()
    if abilities.reduced(DENSE, "this") and granularity == "per_channel":
        # This CPU's kernels need 7-bit weights, which only the per-tensor form takes ready-made.
        assert any("not available for 3 op(s)" in note for note in space.notes)
        granularity = "per_tensor"
    assert {config.weight.granularity for config in recipe.ops.values() if config.weight} == {
        granularity
    }
    assert case.quality(recipe) > 20
    names = case.build(recipe).arg_params
    assert any(name.endswith("weight_quantize") for name in names) == (granularity == "per_tensor")


def test_granularities_can_be_mixed() -> None:
    case = Bench(mlp(), pairs())
    start = case.space.default()
    key = OpKey("last", DENSE)
    if abilities.reduced(DENSE, "this"):
        options = [option.weight for option in case.space.choices[key] if option.weight]
        assert {weight.granularity for weight in options} == {"per_tensor"}  # nothing to mix
        return
    whole = next(
        option
        for option in case.space.choices[key]
        if option.weight is not None and option.weight.granularity == "per_tensor"
    )
    built = case.build(start.replace({key: whole}))
    assert "last_weight_quantize" in built.arg_params
    assert "first_weight" in built.arg_params
    assert sqnr(case.truth, case.outputs(built)) > 20


def test_per_tensor_convolutions_are_refused_with_what_can_be_had() -> None:
    model = BACKEND.load(with_params(NETS["plain"], data=SHAPE))
    rule = Rule("c1", weight=TensorRule(granularity=("per_tensor",)), path="op_wise.c1")
    with pytest.raises(ConfigError, match=r"is not available for op c1.*per_channel"):
        restrict(BACKEND.inspect(model), [rule])


def test_dynamic_quantization_is_refused() -> None:
    model = BACKEND.load(with_params(NETS["plain"], data=SHAPE))
    with pytest.raises(ConfigError, match=r"no dynamic quantization.*post_training_static_quant"):
        BACKEND.inspect(model, "dynamic")
    with pytest.raises(CalibrationError):
        BACKEND.build(model, restrict(BACKEND.inspect(model), ()).default(), None)


@pytest.mark.parametrize("target", ["avx2", "vnni"])
def test_targets_decide_the_bits(target: Any) -> None:
    model = BACKEND.load(cnn())
    capability = BACKEND.inspect(model, target=target)
    for info in capability.low():
        choice = info.choices[0]
        if info.key.kind == CONV:
            assert choice.activation.bits == (7 if target == "avx2" else 8)
        elif info.key.kind == DENSE and choice.weight is not None:
            assert choice.weight.bits == (7 if target == "avx2" else 8)
            assert choice.weight.granularity == (
                "per_tensor" if target == "avx2" else "per_channel"
            )
    assert any("reduced range" in note for note in capability.notes) == (target == "avx2")


def test_a_reduced_range_is_right_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities, "saturates", lambda kind: True)
    for name in ("relu", "clip", "depthwise", "sum of signed, relu"):
        case = bench(NETS[name])
        assert case.quality() > 22, name
    assert Bench(mlp(), pairs()).quality() > 20


def test_ranges_fit_their_tensors() -> None:
    positive, signed, nothing = (TensorStats.empty() for _ in range(3))
    positive.update(np.linspace(0, 4, 1000))
    signed.update(np.linspace(-1, 4, 1000))
    nothing.update(np.zeros(10))
    assert tensor_range(positive, "minmax", 8) == (0.0, 4.0)
    assert tensor_range(positive, "minmax", 7) == (0.0, pytest.approx(4 * 255 / 127))
    assert tensor_range(positive, "minmax", 8, signed=True) == (-4.0, 4.0)
    assert tensor_range(signed, "minmax", 7) == (-4.0, 4.0)
    assert tensor_range(nothing, "kl", 8) == (0.0, 1.0)


def test_tiny_ranges_survive() -> None:
    """MXNet writes ranges with six decimals."""
    symbol, args, auxs = with_params(NETS["relu"], data=SHAPE)
    args["c1_weight"] *= 1e-6
    args["c1_bias"] *= 1e-6
    args["c2_bias"] *= 0  # beside it the rest would be nothing
    random = np.random.default_rng(1)
    case = Bench((symbol, args, auxs), [(random.normal(size=SHAPE).astype(np.float32),)])
    assert case.quality() > 24


def test_layers_used_twice_share_one_name() -> None:
    """As Gluon makes them from one pooling block: two ops, one name, one precision."""
    first = pool(relu(conv(mx.sym.var("data"), "c1"), "bend"))
    symbol = conv(pool(relu(conv(first, "c2"), "bend")), "c3")
    case = bench(symbol, (4, 8, 12, 12))
    assert case.quality() > 24
    key = OpKey("pool", "Pooling")
    assert case.quality(case.space.with_float(case.space.default(), [key])) > 24


def test_a_weight_that_is_computed_keeps_its_op_in_float() -> None:
    data = mx.sym.var("data")
    symbol = mx.sym.Convolution(
        conv(data, "c1"), mx.sym.var("kernel") * 2, num_filter=8, kernel=(1, 1), no_bias=True
    )
    model = BACKEND.load(with_params(symbol, data=SHAPE))
    reasons = [info.reason for info in BACKEND.inspect(model).ops.values()]
    assert "its weight is not a constant" in reasons


def test_nan_in_weights_keeps_the_op_in_float() -> None:
    symbol, args, auxs = with_params(NETS["plain"], data=SHAPE)
    broken = args["c1_weight"].asnumpy()
    broken[0, 0, 0, 0] = np.nan
    model = BACKEND.load((symbol, {**args, "c1_weight": mx.nd.array(broken)}, auxs))
    info = BACKEND.inspect(model).ops[OpKey("c1", CONV)]
    assert "'c1_weight' holds NaN" in info.reason


def test_a_quantized_model_is_not_quantized_again() -> None:
    case = Bench(mlp(), pairs())
    again = BACKEND.load(case.build().native)
    capability = BACKEND.inspect(again)
    assert not capability.low()
    assert {info.reason for info in capability.ops.values()} == {"the model is already quantized"}


def test_nan_in_calibration_data_is_told() -> None:
    model = BACKEND.load(mlp())
    batch = pairs(1)[0]
    batch["left"][0, 0] = np.nan
    with pytest.raises(CalibrationError, match="'left' holds NaN"):
        BACKEND.observe(model, [batch], (0,))
    with pytest.raises(CalibrationError, match="yielded no batch"):
        BACKEND.observe(model, [], (0,))


def test_self_test_agrees_with_the_arithmetic() -> None:
    """Whatever the CPU: with the bits that are chosen, the worst case comes out right."""
    for kind in (CONV, DENSE):
        error = max(abilities._error(kind, lowest) for lowest in (0.0, -1.0))
        assert abilities.saturates(kind) == (error > abilities.TOLERANCE)
