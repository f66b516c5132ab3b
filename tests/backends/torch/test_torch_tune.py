"""Faults and forms as a user meets them: through `lpot.tune`, from loader to exported file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import lpot
from backends.torch import torch_nets as nets
from backends.torch.test_torch_export import run_onnx
from backends.torch.test_torch_faults import digest
from backends.torch.test_torch_train import digits, train
from lpot.utils.pytorch import load

LABELS = torch.zeros(4, dtype=torch.long)


def tuned(module: nn.Module, calib: Any, evaluate: Any, folder: Path, **options: Any) -> Any:
    given = {"strategy": "basic", "measure_speed": False, "workspace": folder, **options}
    return lpot.tune(module, calib, evaluate, 0.01, **given)


# -- loaders of every form ------------------------------------------------------------------------


def forms(ids: torch.Tensor) -> dict[str, Any]:
    transformers = pytest.importorskip("transformers")
    mask = torch.ones_like(ids)
    both = {"input_ids": ids, "attention_mask": mask}
    return {
        "tensor": ids,
        "tuple": (ids,),
        "pair": (ids, LABELS),
        "list": [ids, LABELS],
        "dict": both,
        "dict with labels": {**both, "labels": LABELS},
        "pair of dict and labels": (both, LABELS),
        "encoding": transformers.BatchEncoding(both),
        "encoding with labels": transformers.BatchEncoding({**both, "labels": LABELS}),
        "arrays": {name: value.numpy() for name, value in both.items()},
    }


FORMS = (
    "tensor",
    "tuple",
    "pair",
    "list",
    "dict",
    "dict with labels",
    "pair of dict and labels",
    "encoding",
    "encoding with labels",
    "arrays",
)


@pytest.mark.parametrize("name", FORMS)
def test_loaders_of_every_form_calibrate(name: str, tmp_path: Path) -> None:
    module, batches = nets.transformers_model("bert")
    ids = batches[0]["input_ids"]
    ids = ids.repeat(4, 1)[:4]
    result = tuned(module, [forms(ids)[name]], lambda model: 1.0, tmp_path)
    assert result.met
    assert not result.float_ops


# -- models and functions that do what they should not --------------------------------------------


def test_nothing_to_quantize_is_said_and_flagged(tmp_path: Path) -> None:
    module = nn.Sequential(nn.LayerNorm(4), nn.GELU())
    result = tuned(module, [torch.ones(2, 4)], lambda model: 1.0, tmp_path)
    assert result.met is True
    assert any("no op of this model can be quantized" in note for note in result.notes)
    x = torch.randn(3, 4)
    assert torch.equal(result.model.native(x), module(x))


@pytest.mark.parametrize("training", [True, False])
def test_eval_func_may_train_and_change_what_it_is_lent(training: bool, tmp_path: Path) -> None:
    module = nets.seeded(nets.Cnn()).train(training)
    before = digest(module)
    inputs = nets.images()[0]

    def evaluate(model: nn.Module) -> float:
        model.train()
        model(*inputs)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.5)
        return 1.0

    result = tuned(module, [(x, torch.zeros(len(x))) for (x,) in nets.images()], evaluate, tmp_path)
    assert digest(module) == before
    clean = tuned(
        module,
        [(x, torch.zeros(len(x))) for (x,) in nets.images()],
        lambda model: 1.0,
        tmp_path / "clean",
    )
    one, other = (found.model(*inputs)[0] for found in (result, clean))
    np.testing.assert_array_equal(one, other)


def test_a_half_precision_model_is_tuned(tmp_path: Path) -> None:
    module = nets.seeded(nets.Cnn()).half()
    calib = [(x, torch.zeros(len(x))) for (x,) in nets.images()]
    result = tuned(module, calib, lambda model: 1.0, tmp_path)
    assert result.met
    assert next(module.parameters()).dtype == torch.float16


# -- exports of a tuned model ---------------------------------------------------------------------


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.fc = nn.Linear(32 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        return self.fc(torch.relu(self.second(x)).flatten(1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_the_exported_file_agrees_on_the_evaluation_set(ending: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    x, y = digits()
    module = Small()
    train(module, x[:1200], y[:1200], 3, 3e-3)
    test_x, test_y = x[1200:], y[1200:]

    def evaluate(model: Any) -> float:
        with torch.no_grad():
            return float((model(test_x).argmax(1) == test_y).float().mean())

    calib = [(x[i : i + 50], y[i : i + 50]) for i in range(0, 200, 50)]
    result = tuned(module.eval(), calib, evaluate, tmp_path / "space")
    assert result.met
    path = result.model.export(tmp_path / f"int8.{ending}")
    if ending == "onnx":
        outputs = run_onnx(path, (test_x,))[0]
    else:
        with torch.no_grad():
            outputs = torch.export.load(str(path)).module()(test_x).numpy()
    mine = result.model(test_x)[0]
    assert np.mean(outputs.argmax(1) == mine.argmax(1)) > 0.99
    assert np.mean(outputs.argmax(1) == test_y.numpy()) == pytest.approx(result.accuracy, abs=0.006)


def test_everything_inside_inference_mode(tmp_path: Path) -> None:
    """Tensors made there do not count their changes."""
    with torch.inference_mode():
        net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
        data = [torch.randn(4, 8) for _ in range(3)]
        result = lpot.tune(net, data, lambda model: 1.0, workspace=tmp_path, measure_speed=False)
        assert result.met
        loaded = load(result.path, net)
        torch.testing.assert_close(loaded(data[0]), result.model.native(data[0]))


def test_without_an_evaluation_the_distance_from_fp32_is_told(tmp_path: Path) -> None:

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    data = [torch.randn(16, 8) for _ in range(3)]
    result = lpot.tune(module.eval(), data, workspace=tmp_path / "near", measure_speed=False)
    (told,) = [note for note in result.notes if "root mean square" in note]
    assert "far from FP32" not in told and "off by" in told
    with torch.no_grad():
        # Two large values cancel out, and what is left of them is lost in rounding.
        module[2].weight[:] = torch.tensor([900.0, -900.0] * 4) + module[2].weight
        module[0].weight[1::2] = module[0].weight[0::2]
        module[0].bias[1::2] = module[0].bias[0::2] + 1e-4
    result = lpot.tune(module, data, workspace=tmp_path / "far", measure_speed=False)
    assert any(note.startswith("far from FP32") for note in result.notes), result.notes
