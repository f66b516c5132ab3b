"""Exported models compute what the torch model computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default, made
from lpot.backends.torch.files.export import check_opens
from lpot.core.backend import ModelSpec
from lpot.core.errors import ConfigError, DataError, UnsupportedModel
from lpot.core.numerics.rounding import sqnr
from zoo.torch_layers import CASES

# The quick ones; all the others are written and read in the same way.
CALLS = ("same padding", "weight standardization", "attention in slices", "LoRA", "einsum")


def built_from(name: str, approach: Any = "static") -> tuple[Any, Any, Any]:
    model, batches, observations = made(name)
    return model, BACKEND.build(model, default(model, approach), observations), batches


def _values(inputs: Any) -> list[Any]:
    return list(inputs.values() if isinstance(inputs, dict) else inputs)


def run_onnx(path: Path, inputs: Any) -> list[np.ndarray]:
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    values = _values(inputs)
    names = [item.name for item in session.get_inputs()]
    return session.run(None, {n: v.numpy() for n, v in zip(names, values, strict=True)})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn", "bert", "recurrent"])
def test_onnx_agrees_with_torch(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    onnx = pytest.importorskip("onnx")
    model, built, batches = built_from(name)
    path = built.export(tmp_path / "int8.onnx")
    kinds = [node.op_type for node in onnx.load(path).graph.node]
    assert "DequantizeLinear" in kinds
    assert "QuantizeLinear" in kinds
    truth, mine = BACKEND.run(model, batches[0])[0], BACKEND.run(built, batches[0])[0]
    theirs = run_onnx(path, batches[0])[0]
    assert sqnr(truth, theirs) > min(sqnr(truth, mine) - 6, 25)
    # Weights lie in the file as int8, and any batch is taken.
    for tensor in onnx.load(path).graph.initializer:
        assert tensor.data_type != onnx.TensorProto.FLOAT or len(tensor.dims) < 2 or name != "cnn"
    many = [torch.cat([value] * 3) for value in _values(batches[0])]
    assert len(run_onnx(path, many)[0]) == 3 * len(truth)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_a_dynamic_model_is_exported_as_it_was_tuned(suffix: str, tmp_path: Path) -> None:
    """Not with rounded weights alone: its inputs are rounded by the range of each batch."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).eval()
    batches = [(torch.randn(8, 64) * torch.tensor([1.0, 3.0, 0.2, 5.0] * 16),) for _ in range(2)]
    model = BACKEND.load(net, ModelSpec())
    built = BACKEND.build(model, default(model, "dynamic"), None)
    path = built.export(tmp_path / f"int8{suffix}", batches[0])
    mine = BACKEND.run(built, batches[1])[0]
    if suffix == ".onnx":
        pytest.importorskip("onnxscript")
        theirs = run_onnx(path, list(batches[1]))[0]
    else:
        with torch.no_grad():
            theirs = torch.export.load(str(path)).module()(*batches[1]).numpy()
    assert sqnr(BACKEND.run(model, batches[1])[0], mine) < 60  # it does round
    assert sqnr(mine, theirs) > 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_pt2_agrees_with_torch(tmp_path: Path) -> None:
    model, built, batches = built_from("cnn")
    path = built.export(tmp_path / "int8.pt2")
    again = torch.export.load(str(path)).module()
    truth, mine = BACKEND.run(model, batches[0])[0], BACKEND.run(built, batches[0])[0]
    with torch.no_grad():
        theirs = again(*batches[0]).numpy()
    assert sqnr(truth, theirs) > sqnr(truth, mine) - 6


@pytest.mark.slow
def test_the_model_itself_is_not_changed_by_an_export(tmp_path: Path) -> None:
    _, built, batches = built_from("cnn")
    before = built.fingerprint(), BACKEND.run(built, batches[0])[0]
    built.export(tmp_path / "int8.pt2")
    built.__dict__.pop("_fingerprint", None)
    assert built.fingerprint() == before[0]
    np.testing.assert_array_equal(BACKEND.run(built, batches[0])[0], before[1])


def test_what_is_exported_computes_the_same() -> None:
    """The spelled-out modules themselves, without the exporters, which take long to import."""
    from lpot.backends.torch.files.export import Pt2Speller, spelled_out

    for name in ("cnn", "recurrent", "encoder", "shapes"):
        model, built, batches = built_from(name)
        with torch.no_grad():
            found = spelled_out(built.native, Pt2Speller())(*batches[0]).numpy()
        truth, mine = BACKEND.run(model, batches[0])[0], BACKEND.run(built, batches[0])[0]
        assert sqnr(truth, found) > min(sqnr(truth, mine) - 6, 25), name


def test_unknown_endings_and_missing_inputs_are_said(tmp_path: Path) -> None:
    model = BACKEND.load(nets.seeded(nets.Cnn()))
    with pytest.raises(DataError, match="one batch"):
        model.export(tmp_path / "x.onnx")
    with pytest.raises(ConfigError, match=r"\.onnx or \.pt2"):
        model.export(tmp_path / "x.tflite", nets.images()[0])


class Flagged(torch.nn.Module):
    """Arguments that are no tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.fc = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 4)

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, parts: Any, twice: bool = False
    ) -> torch.Tensor:
        y = self.fc((self.embed(ids) * mask.unsqueeze(-1)).sum(1)) + parts[0] + parts[1]
        return 2 * y if twice else y


def flagged() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = BACKEND.load(Flagged().eval())
    ones = torch.ones(1, 5, dtype=torch.long)
    parts = [torch.randn(1, 4), torch.randn(1, 4)]
    batches = [{"ids": torch.randint(0, 20, (1, 5)), "mask": ones, "parts": parts, "twice": True}]
    observations = BACKEND.observe(model, batches, (0,))[0]
    return BACKEND.build(model, default(model), observations), batches


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_flags_and_lists_go_in_and_axes_have_names(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    ort = pytest.importorskip("onnxruntime")
    built, batches = flagged()
    path = built.export(tmp_path / "int8.onnx", batches[0])
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    shapes = [item.shape for item in session.get_inputs()]
    assert shapes == [["batch", "sequence"]] * 2 + [["batch", 4]] * 2
    assert session.get_outputs()[0].shape == ["batch", 4]
    ids, mask = np.ones((3, 7), np.int64), np.ones((3, 7), np.int64)
    more = {item.name: np.ones((3, 4), np.float32) for item in session.get_inputs()[2:]}
    assert session.run(None, {"ids": ids, "mask": mask, **more})[0].shape == (3, 4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_torch_says_is_told_in_full_and_plain(tmp_path: Path) -> None:
    class Branch(nets.Cnn):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x if float(x.sum()) > 0 else -x)

    pytest.importorskip("onnxscript")
    model = BACKEND.load(nets.seeded(Branch()))
    with pytest.raises(UnsupportedModel, match=r"data-dependent") as caught:
        model.export(tmp_path / "x.onnx", nets.images()[0])
    assert "\x1b" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_saved_model_knows_what_its_inputs_look_like(tmp_path: Path) -> None:
    from lpot.backends.torch.data import drawn

    _, built, batches = built_from("cnn")
    again = BACKEND.restore(built.save(tmp_path / "saved"), nets.Cnn())
    made = drawn(again.example)
    assert isinstance(made, tuple) and made[0].shape == batches[0][0].shape
    assert np.isfinite(BACKEND.run(again, made)[0]).all()
    named = drawn([["ids", "int64", [2, 3]], ["attention_mask", "int64", [2, 3]]])
    assert isinstance(named, dict) and not named["ids"].any() and named["attention_mask"].all()
    assert BACKEND.restore(again.save(tmp_path / "more"), nets.Cnn()).example == again.example


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_command_writes_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from lpot.cli import cli

    pytest.importorskip("onnxscript")
    _, built, batches = built_from("cnn")
    folder = built.save(tmp_path / "saved")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    target = tmp_path / "int8.onnx"
    words = ["export", str(folder), str(target), "--module", "backends.torch.torch_nets:Cnn"]
    done = CliRunner().invoke(cli, words)
    assert target.exists(), done.output
    truth = BACKEND.run(built, batches[0])[0]
    assert sqnr(truth, run_onnx(target, batches[0])[0]) > 25


class ManyNames(nn.Module):
    """A shared activation, a layer with two names, an embedding that stands for itself."""

    def __init__(self) -> None:
        super().__init__()
        act = nn.SiLU()
        self.table = nn.Embedding(8, 4)
        self.one, self.two = (
            nn.Sequential(nn.Linear(4, 8), act),
            nn.Sequential(nn.Linear(8, 8), act),
        )
        self.also = self.two[0]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.also(self.two(self.one(self.table(ids))))
        return made


class Asking(nn.Module):
    """A forward that reads attributes of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 4, stride=2, padding=1), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x.to(self.conv.weight.dtype))[..., : x.shape[-1] // self.conv.stride[0]]
        scale = 1.0 if self.head.bias is not None else 2.0
        made: torch.Tensor = self.head(torch.relu(y).mean((2, 3))) * scale
        return made.reshape(-1, self.head.out_features) + self.head.weight.shape[0]


class Narrow(nn.Module):
    """Half of it in bfloat16, by autocast and by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)
        self.cast = nn.Linear(8, 8, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = torch.relu(self.conv(x))
        y = self.cast(y.float().mean((2, 3)).bfloat16())
        made: torch.Tensor = self.head(torch.relu(y).float())
        return made


NETS: Any = {
    "many names": (ManyNames, lambda: torch.randint(0, 8, (4, 5))),
    "attributes are read": (Asking, lambda: torch.randn(4, 3, 8, 8)),
    "bfloat16 inside": (Narrow, lambda: torch.randn(4, 3, 8, 8)),
    **{name: (CASES[name][0], lambda n=name: torch.randn(CASES[n][1])) for name in CALLS},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NETS)
def test_whatever_torch_exports_is_exported_in_int8(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    make, draw = NETS[name]
    module, x = make().eval(), draw()
    model = BACKEND.load(module, ModelSpec(sample=lambda: (x, torch.zeros(len(x)))))
    built = BACKEND.build(model, default(model), BACKEND.observe(model, [(x,)], (0,))[0])
    assert built.is_quantized
    with torch.no_grad():
        truth = module(x).float().numpy()
    path = built.export(tmp_path / "net.onnx")
    assert sqnr(truth, run_onnx(path, (x,))[0]) > 20
    with torch.no_grad():
        loaded = torch.export.load(str(built.export(tmp_path / "net.pt2"))).module()
        assert sqnr(truth, loaded(x).float().numpy()) > 20


def test_a_file_that_does_not_open_is_no_export(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "net.onnx"
    path.write_bytes(b"no graph at all")
    with pytest.raises(UnsupportedModel, match=r"net.onnx can't be opened by ONNX Runtime"):
        check_opens(path)
    assert not path.exists()
