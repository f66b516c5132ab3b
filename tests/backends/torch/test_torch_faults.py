"""Wrong inputs are refused with what to do about it; the user's module is never changed."""

from __future__ import annotations

import hashlib
import logging
from collections import UserDict
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default, made
from lpot.core.backend import ModelSpec
from lpot.core.errors import (
    CalibrationError,
    DataError,
    UnsupportedModel,
    UnsupportedOp,
)
from lpot.core.recipe import OpKey, Recipe


def digest(module: nn.Module) -> str:
    found = hashlib.sha256(repr(module).encode())
    for name, tensor in sorted(module.state_dict().items()):
        found.update(name.encode() + tensor.detach().numpy().tobytes())
    for name, part in module.named_modules():
        hooks = len(part._forward_hooks) + len(part._forward_pre_hooks)
        found.update(f"{name} {part.training} {hooks} {sorted(part.__dict__)}".encode())
    return found.hexdigest()


@pytest.mark.parametrize("training", [True, False])
def test_the_users_module_is_never_changed(training: bool) -> None:
    module = nets.seeded(nets.Cnn()).train(training)
    before = digest(module)
    model = BACKEND.load(module)
    observations = BACKEND.observe(model, nets.images(), (0,))[0]
    recipe = default(model)
    built = BACKEND.build(model, recipe, observations)
    BACKEND.run(built, nets.images()[0])
    BACKEND.rank(model, recipe, observations)
    assert digest(module) == before


def test_an_eval_func_that_trains_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    """Train mode moves batch norm's averages; an optimizer moves weights. Neither must stay."""
    module = nets.seeded(nets.Cnn())
    model = BACKEND.load(module)
    inputs = nets.images()[0]
    observations = BACKEND.observe(model, nets.images(), (0,))[0]
    recipe = default(model).with_float(list(default(model).ops)[:4])
    truth = BACKEND.run(BACKEND.build(model, recipe, observations), inputs)
    lent = BACKEND.build(model, recipe, observations).native
    lent.train()
    lent(*inputs)
    with torch.no_grad():
        for parameter in lent.parameters():
            parameter.add_(1.0)
    with caplog.at_level(logging.WARNING):
        again = BACKEND.run(BACKEND.build(model, recipe, observations), inputs)
    assert any("they were restored" in record.message for record in caplog.records)
    for one, other in zip(truth, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_train_mode_left_behind_is_undone() -> None:
    model = BACKEND.load(nets.seeded(nets.Cnn()))
    inputs = nets.images()[0]
    truth = BACKEND.run(model, inputs)
    model.native.train()
    np.testing.assert_array_equal(truth[0], BACKEND.run(model, inputs)[0])


def test_gradients_can_be_asked_for() -> None:
    model, batches, observations = made("cnn")
    recipe = default(model).with_float([OpKey("fc", "Linear")])
    built = BACKEND.build(model, recipe, observations)
    built.native(*batches[0]).sum().backward()
    assert built.native.fc.weight.grad is not None


# -- batches of every form -----------------------------------------------------------------------


def test_batches_of_every_form_are_read() -> None:
    module, batches = nets.transformers_model("bert")
    model = BACKEND.load(module)
    ids = batches[0]["input_ids"]
    forms: list[Any] = [
        (ids,),
        (ids.numpy(),),
        {"input_ids": ids},
        UserDict({"input_ids": ids}),
        {"input_ids": ids.tolist()},
    ]
    truth = BACKEND.run(model, forms[0])
    for form in forms:
        for one, other in zip(truth, BACKEND.run(model, form), strict=True):
            np.testing.assert_array_equal(one, other)
        BACKEND.observe(model, [form], (0,))


def test_doubles_of_numpy_and_frozen_arrays_are_taken() -> None:
    model = BACKEND.load(nn.Linear(4, 2))
    array = np.ones((3, 4))
    array.flags.writeable = False
    assert BACKEND.run(model, (array,))[0].dtype == np.float32


def test_unknown_keys_are_left_out_and_none_known_is_an_error() -> None:
    model = BACKEND.load(nn.Linear(4, 2))
    x = torch.ones(3, 4)
    BACKEND.run(model, {"input": x, "label": torch.ones(3)})
    with pytest.raises(DataError, match=r"'image'.*input"):
        BACKEND.run(model, {"image": x})


def test_input_names_are_known_where_forward_leaves_no_doubt() -> None:
    assert BACKEND.load(nets.Cnn()).input_names == ("x",)
    assert BACKEND.load(nets.Block(4)).input_names is None
    assert BACKEND.load(nets.Block(4), ModelSpec(inputs=("x",))).input_names == ("x",)


def test_outputs_of_every_form_come_as_arrays() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.fc(x)
            return {"a": y, "b": (y.bfloat16(), [y > 0, None]), "c": 3}

    found = BACKEND.run(BACKEND.load(Odd()), (torch.ones(1, 4),))
    assert [array.shape for array in found] == [(1, 2), (1, 2), (1, 2), ()]
    assert all(isinstance(array, np.ndarray) for array in found)


def test_a_batch_of_wrong_shape_names_batch_and_op() -> None:
    model = BACKEND.load(nets.seeded(nets.Cnn()))
    good, bad = (torch.randn(2, 3, 32, 32),), (torch.randn(2, 4, 32, 32),)
    with pytest.raises(CalibrationError, match=r"batch 2 \(0: float32\[2, 4, 32, 32\]\).*'stem.0'"):
        BACKEND.observe(model, [good, bad], (0,))
    with pytest.raises(DataError, match=r"float32\[2, 4, 32, 32\]"):
        BACKEND.run(model, bad)


def test_an_empty_loader_is_said() -> None:
    with pytest.raises(CalibrationError, match="no batch"):
        BACKEND.observe(BACKEND.load(nets.Cnn()), [], (0,))


def test_nan_in_the_data_is_said() -> None:
    model = BACKEND.load(nets.seeded(nets.Cnn()))
    with pytest.raises(CalibrationError, match="NaN"):
        BACKEND.observe(model, [(torch.full((1, 3, 32, 32), float("nan")),)], (0,))


# -- models that can't be served -------------------------------------------------------------------


def test_a_wrong_device_is_said() -> None:
    with pytest.raises(UnsupportedModel, match=r"'weight'.*meta.*cpu"):
        BACKEND.load(nn.Linear(4, 2, device="meta"))


def test_half_precision_is_served_as_float32(caplog: pytest.LogCaptureFixture) -> None:
    module = nn.Linear(4, 2).half()
    with caplog.at_level(logging.WARNING):
        model = BACKEND.load(module)
    assert any("float16" in record.message for record in caplog.records)
    assert BACKEND.run(model, (torch.ones(1, 4),))[0].dtype == np.float32
    assert module.weight.dtype == torch.float16


def test_a_lazy_module_is_said() -> None:
    with pytest.raises(UnsupportedModel, match="run the model on one batch"):
        BACKEND.load(nn.LazyLinear(3))


@pytest.mark.parametrize("source", [3, "no/such/folder", object(), {"weight": torch.ones(1)}])
def test_what_is_no_model_is_refused(source: Any) -> None:
    with pytest.raises(UnsupportedModel):
        BACKEND.load(source)


def test_a_script_module_is_refused() -> None:
    module = torch.jit.trace(nn.Linear(4, 2), torch.ones(1, 4))
    with pytest.raises(UnsupportedModel, match="TorchScript"):
        BACKEND.load(module)


def test_a_module_that_can_not_be_copied_is_refused() -> None:
    class Single(nn.Linear):
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("there is one of these")

    with pytest.raises(UnsupportedModel, match=r"can't be copied \(there is one of these\)"):
        BACKEND.load(Single(4, 2))


def test_a_folder_of_a_foreign_architecture_is_refused(tmp_path: Any) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text('{"architectures": ["BertForEverything"]}')
    with pytest.raises(UnsupportedModel, match="BertForEverything"):
        BACKEND.load(tmp_path)


# -- recipes that can't be built ----------------------------------------------------------------


def test_an_unknown_op_names_its_nearest() -> None:
    model, _, observations = made("cnn")
    config = default(model).ops[OpKey("fc", "Linear")]
    with pytest.raises(UnsupportedOp, match=r"block\.conv1"):
        BACKEND.build(model, Recipe({OpKey("block.conv", "Conv2d"): config}), observations)


def test_static_without_calibration_is_said() -> None:
    model, _, _ = made("cnn")
    with pytest.raises(CalibrationError, match="calibration"):
        BACKEND.build(model, default(model), None)


def test_a_trial_is_no_start_for_trials() -> None:
    model, _, observations = made("cnn")
    built = BACKEND.build(model, default(model), observations)
    with pytest.raises(UnsupportedModel, match="already quantized"):
        BACKEND.inspect(built)


class _OwnForward(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) * 2


def test_odd_modules_stay_float_with_a_reason() -> None:
    hooked = nn.Linear(4, 4)
    hooked.register_forward_hook(lambda module, args, output: output + 1)
    module = nn.Sequential(
        _OwnForward(4, 4),
        hooked,
        nn.Embedding(3, 4, max_norm=1.0),
        nn.LSTM(4, 4, proj_size=2),
        nn.LayerNorm(4),
        nn.Bilinear(2, 2, 2),
    )
    model = BACKEND.load(module)
    reasons = {key.name: info.reason for key, info in BACKEND.inspect(model, "auto").ops.items()}
    assert not BACKEND.inspect(model, "auto").low()
    for name, word in enumerate(
        ("custom forward", "hooks", "max_norm", "projections", "normalization", "Bilinear")
    ):
        assert word in reasons[str(name)]
    left = BACKEND.inspect(model).left
    assert left.startswith("3 of 3 layers with weights") and "1 (0): _OwnForward is a" in left
