"""Killed at any moment while a model is replaced: one whole model is there, the old or the new."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
import onnx_models
from lpot.core.files.card import is_whole, read_card
from lpot.core.model import Model
from snapshots import snapshots

WIDTH = 8  # of the inputs


def inputs() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((4, WIDTH)).astype(np.float32)


def onnx_net() -> Any:
    pytest.importorskip("onnxruntime")
    return onnx_models.mlp(layers=3, width=32)


def torch_net() -> Any:
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    torch.manual_seed(1)
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)]
    return torch.nn.Sequential(*layers).eval()


def tensorflow_net() -> Any:
    tf = pytest.importorskip("tensorflow")
    draw = np.random.default_rng(3)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, WIDTH), name="x")
        for _ in range(2):
            weight = draw.standard_normal((WIDTH, WIDTH)).astype(np.float32)
            bias = np.zeros(WIDTH, np.float32)
            x = tf.nn.relu(tf.compat.v1.nn.bias_add(tf.matmul(x, weight), bias))
        tf.identity(x, name="y")
        return graph.as_graph_def()


# framework, what is saved, as what
FORMS = {
    "onnx": (onnx_net, "model.onnx"),
    "onnx with data": (onnx_net, "model.onnx"),
    "torch": (torch_net, "checkpoint"),
    "pb": (tensorflow_net, "model.pb"),
    "saved model": (tensorflow_net, "model"),
}


def two(form: str) -> tuple[Model, Model]:
    """The same model under two recipes."""
    from lpot.backends import detect, get_backend

    net = FORMS[form][0]()
    backend: Any = get_backend(detect(net))
    model = backend.load(net)
    names = model.input_names
    batch: Any = (inputs(),) if names is None else {names[0]: inputs()}
    seen = backend.observe(model, [batch], (0,))[0]
    choices = {info.key: info.choices[0] for info in backend.inspect(model).low()}
    whole = lpot.core.recipe.Recipe(choices)
    first = backend.build(model, whole, seen)
    heavy = [key for key, config in whole.ops.items() if config.weight is not None]
    second = backend.build(model, whole.with_float(heavy[:1]), seen)
    for number, one in enumerate((first, second)):
        one.met = bool(number)
        if form == "saved model":
            one.form = "saved_model"
    return first, second


def outputs(model: Model) -> np.ndarray:
    names = model.input_names
    batch: Any = (inputs(),) if names is None else {names[0]: inputs()}
    return np.asarray(model.backend.run(model, batch)[0])


@pytest.mark.parametrize("form", FORMS)
def test_one_whole_model_at_every_moment(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "onnx with data":
        monkeypatch.setattr("lpot.backends.onnx.save.EMBED_LIMIT", 0)
    first, second = two(form)
    home = tmp_path / "home"
    home.mkdir()
    path = home / FORMS[form][1]
    truth = {model.recipe.digest: outputs(model) for model in (first, second) if model.recipe}
    assert len(truth) == 2
    assert not np.array_equal(*truth.values())
    first.save(path)
    module = torch_net() if form == "torch" else None
    found = []
    for copy in snapshots(home, lambda: second.save(path), monkeypatch, tmp_path):
        again = lpot.load(copy / path.name, module=module)
        assert again.recipe is not None
        assert again.met is (again.recipe == second.recipe)
        np.testing.assert_array_equal(outputs(again), truth[again.recipe.digest])
        found.append(again.recipe == second.recipe)
    # First the old one, then the new one, and never back.
    assert found == sorted(found) and {*found} == {False, True}
    left = {item.name for item in home.rglob("*") if item.name.startswith(".")}
    assert left == set()
    assert is_whole(path, read_card(path))
    pieces = [item.name for item in home.iterdir()]
    assert len(pieces) == (3 if form == "onnx with data" else 2), pieces


@pytest.mark.parametrize("form", FORMS)
def test_every_piece_is_hashed(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if form == "onnx with data":
        monkeypatch.setattr("lpot.backends.onnx.save.EMBED_LIMIT", 0)
    first, _ = two(form)
    path = tmp_path / FORMS[form][1]
    first.save(path)
    card = read_card(path)
    folder = path if path.is_dir() else path.parent
    assert card["pieces"]
    for name in card["pieces"]:
        file = folder / name
        whole = file.read_bytes()
        assert is_whole(path, card)
        for damage in (whole[:-1], whole[: len(whole) // 2], b""):
            file.write_bytes(damage)
            assert not is_whole(path, card), name
        file.unlink()
        assert not is_whole(path, card), name
        file.write_bytes(whole)


def test_files_of_the_user_in_a_models_folder_stay(tmp_path: Path) -> None:
    first, second = two("torch")
    path = tmp_path / "mine"
    path.mkdir()
    (path / "notes.txt").write_text("mine")
    (path / "data").mkdir()
    for model in (first, second):
        model.save(path)
    assert (path / "notes.txt").read_text() == "mine"
    assert (path / "data").is_dir()
    assert is_whole(path, read_card(path))
    shutil.rmtree(path / "data")
    assert is_whole(path, read_card(path))


def test_a_damaged_checkpoint_is_written_again(tmp_path: Path) -> None:
    """Each file of PyTorch's folder, truncated: the rerun notices, and evaluates nothing."""
    net = torch_net()
    calls: list[Any] = []

    def judge(model: Any) -> float:
        calls.append(model)
        return 1.0

    def tune() -> Any:
        options: dict[str, Any] = {"workspace": tmp_path, "measure_speed": False}
        return lpot.tune(net, [(inputs(),)], judge, trust_history=True, **options)

    result = tune()
    good = {file.name: file.read_bytes() for file in result.path.iterdir()}
    for name, raw in good.items():
        calls.clear()
        (result.path / name).write_bytes(raw[: len(raw) // 2])
        again = tune()
        assert calls == []
        assert lpot.load(again.path, module=torch_net()).recipe == result.recipe
        assert is_whole(again.path, read_card(again.path))
