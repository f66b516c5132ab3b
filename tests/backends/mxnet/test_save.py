"""MXNet's own two files and the card: what is written is what is read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mxnet")

import mxnet as mx

from backends.mxnet.nets import cnn, conv, images, mlp, pairs, relu, with_params
from lpot.backends.mxnet import MxnetBackend, abilities
from lpot.backends.mxnet.model import MxnetModel
from lpot.core.backend import Target
from lpot.core.errors import UnsupportedModel, WorkspaceError
from lpot.core.files.card import card_path
from lpot.core.space import restrict
from snapshots import snapshots

BACKEND = MxnetBackend()


@pytest.fixture(scope="module")
def built() -> MxnetModel:
    model = BACKEND.load(mlp())
    observations = BACKEND.observe(model, pairs(), (0,))[0]
    return BACKEND.build(model, restrict(BACKEND.inspect(model), ()).default(), observations)


@pytest.mark.parametrize("name", ["small", "small-symbol.json", ""])
def test_prefix_file_and_folder_are_accepted(built: MxnetModel, tmp_path: Path, name: str) -> None:
    path = BACKEND.save(built, tmp_path / name)
    stem = name.removesuffix("-symbol.json") or "best_model"
    assert path == tmp_path / f"{stem}-symbol.json"
    assert {item.name for item in tmp_path.iterdir()} == {
        f"{stem}-symbol.json",
        f"{stem}-0000.params",
        f"{stem}-symbol.json.card.json",
    }
    for place in (path, tmp_path / stem, tmp_path):
        restored = BACKEND.restore(place)
        assert restored.recipe == built.recipe
        for one, other in zip(
            BACKEND.run(built, pairs(1)[0]), BACKEND.run(restored, pairs(1)[0]), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_mxnet_itself_reads_what_was_saved(built: MxnetModel, tmp_path: Path) -> None:
    BACKEND.save(built, tmp_path / "small")
    symbol, args, auxs = mx.model.load_checkpoint(str(tmp_path / "small"), 0)
    feeds = {name: mx.nd.array(value) for name, value in pairs(1)[0].items()}
    executor = symbol.bind(mx.cpu(), {**args, **feeds}, aux_states=auxs, grad_req="null")
    (found,) = executor.forward(is_train=False)
    np.testing.assert_array_equal(found.asnumpy(), BACKEND.run(built, pairs(1)[0])[0])


def test_a_quantized_block_is_called_like_the_block_given() -> None:
    net = cnn()
    model = BACKEND.load(net)
    observations = BACKEND.observe(model, images(), (0,))[0]
    low = BACKEND.build(model, restrict(BACKEND.inspect(model), ()).default(), observations)
    batch = images(1)[0][0]
    assert isinstance(low.native, mx.gluon.SymbolBlock)
    found = low.native(mx.nd.array(batch)).asnumpy()
    np.testing.assert_allclose(found, BACKEND.run(low, (batch,))[0], rtol=1e-5, atol=1e-6)
    assert not np.array_equal(found, net(mx.nd.array(batch)).asnumpy())


def test_parameters_of_another_model_are_noticed(built: MxnetModel, tmp_path: Path) -> None:
    path = BACKEND.save(built, tmp_path / "small")
    params = tmp_path / "small-0000.params"
    params.write_bytes(params.read_bytes()[:-1] + b"\x01")
    with pytest.raises(UnsupportedModel, match="not the parameters"):
        BACKEND.restore(path)


def test_the_card_tells_how_it_was_made(built: MxnetModel, tmp_path: Path) -> None:
    card = json.loads(card_path(BACKEND.save(built, tmp_path / "small")).read_text())
    assert card["framework"] == "mxnet"
    assert card["versions"] == {"mxnet": mx.__version__}
    assert card["ends"]["inputs"] == ["left", "right"]


def test_a_place_that_can_not_be_written_is_named(built: MxnetModel, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(WorkspaceError, match="can't write the model"):
        BACKEND.save(built, blocked / "small")


def test_one_whole_model_at_every_moment(
    built: MxnetModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at any moment of a save: the symbol and the parameters that are read are a pair."""
    model = BACKEND.load(mlp())
    observations = BACKEND.observe(model, pairs(), (0,))[0]
    recipe = restrict(BACKEND.inspect(model), ()).default()
    other = BACKEND.build(model, recipe.with_float(list(recipe.ops)[:1]), observations)
    home = tmp_path / "home"
    path = BACKEND.save(built, home / "small")
    truth = {m.recipe.digest: BACKEND.run(m, pairs(1)[0])[0] for m in (built, other) if m.recipe}
    found = []
    for copy in snapshots(home, lambda: BACKEND.save(other, home / "small"), monkeypatch, tmp_path):
        again = BACKEND.restore(copy / path.name)
        assert again.recipe is not None
        output = BACKEND.run(again, pairs(1)[0])[0]
        np.testing.assert_array_equal(output, truth[again.recipe.digest])
        found.append(again.recipe == other.recipe)
        # The rerun of a run that was killed here saves over what it finds.
        BACKEND.save(other, copy / "small")
        assert BACKEND.restore(copy / path.name).recipe == other.recipe
        assert len(list(copy.glob("small*"))) == 3
    assert found == sorted(found) and {*found} == {False, True}


@pytest.mark.parametrize(("target", "told"), [("vnni", "2 Convolution op(s)"), ("avx2", "")])
@pytest.mark.parametrize("loss", [0.0, 0.5])
def test_where_sums_overflow_it_is_told(
    target: Target,
    told: str,
    loss: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The depthwise convolution in the middle sums in 32 bits and is none of them."""
    monkeypatch.setattr(abilities, "worst_error", lambda kind: loss)
    first = relu(conv(mx.sym.var("data"), "first"), "bend")
    deep = relu(conv(first, "deep", num_group=8, no_bias=True), "bend2")
    model = BACKEND.load(with_params(conv(deep, "last"), data=(1, 1, 8, 8)))
    observations = BACKEND.observe(model, images(), (0,))[0]
    recipe = restrict(BACKEND.inspect(model, target=target), ()).default()
    assert len(recipe.low_ops) == 3
    path = BACKEND.save(BACKEND.build(model, recipe, observations), tmp_path / "small")
    BACKEND.restore(path)
    assert ("loses 50%" in caplog.text) is bool(told and loss)
    assert (told in caplog.text) is bool(loss or not told)
    assert bool(BACKEND.overflow(model, recipe)) is bool(told and loss)  # as `recover` asks
