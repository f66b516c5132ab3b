"""Mutates files of one kind and opens each: an LpotError or nothing may come out.

    fuzz_driver.py KIND FOLDER SEED COUNT

A process of its own, for a damaged model may take the whole interpreter with it.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import random
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lpot
import onnx_models
import record_files
from lpot.core.errors import LpotError

ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**30,
    1e308,
    -0.0,
    "",
    "x",
    "../../up",
    "\udcff",
    [],
    {},
    [[]],
    {"a": {}},
    "9" * 5000,
)
CHARS = b'\x00\xff{}[]",:0x-9e\n <'


def flipped(raw: bytes, draw: random.Random) -> bytes:
    spoilt = bytearray(raw)
    for _ in range(draw.choice((1, 1, 1, 3, 20))):
        spoilt[draw.randrange(len(spoilt))] ^= 1 << draw.randrange(8)
    return bytes(spoilt)


def cut(raw: bytes, draw: random.Random) -> bytes:
    return raw[: draw.randrange(len(raw))]


def swapped(raw: bytes, draw: random.Random) -> bytes:
    spoilt = bytearray(raw)
    for _ in range(draw.choice((1, 4))):
        spoilt[draw.randrange(len(spoilt))] = draw.choice(CHARS)
    return bytes(spoilt)


def spliced(raw: bytes, draw: random.Random) -> bytes:
    """A piece is doubled, lost, or moved."""
    a, b, c = sorted(draw.randrange(len(raw) + 1) for _ in range(3))
    return draw.choice((raw[:b] + raw[a:], raw[:a] + raw[c:], raw[:a] + raw[b:c] + raw[a:b]))


def rewritten(raw: bytes, draw: random.Random) -> bytes:
    """A value of a JSON file replaced by another, or a key taken away."""
    try:
        value = json.loads(raw)
    except ValueError:
        return flipped(raw, draw)
    places = list(_places(value))
    if not places:
        return json.dumps(draw.choice(ODD)).encode()
    inner, key = draw.choice(places)
    if draw.random() < 0.25:
        del inner[key]
    else:
        inner[key] = draw.choice(ODD)
    return json.dumps(value).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container inside with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys if isinstance(value, dict | list) else ():
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


BYTES = (flipped, cut, swapped, spliced)


def mutated(raw: bytes, draw: random.Random, is_json: bool) -> bytes:
    if is_json and draw.random() < 0.6:
        return rewritten(raw, draw)
    return draw.choice(BYTES)(raw, draw)


# -- the kinds: a maker gives the file and how it is opened ----------------------------------------

Opener = Callable[[], Any]


def _tuned(root: Path) -> lpot.Result:
    model = onnx_models.mlp(layers=2)
    scores = iter([1.0, 0.5, 0.6, 0.7])
    return lpot.tune(
        model,
        onnx_models.feeds(model),
        lambda given: next(scores),
        strategy="random",
        max_trials=3,
        workspace=root / "ws",
        measure_speed=False,
    )


def yaml(root: Path) -> tuple[Path, Opener]:
    from lpot.config.load import load

    path = root / "conf.yaml"
    path.write_text(
        "model: {name: net, framework: onnxrt_qlinearops}\n"
        "quantization:\n  calibration: {sampling_size: 4}\n  op_wise:\n"
        "    'conv.*': {weight: {dtype: [int8]}}\n"
        "tuning:\n  accuracy_criterion: {relative: 0.01}\n  exit_policy: {timeout: 3}\n"
        "evaluation:\n  accuracy:\n    metric: {topk: 1}\n    dataloader:\n      batch_size: 2\n"
        "      dataset: {dummy: {shape: [4, 8], low: 0, high: 1}}\n"
    )
    return path, lambda: load(path)


def onnx(root: Path) -> tuple[Path, Opener]:
    from lpot.backends.onnx import OnnxBackend

    path = root / "model.onnx"
    path.write_bytes(onnx_models.mlp(layers=2).SerializeToString())
    backend = OnnxBackend()
    return path, lambda: backend.inspect(backend.load(path))


def pb(root: Path) -> tuple[Path, Opener]:
    import kill_job

    from lpot.backends.tensorflow import TensorflowBackend

    path = Path(kill_job.tensorflow_model(root))
    backend = TensorflowBackend()
    return path, lambda: backend.inspect(backend.load(path))


def keras(root: Path) -> tuple[Path, Opener]:
    return _keras(root / "net.keras")


def h5(root: Path) -> tuple[Path, Opener]:
    return _keras(root / "net.h5")


def _keras(path: Path) -> tuple[Path, Opener]:
    import keras

    from lpot.backends.tensorflow import TensorflowBackend

    keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)]).save(path)
    backend = TensorflowBackend()
    return path, lambda: backend.inspect(backend.load(path))


def saved_model(root: Path) -> tuple[Path, Opener]:
    import numpy as np
    import tensorflow as tf

    from lpot.backends.tensorflow import TensorflowBackend

    module = tf.Module()
    module.w = tf.Variable(np.ones((4, 2), np.float32))
    spec = tf.TensorSpec((None, 4), tf.float32)
    call = tf.function(lambda x: tf.matmul(x, module.w), input_signature=[spec])
    tf.saved_model.save(module, str(root / "saved"), signatures=call)
    backend = TensorflowBackend()
    return root / "saved" / "saved_model.pb", lambda: backend.inspect(backend.load(root / "saved"))


def matrix(root: Path) -> tuple[Path, Opener]:
    from lpot.config.schema_matrix import load_matrix
    from lpot.jobs.many.board import Board, Outcome
    from lpot.jobs.many.plan import rows
    from lpot.report.matrix import matrix_page, matrix_table

    made = root / "matrix.yaml"
    made.write_text(
        f"workspace: {root}/runs\ngoals: [1%, 2%]\nmodels: [{{name: a, model: a.onnx}}]\n"
    )
    every = rows(load_matrix(made))
    board = Board(str(root / "runs"), every)
    result = _tuned(root).to_json()
    for cell in board.cells:
        board.put(cell, Outcome(json.loads(json.dumps(result, default=str)), seconds=1.5))

    def show() -> None:
        table = Board(str(root / "runs"), every).table()
        matrix_page(table)
        matrix_table(table)

    return root / "runs" / "matrix.json", show


def _torch(root: Path) -> tuple[Path, Any, Any]:
    import torch

    from lpot.backends.torch import TorchBackend
    from lpot.core.recipe import Recipe

    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    backend = TorchBackend()
    model = backend.load(net)
    seen = backend.observe(model, [(torch.randn(4, 8),)], (0,))[0]
    recipe = Recipe({info.key: info.choices[0] for info in backend.inspect(model).low()})
    return backend.save(backend.build(model, recipe, seen), root / "checkpoint"), backend, net


def safetensors(root: Path) -> tuple[Path, Opener]:
    folder, backend, net = _torch(root)
    return folder / "model.safetensors", lambda: backend.restore(folder, net)


def lpot_json(root: Path) -> tuple[Path, Opener]:
    folder, backend, net = _torch(root)
    return folder / "lpot.json", lambda: backend.restore(folder, net)


def configure(root: Path) -> tuple[Path, Opener]:
    folder, backend, net = _torch(root)
    backend.save_weights(folder)
    (folder / "lpot.json").unlink()
    return folder / "best_configure.yaml", lambda: backend.load_checkpoint(folder, net)


def weights(root: Path) -> tuple[Path, Opener]:
    folder, backend, net = _torch(root)
    backend.save_weights(folder)
    (folder / "lpot.json").unlink()
    return folder / "best_model_weights.pt", lambda: backend.load_checkpoint(folder, net)


def card(root: Path) -> tuple[Path, Opener]:
    result = _tuned(root)
    assert result.path is not None
    path = result.path
    return path.with_name(f"{path.name}.card.json"), lambda: lpot.load(path)


def torch_card(root: Path) -> tuple[Path, Opener]:
    folder, _, net = _torch(root)
    return folder.with_name("checkpoint.card.json"), lambda: lpot.load(folder, module=net)


def report(root: Path) -> tuple[Path, Opener]:
    from lpot.jobs.report.read import read_report
    from lpot.report.html import page
    from lpot.report.summary import summary

    result = _tuned(root)
    assert result.workspace is not None
    path = result.workspace / "report.json"

    def show() -> None:
        found = read_report(path)
        page(found)
        summary(found, 10)

    return path, show


def result(root: Path) -> tuple[Path, Opener]:
    found = _tuned(root)
    assert found.workspace is not None
    workspace = found.workspace
    return workspace / "result.json", lambda: lpot.load(workspace)


def history(root: Path) -> tuple[Path, Opener]:
    from lpot.core.history import History
    from lpot.jobs.report.read import read_report
    from lpot.report.html import page

    found = _tuned(root)
    assert found.history is not None
    path = found.history
    fingerprint = History.read(path).fingerprint

    def show() -> None:
        for aside in path.parent.glob("history-*.jsonl"):
            aside.unlink()
        with contextlib.suppress(LpotError):
            page(read_report(path))
        History.open(path, fingerprint)
        assert History.read(path).notes == []

    return path, show


def observations(root: Path) -> tuple[Path, Opener]:
    from lpot.core.store import load_observations

    found = _tuned(root)
    assert found.workspace is not None
    (path,) = found.workspace.glob("observations-*.npz")
    return path, lambda: load_observations(path)


def recipe(root: Path) -> tuple[Path, Opener]:
    """The recipe of a trial, as `recover` takes it from a file."""
    from lpot.core.card import recipe_of
    from lpot.core.checked import read_json

    found = _tuned(root)
    path = root / "recipe.json"
    path.write_text(json.dumps(found.recipe.to_json()))
    return path, lambda: recipe_of({"recipe": read_json(path, "")}, path)


def tfrecord(root: Path) -> tuple[Path, Opener]:
    import numpy as np

    from lpot.data import compose, get_dataset

    path = root / "a.tfrecord"
    image = _png(root).read_bytes()
    example = {"image/encoded": [image], "image/class/label": np.array([3])}
    record_files.write(path, [record_files.serialize(example)] * 3)

    def read() -> None:
        parse = compose({"ParseDecodeImagenet": {}})
        for sample in get_dataset("TFRecordDataset", root=str(path), transform=parse):
            assert sample

    return path, read


def _png(root: Path) -> Path:
    import numpy as np
    from PIL import Image

    path = root / "images" / "a" / "one.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (8, 8, 3), np.uint8)).save(path)
    return path


def image(root: Path) -> tuple[Path, Opener]:
    from lpot.data import get_dataset

    path = _png(root)
    folder = path.parents[1]
    return path, lambda: list(get_dataset("ImageFolder", root=str(folder)))


def jpeg(root: Path) -> tuple[Path, Opener]:
    from PIL import Image

    from lpot.data import get_dataset

    made = _png(root)
    path = made.with_suffix(".jpg")
    Image.open(made).save(path, quality=90)
    made.unlink()
    folder = path.parents[1]
    return path, lambda: list(get_dataset("ImageFolder", root=str(folder)))


def coco(root: Path) -> tuple[Path, Opener]:
    from lpot.data import get_dataset

    made = _png(root)
    (root / "val2017").mkdir()
    shutil.move(made, root / "val2017" / "one.png")
    (root / "annotations").mkdir()
    path = root / "annotations" / "instances_val2017.json"
    mark = {"id": 5, "image_id": 1, "category_id": 2, "bbox": [1, 1, 4, 4], "iscrowd": 0}
    raw = {
        "images": [{"id": 1, "file_name": "one.png", "width": 8, "height": 8}],
        "annotations": [{**mark, "area": 16}],
        "categories": [{"id": 2, "name": "cat"}],
    }
    path.write_text(json.dumps(raw))
    return path, lambda: list(get_dataset("COCORaw", root=str(root)))


def symbol(root: Path) -> tuple[Path, Opener]:
    return _mxnet(root, "net-symbol.json")


def params(root: Path) -> tuple[Path, Opener]:
    return _mxnet(root, "net-0000.params")


def _mxnet(root: Path, name: str) -> tuple[Path, Opener]:
    from backends.mxnet.nets import mlp
    from lpot.backends.mxnet import MxnetBackend

    backend = MxnetBackend()
    backend.save(backend.load(mlp()), root / "net")
    return root / name, lambda: backend.restore(root / "net")


KINDS: dict[str, tuple[Callable[[Path], tuple[Path, Opener]], bool]] = {
    "yaml": (yaml, False),
    "onnx": (onnx, False),
    "pb": (pb, False),
    "saved_model.pb": (saved_model, False),
    "keras": (keras, False),
    "h5": (h5, False),
    "safetensors": (safetensors, False),
    "lpot.json": (lpot_json, True),
    "best_configure.yaml": (configure, False),
    "best_model_weights.pt": (weights, False),
    "card": (card, True),
    "card of a folder": (torch_card, True),
    "report.json": (report, True),
    "result.json": (result, True),
    "history": (history, False),
    "matrix.json": (matrix, True),
    "observations": (observations, False),
    "recipe": (recipe, True),
    "tfrecord": (tfrecord, False),
    "png": (image, False),
    "jpeg": (jpeg, False),
    "COCO json": (coco, True),
    "mxnet symbol": (symbol, True),
    "mxnet params": (params, False),
}


class Warnings(logging.Handler):
    """Counts what the user would have read."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.levelno >= logging.WARNING


def main(kind: str, root: Path, seed: int, count: int) -> dict[str, Any]:
    maker, is_json = KINDS[kind]
    path, opened = maker(root)
    raw, draw = path.read_bytes(), random.Random(seed)
    opened()
    told = Warnings()
    logging.getLogger("lpot").addHandler(told)
    found: dict[str, Any] = {"refused": 0, "opened": 0, "unnamed": [], "failed": []}
    for number in range(count):
        path.write_bytes(mutated(raw, draw, is_json))
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                opened()
            found["opened"] += 1
        except LpotError as error:
            found["refused"] += 1
            if not str(error).strip():
                found["unnamed"].append(number)
        except BaseException:
            lines = traceback.format_exc().splitlines()
            found["failed"].append(f"{number}: " + " | ".join(line.strip() for line in lines[-5:]))
    path.write_bytes(raw)
    opened()
    return {**found, "warnings": told.count}


if __name__ == "__main__":
    os.fsync = lambda handle: None  # type: ignore[assignment]
    logging.getLogger().addHandler(logging.NullHandler())  # nothing on stderr
    warnings.simplefilter("ignore")
    word, place, number, many = sys.argv[1:]
    print(json.dumps(main(word, Path(place), int(number), int(many))))
