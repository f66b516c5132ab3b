"""What lpot hands out goes back in at every door: handles, modules, copies, saved folders."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
from lpot.core.errors import ConfigError, UnsupportedModel
from lpot.experimental import (
    Benchmark,
    Component,
    Distillation,
    Graph_Optimization,
    MixedPrecision,
    ModelConversion,
    Pruning,
    Quantization,
    Scheduler,
    common,
)

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

DRAW = np.random.default_rng(0)
DATA = [(DRAW.normal(size=(8, 4)).astype(np.float32), np.arange(8) % 3) for _ in range(3)]
CONF = {
    "model": {"name": "net", "framework": "pytorch"},
    "evaluation": {"accuracy": {"metric": {"topk": 1}}},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
    folder = tmp_path_factory.mktemp("made")
    result = lpot.tune(net, DATA, workspace=folder / "run", measure_speed=False)
    saved = folder / "saved"
    result.model.save(saved)
    from lpot.utils.pytorch import load

    opened = load(saved, net)
    handle = result.model
    return {
        "net": net,
        "handle": handle,
        "native": handle.native,
        "opened": opened,
        "handle opened": lpot.load(saved, module=net),
        "copied": copy.deepcopy(opened),
    }


FORMS = ["handle", "native", "opened", "handle opened", "copied"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["accuracy", "performance"])
def test_a_benchmark_takes_int8_in_any_form(made: dict[str, Any], form: str, mode: str) -> None:
    benchmark = Benchmark(CONF)
    benchmark.model, benchmark.b_dataloader = made[form], DATA
    found = benchmark(mode)[mode]
    assert found.batch_size == 8 and found.seconds


@pytest.mark.parametrize("form", FORMS)
def test_tensors_are_compared_with_int8_in_any_form(made: dict[str, Any], form: str) -> None:
    found = lpot.compare_tensors(made["net"], made[form], DATA)
    assert {contrast.what for contrast in found} == {"output", "weight"}


@pytest.mark.parametrize("form", ["native", "opened", "copied"])
def test_int8_is_not_quantized_again(made: dict[str, Any], form: str) -> None:
    quantizer = Quantization(CONF)
    quantizer.model, quantizer.calib_dataloader = made[form], DATA
    with pytest.raises(UnsupportedModel, match="already quantized"):
        quantizer()


def test_words_of_the_original_s_models(made: dict[str, Any]) -> None:
    assert "quantized" in repr(made["handle"])
    pruning = {"approach": {"weight_compression": {"target_sparsity": 0.5, "end_epoch": 1}}}
    prune = Pruning({"model": CONF["model"], "pruning": pruning})
    net = copy.deepcopy(made["net"])
    prune.model, prune.pruning_func = net, lambda model: prune.on_epoch_begin(0)
    model = prune()
    table, share = model.report_sparsity()
    assert share == 50.0 and "0.weight" in str(table)
    model.update_weights("0.weight", np.ones((16, 4)))
    model.prune_weights_("0.weight", np.eye(16, 4))
    assert int(model.get_weight("0.weight").count_nonzero()) == 4
    model.native(torch.tensor(DATA[0][0])).sum().backward()
    assert model.get_gradient("2.bias").shape == (3,)
    with pytest.raises(ConfigError, match=r"no weight '0\.wieght', did you mean '0\.weight'"):
        model.get_weight("0.wieght")


COMPONENTS = [
    Quantization,
    Pruning,
    Distillation,
    Benchmark,
    Graph_Optimization,
    MixedPrecision,
    ModelConversion,
    Component,
    lpot.Quantization,
    lpot.Pruning,
    lpot.Benchmark,
]


@pytest.mark.parametrize("kind", COMPONENTS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
)
def test_components_are_copied_and_pickled(kind: Any, copied: Any) -> None:
    component = kind(CONF)
    twin = copied(component)
    assert type(twin) is kind and twin.config == component.config
    twin.listener = None
    assert getattr(component, "listener", 1) is not None


def test_a_component_is_copied_after_its_run(made: dict[str, Any], tmp_path: Path) -> None:
    workspace = {"workspace": {"path": str(tmp_path)}}
    quantizer = Quantization({"model": CONF["model"], "tuning": workspace})
    quantizer.model, quantizer.calib_dataloader = made["net"], DATA
    quantizer.measure_speed = False
    quantizer()
    twin = copy.deepcopy(quantizer)
    assert twin.result is not None and twin() is not None


class TestOldSubclasses:
    """The original's base classes had no __init__ to call, or one that could be left out."""

    def test_a_dataset(self) -> None:
        from lpot.data import DataLoader, Dataset

        class Mine(Dataset):
            def __init__(self, count: int) -> None:
                self.number = count

            def __len__(self) -> int:
                return self.number

            def __getitem__(self, index: int) -> Any:
                return np.zeros(4, np.float32), index

        assert [len(labels) for _, labels in DataLoader(Mine(5), batch_size=2)] == [2, 2, 1]

    def test_a_component(self) -> None:
        class Mine(Component):
            def __init__(self) -> None: ...

            def execute(self) -> Any:
                self.on_epoch_begin(3)
                return self.model

        seen: list[int] = []
        mine = Mine()
        mine.model = 7
        assert mine() == 7
        mine.register_hook("on_epoch_begin", seen.append)
        assert mine() == 7 and seen == [3]

    @pytest.mark.parametrize("record", [common.Metric, common.Postprocess])
    def test_what_is_no_class(self, record: Any) -> None:
        with pytest.raises(ConfigError, match="given an int, expected a class with"):
            record(3)


class TestScheduler:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            (Quantization, "make an object of it"),
            (lambda: None, "as its train_func"),
            ("prune", "not a component"),
            (None, "not a component"),
        ],
    )
    def test_what_is_no_component(self, given: Any, said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            Scheduler().append(given)
        assert Quantization.model is None  # the class is as it was

    def test_a_step_without_a_model_hands_on_the_one_before(self, made: dict[str, Any]) -> None:
        class Silent:
            model: Any = None

            def __call__(self) -> None: ...

        benchmark = Benchmark(CONF)
        benchmark.b_dataloader = DATA
        scheduler = Scheduler()
        scheduler.model = made["net"]
        scheduler.append(Silent(), benchmark, Silent())
        assert scheduler() is made["net"]
        assert "2. Benchmark: " in scheduler.report()
        assert "samples a second" in scheduler.report()
