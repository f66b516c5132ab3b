"""Every form a model comes in, and what is said of those that can't be served."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mxnet")

import mxnet as mx
from mxnet.gluon import nn

from backends.mxnet.nets import cnn, conv, dense, images, mlp, pairs, relu, with_params
from lpot.backends.mxnet import MxnetBackend
from lpot.core.backend import ModelSpec
from lpot.core.errors import UnsupportedModel

BACKEND = MxnetBackend()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("exported")
    cnn().export(str(place / "net"))
    return place


def outputs(source: Any, batch: Any = None) -> list[np.ndarray]:
    return BACKEND.run(BACKEND.load(source), images(1)[0] if batch is None else batch)


def test_block_files_folder_and_tuple_are_the_same_model(folder: Path) -> None:
    net = cnn()
    truth = net(mx.nd.array(images(1)[0][0])).asnumpy()
    symbol, args, auxs = mx.model.load_checkpoint(str(folder / "net"), 0)
    sources = [net, (symbol, args, auxs), folder, str(folder / "net")]
    sources += [folder / "net-symbol.json", folder / "net-0000.params"]
    for source in sources:
        np.testing.assert_allclose(outputs(source)[0], truth, rtol=1e-4, atol=1e-5)


def test_a_block_that_never_ran_is_traced_by_symbols() -> None:
    net = nn.HybridSequential(prefix="fresh_")
    with net.name_scope():
        net.add(nn.Dense(4, in_units=3, activation="relu"), nn.Dense(2, in_units=4))
    net.initialize()
    batch = np.ones((2, 3), np.float32)
    (found,) = outputs(net, (batch,))
    np.testing.assert_allclose(found, net(mx.nd.array(batch)).asnumpy(), rtol=1e-5)


def test_a_block_without_shapes_is_refused() -> None:
    net = nn.Dense(4)
    net.initialize()
    with pytest.raises(UnsupportedModel, match=r"no value yet.*run it once"):
        BACKEND.load(net)


def test_the_users_parameters_stay_as_they_are() -> None:
    net = cnn()
    before = {name: item.data().asnumpy() for name, item in net.collect_params().items()}
    model = BACKEND.load(net)
    BACKEND.run(model, images(1)[0])
    for name, item in net.collect_params().items():
        np.testing.assert_array_equal(before[name], item.data().asnumpy())
    assert model.native is net


def test_inputs_by_name_in_the_order_of_the_configuration() -> None:
    batch = pairs(1)[0]
    model = BACKEND.load(mlp(), ModelSpec(inputs=("right", "left")))
    assert model.input_names == ("right", "left")
    by_order = BACKEND.run(model, (batch["right"], batch["left"]))
    np.testing.assert_array_equal(by_order[0], BACKEND.run(model, batch)[0])


def test_outputs_can_be_named() -> None:
    model = BACKEND.load(mlp(), ModelSpec(outputs=("last", "bend")))
    last, bend = BACKEND.run(model, pairs(1)[0])
    assert last.shape == (8, 4)
    assert bend.shape == (8, 16)
    with pytest.raises(UnsupportedModel, match=r"no output 'lost', did you mean 'last'"):
        BACKEND.load(mlp(), ModelSpec(outputs=("lost",)))


def test_the_label_of_a_training_head_is_no_input() -> None:
    symbol = mx.sym.SoftmaxOutput(dense(mx.sym.var("data"), "only", 4), name="softmax")
    model = BACKEND.load(with_params(symbol, data=(2, 3)))
    assert model.input_names == ("data",)
    (found,) = BACKEND.run(model, (np.ones((5, 3), np.float32),))
    np.testing.assert_allclose(found.sum(1), np.ones(5), rtol=1e-5)


def test_an_output_that_the_graph_goes_on_with_is_right() -> None:
    """MXNet's default fusions lose the ReLU behind such an output."""
    first = conv(mx.sym.var("data"), "first")
    symbol, args, auxs = with_params(
        mx.sym.Group([first, conv(relu(first, "bend"), "second")]), data=(1, 8, 6, 6)
    )
    batch = np.random.default_rng(0).normal(size=(2, 8, 6, 6)).astype(np.float32)

    def convolve(data: Any, name: str) -> Any:
        weight, bias = args[f"{name}_weight"], args[f"{name}_bias"]
        return mx.nd.Convolution(data, weight, bias, num_filter=8, kernel=(3, 3), pad=(1, 1))

    inner = convolve(mx.nd.array(batch), "first")
    truth = [inner.asnumpy(), convolve(mx.nd.relu(inner), "second").asnumpy()]
    model = BACKEND.load((symbol, args, auxs))
    assert model.output_names == ("first_output", "second_output")
    for found, wanted in zip(BACKEND.run(model, (batch,)), truth, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_dense_on_images_runs_more_than_once() -> None:
    """Without our Flatten MXNet fails at the second run."""
    symbol = dense(conv(mx.sym.var("data"), "first", (1, 1), num_filter=16), "second")
    model = BACKEND.load(with_params(symbol, data=(1, 3, 1, 1)))
    batch = (np.ones((2, 3, 1, 1), np.float32),)
    first = BACKEND.run(model, batch)[0]
    np.testing.assert_array_equal(first, BACKEND.run(model, batch)[0])
    assert {info.key.name for info in BACKEND.inspect(model).ops.values()} == {"first", "second"}


# -- what can't be served --------------------------------------------------------------------------


def test_missing_files_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedModel, match=r"nett-symbol.json: no such file; its folder has net"
    ):
        BACKEND.load(folder / "nett")
    shutil.copy(folder / "net-symbol.json", tmp_path)
    with pytest.raises(UnsupportedModel, match=r"net-0000.params: no such file"):
        BACKEND.load(tmp_path / "net")
    with pytest.raises(
        UnsupportedModel, match=r"expected one file \*-symbol.json, there are: none"
    ):
        BACKEND.load(tmp_path.parent)


def test_parameters_of_several_epochs_are_not_guessed(folder: Path, tmp_path: Path) -> None:
    for name in ("net-symbol.json", "net-0000.params"):
        shutil.copy(folder / name, tmp_path)
    shutil.copy(tmp_path / "net-0000.params", tmp_path / "net-0010.params")
    with pytest.raises(UnsupportedModel, match=r"2 epochs.*give the path"):
        BACKEND.load(tmp_path / "net")
    assert BACKEND.load(tmp_path / "net-0010.params").nbytes


@pytest.mark.parametrize("name", ["net-symbol.json", "net-0000.params"])
@pytest.mark.parametrize("content", [b"", b"{}", b"\x00\xff" * 50, None])
def test_damaged_files_are_refused(
    folder: Path, tmp_path: Path, name: str, content: bytes | None
) -> None:
    for path in folder.iterdir():
        shutil.copy(path, tmp_path)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(UnsupportedModel, match="net-"):
        BACKEND.load(tmp_path)


def test_parameters_that_do_not_fit_are_named() -> None:
    symbol, args, auxs = mlp()
    without = {name: value for name, value in args.items() if name != "first_weight"}
    with pytest.raises(UnsupportedModel, match=r"do not fit the symbol.*'first_weight'"):
        BACKEND.load((symbol, without, auxs))
    with pytest.raises(UnsupportedModel, match="no parameters were given"):
        BACKEND.load((symbol, {}, {}))
    wrong = {**args, "first_weight": mx.nd.zeros((17, 32))}
    with pytest.raises(UnsupportedModel, match=r"'first_weight' is \[17, 32\].*needs \[16, \?\]"):
        BACKEND.load((symbol, wrong, auxs))


def test_missing_states_of_a_batch_norm_are_named() -> None:
    symbol = mx.sym.BatchNorm(conv(mx.sym.var("data"), "first"), name="norm")
    _, args, _ = with_params(symbol, data=(1, 3, 4, 4))
    with pytest.raises(UnsupportedModel, match="'norm_moving_mean'"):
        BACKEND.load((symbol, args, {}))


def test_other_things_are_refused_by_what_they_are() -> None:
    symbol, args, auxs = mlp()
    with pytest.raises(UnsupportedModel, match="Symbol was given without its parameters"):
        BACKEND.load(symbol)
    with pytest.raises(UnsupportedModel, match="make it a HybridBlock"):
        BACKEND.load(mx.gluon.Block())
    with pytest.raises(UnsupportedModel, match="a tuple of"):
        BACKEND.load((args, symbol, auxs))
    with pytest.raises(UnsupportedModel, match=r"was given a builtins\.int"):
        BACKEND.load(3)


def test_two_variables_of_one_name_are_refused() -> None:
    data = mx.sym.var("data")
    symbol = dense(data, "same") + dense(data, "same")
    with pytest.raises(UnsupportedModel, match="name of two different variables"):
        BACKEND.load(with_params(symbol, data=(1, 3)))
