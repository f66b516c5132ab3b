"""Every name that projects of LPOT 1.x import: each works, or says in one sentence what to do."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

import lpot
import lpot.experimental
from lpot.core.errors import ConfigError, LpotError, NotAvailableYet, UnsupportedModel
from lpot.demo import demo_data, demo_model_path
from lpot.strategy.strategy import TuneStrategy, strategy_registry

# module: names; "" stands for the module itself
NAMES = {
    "lpot": "Quantization Benchmark Pruning common data metric",
    "lpot.adaptor.adaptor": "Adaptor adaptor_registry",
    "lpot.algorithm": "Algorithm algorithm_registry",
    "lpot.benchmark": "Benchmark",
    "lpot.common": "DataLoader Metric Model Postprocess Criterions Optimizers",
    "lpot.conf.config": "Conf",
    "lpot.conf.dotdict": "DotDict deep_get",
    "lpot.data": "DATASETS DATALOADERS TRANSFORMS FILTERS DataLoader dataset_registry "
    "transform_registry filter_registry BaseTransform Dataset IterableDataset",
    "lpot.data.dataloaders.dataloader": "DATALOADERS DataLoader",
    "lpot.data.dataloaders.onnx_dataloader": "ONNXDataLoader",
    "lpot.data.dataloaders.onnxrt_dataloader": "ONNXRTDataLoader",
    "lpot.data.dataloaders.pytorch_dataloader": "PyTorchDataLoader",
    "lpot.data.dataloaders.tensorflow_dataloader": "TensorflowDataLoader",
    "lpot.data.dataloaders.mxnet_dataloader": "MXNetDataLoader",
    "lpot.data.datasets.dataset": "DATASETS Dataset IterableDataset dataset_registry ImageFolder "
    "CIFAR10 CIFAR100 MNIST FashionMNIST ImagenetRaw TFRecordDataset ImageRecord VOCRecord",
    "lpot.data.datasets.dummy_dataset": "DummyDataset",
    "lpot.data.transforms.transform": "TRANSFORMS BaseTransform Compose transform_registry",
    "lpot.experimental": "Quantization Benchmark Pruning Graph_Optimization ModelConversion "
    "MixedPrecision Distillation Scheduler Component common data metric",
    "lpot.experimental.benchmark": "Benchmark",
    "lpot.experimental.common": "DataLoader Metric Model Postprocess Criterions Optimizers",
    "lpot.experimental.component": "Component",
    "lpot.experimental.data": "DATASETS DATALOADERS TRANSFORMS FILTERS",
    "lpot.experimental.data.dataloaders.dataloader": "DATALOADERS DataLoader",
    "lpot.experimental.data.dataloaders.onnxrt_dataloader": "ONNXRTDataLoader",
    "lpot.experimental.data.datasets.dataset": "DATASETS ImageFolder dataset_registry",
    "lpot.experimental.data.datasets.dummy_dataset": "DummyDataset",
    "lpot.experimental.distillation": "Distillation",
    "lpot.experimental.graph_optimization": "Graph_Optimization",
    "lpot.experimental.metric": "METRICS BaseMetric metric_registry",
    "lpot.experimental.metric.metric": "METRICS BaseMetric metric_registry",
    "lpot.experimental.mixed_precision": "MixedPrecision",
    "lpot.experimental.model_conversion": "ModelConversion",
    "lpot.experimental.pruning": "Pruning",
    "lpot.experimental.quantization": "Quantization",
    "lpot.experimental.scheduler": "Scheduler",
    "lpot.metric": "METRICS BaseMetric Metric metric_registry",
    "lpot.metric.metric": "METRICS BaseMetric Metric metric_registry",
    "lpot.model": "BaseModel",
    "lpot.model.base_model": "BaseModel",
    "lpot.model.nets_factory": "TFSlimNetsFactory",
    "lpot.objective": "Objective objective_registry",
    "lpot.pruning": "Pruning",
    "lpot.quantization": "Quantization common",
    "lpot.strategy": "STRATEGIES",
    "lpot.strategy.strategy": "STRATEGIES TuneStrategy strategy_registry",
    "lpot.utils": "",
    "lpot.utils.logger": "logger info warning error",
    "lpot.utils.utility": "CpuInfo Dequantize LazyImport get_backend get_tuning_history recover "
    "set_backend time_limit",
}
TENSORFLOW_NAMES = {
    "lpot.adaptor.tf_utils.util": "get_slim_graph write_graph is_ckpt_format get_estimator_graph "
    "_parse_ckpt_bn_input iterator_sess_run get_graph_def is_saved_model_format",
    "lpot.model.model": "get_model_type",
}
PYTORCH_NAMES = {"lpot.utils.pytorch": "load"}

# How many lines of the original's own examples and docs import each; "" is the module itself
LINES = {
    "lpot": {"Quantization": 51, "": 15, "Benchmark": 14, "common": 6, "data": 1, "Pruning": 1},
    "lpot.adaptor.tf_utils.util": {
        "get_slim_graph": 6,
        "write_graph": 6,
        "is_ckpt_format": 4,
        "get_estimator_graph": 3,
        "_parse_ckpt_bn_input": 3,
        "iterator_sess_run": 1,
        "get_graph_def": 1,
        "is_saved_model_format": 1,
    },
    "lpot.benchmark": {"Benchmark": 1},
    "lpot.data": {"DATASETS": 4, "DATALOADERS": 4, "DataLoader": 2},
    "lpot.data.dataloaders.onnx_dataloader": {"ONNXDataLoader": 1},
    "lpot.data.dataloaders.onnxrt_dataloader": {"ONNXRTDataLoader": 1},
    "lpot.data.datasets.dummy_dataset": {"DummyDataset": 2},
    "lpot.experimental": {
        "common": 239,
        "Quantization": 202,
        "Benchmark": 72,
        "Pruning": 14,
        "Graph_Optimization": 10,
        "ModelConversion": 4,
        "data": 2,
        "Scheduler": 1,
        "Component": 1,
    },
    "lpot.experimental.data.dataloaders.onnxrt_dataloader": {"ONNXRTDataLoader": 8},
    "lpot.experimental.data.datasets.dummy_dataset": {"DummyDataset": 8},
    "lpot.experimental.scheduler": {"Scheduler": 2},
    "lpot.metric": {"Metric": 3, "BaseMetric": 2, "METRICS": 2},
    "lpot.metric.metric": {"Metric": 1},
    "lpot.model.model": {"get_model_type": 4},
    "lpot.model.nets_factory": {"TFSlimNetsFactory": 2},
    "lpot.quantization": {"Quantization": 11, "common": 2},
    "lpot.utils.pytorch": {"load": 74},
}


def found(module: str, name: str) -> Any:
    """As `from module import name` finds it."""
    space: dict[str, Any] = {}
    exec(f"from {module} import {name}", space)
    return space[name]


@pytest.mark.parametrize("module", NAMES)
def test_names_can_be_imported(module: str) -> None:
    importlib.import_module(module)
    for name in NAMES[module].split():
        assert found(module, name) is not None


@pytest.mark.parametrize("module", TENSORFLOW_NAMES)
def test_names_of_tensorflow(module: str) -> None:
    pytest.importorskip("tensorflow")
    for name in TENSORFLOW_NAMES[module].split():
        assert callable(found(module, name))


def test_names_of_pytorch() -> None:
    pytest.importorskip("torch")
    assert callable(found("lpot.utils.pytorch", "load"))


@pytest.mark.parametrize("page", ["docs/migration.md", "README.md", "CHANGELOG.md"])
def test_the_pages_say_how_many(page: str) -> None:
    known = {**NAMES, **TENSORFLOW_NAMES, **PYTORCH_NAMES}
    names = sum(len(listed.split()) for listed in known.values())
    text = (Path(__file__).parents[1] / page).read_text(encoding="utf-8")
    said = f"{names} names in {len(known)} modules are imported by a test, {len(TOLD)} of them"
    assert said in " ".join(text.split())


def test_what_the_original_s_own_pages_import_is_among_them() -> None:
    known = {**NAMES, **TENSORFLOW_NAMES, **PYTORCH_NAMES}
    for module, names in LINES.items():
        assert set(names) - {""} <= set(known[module].split()), module
    count, lines = sum(map(len, LINES.values())), sum(sum(each.values()) for each in LINES.values())
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    said = f"the {count} that its own examples and docs import, in {lines} lines"
    assert said in " ".join(text.split())


LATER = [
    ("lpot.objective", "Objective", "tuning.objective"),
    ("lpot.algorithm", "Algorithm", "quantization.recipes"),
    ("lpot.adaptor.adaptor", "Adaptor", "lpot.backends.register"),
    ("lpot.model.nets_factory", "TFSlimNetsFactory", "freeze"),
]


# What says only what replaces it; the tests below hold each of them to that.
TOLD = [name for _, name, _ in LATER] + [
    "adaptor_registry",
    "algorithm_registry",
    "objective_registry",
    "time_limit",
    "get_slim_graph",
    "get_estimator_graph",
]


@pytest.mark.parametrize(("module", "name", "way"), LATER, ids=lambda value: value)
def test_what_is_not_there_yet_says_the_way_round(module: str, name: str, way: str) -> None:
    with pytest.raises(NotAvailableYet, match=f"{name} is not available yet") as told:
        found(module, name)("conf.yaml")
    assert way in str(told.value)


@pytest.mark.parametrize(
    "name", ["adaptor.adaptor.adaptor", "algorithm.algorithm", "objective.objective"]
)
def test_registries_that_are_not_there_yet(name: str) -> None:
    module, _, short = name.rpartition(".")
    with pytest.raises(NotAvailableYet):

        @found(f"lpot.{module}", f"{short}_registry")
        class Mine: ...


class TestModels:
    def test_forms_of_tensorflow_models(self, tmp_path: Path) -> None:
        tf = pytest.importorskip("tensorflow")
        get_model_type = found("lpot.model.model", "get_model_type")
        net = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
        tf.saved_model.save(net, str(tmp_path / "saved"))
        frozen = tmp_path / "net.pb"
        frozen.write_bytes(tf.Graph().as_graph_def().SerializeToString())
        forms = [net, tf.Graph(), tf.Graph().as_graph_def(), tmp_path / "saved", frozen]
        said = [get_model_type(form) for form in forms]
        assert said == ["keras", "graph", "graph_def", "saved_model", "frozen_pb"]
        with pytest.raises(UnsupportedModel, match=r"frozen \.pb"):
            get_model_type(tmp_path / "nothing")

    def test_estimators_say_what_to_do(self) -> None:
        pytest.importorskip("tensorflow")
        with pytest.raises(UnsupportedModel, match="export_saved_model"):
            found("lpot.adaptor.tf_utils.util", "get_estimator_graph")(None, None)
        with pytest.raises(LpotError, match="freeze"):
            found("lpot.adaptor.tf_utils.util", "get_slim_graph")("model.ckpt", None, None, None)

    def test_batch_norms_read_their_moving_statistics(self) -> None:
        tf = pytest.importorskip("tensorflow")
        graph = tf.compat.v1.GraphDef()
        for name in ("bn/Const", "bn/moving_mean", "bn/moving_variance", "x", "scale", "offset"):
            graph.node.add(name=name, op="Const")
        inputs = ["x", "scale", "offset", "bn/Const", "bn/Const"]
        graph.node.add(name="bn/norm", op="FusedBatchNorm", input=inputs)
        fixed = found("lpot.adaptor.tf_utils.util", "_parse_ckpt_bn_input")(graph)
        assert list(fixed.node[-1].input[3:]) == ["bn/moving_mean", "bn/moving_variance"]


class TestScheduler:
    def test_runs_what_was_appended_in_order(self) -> None:
        class Step:
            def __init__(self, letter: str) -> None:
                self.letter, self.model = letter, ""

            def __call__(self) -> str:
                return self.model + self.letter

        scheduler = found("lpot.experimental.scheduler", "Scheduler")()
        scheduler.model = "m"
        scheduler.append(Step("a"), Step("b"))
        scheduler.append(Step("c"))
        assert scheduler() == "mabc"

    def test_what_is_no_component_is_refused(self) -> None:
        scheduler = lpot.experimental.Scheduler()
        with pytest.raises(ConfigError, match="not a component"):
            scheduler.append("prune")
        with pytest.raises(ConfigError, match="one by one"):
            scheduler.combine(1, 2)


DATA = demo_data()
CONF = {
    "model": {"name": "digits", "framework": "onnxrt_qlinearops"},
    "tuning": {"accuracy_criterion": {"relative": 0.01}},
}


def accuracy(model: onnx.ModelProto) -> float:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString())
    answers = session.run(None, {session.get_inputs()[0].name: DATA.images})[0].argmax(1)
    return float((answers == DATA.labels).mean())


class TestStrategyClass:
    """A class written for the original, with its constructor's arguments."""

    @pytest.fixture
    def seen(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        monkeypatch.chdir(tmp_path)
        seen: list[Any] = []

        @strategy_registry
        class LastFirstTuneStrategy(TuneStrategy):
            def __init__(
                self, model: Any, conf: Any, q_dataloader: Any, q_func: Any = None
            ) -> None:
                super().__init__(model, conf, q_dataloader, q_func)

            def next_tune_cfg(self) -> Iterator[dict[str, Any]]:
                ops = {key: configs[0] for key, configs in self.opwise_quant_cfgs.items()}
                for key in [None, *reversed(list(ops))]:
                    if key is not None:
                        ops[key] = self.opwise_tune_cfgs[key][-1]
                    yield {"calib_iteration": self.calib_iter[0], "op": dict(ops)}
                    seen.append(self.last_tune_result)

        return seen

    def tune(self) -> Any:
        conf = {**CONF, "tuning": {**CONF["tuning"], "strategy": {"name": "lastfirst"}}}
        quantizer = lpot.Quantization(conf)
        quantizer.measure_speed = False
        loader = [DATA.calib_images[:50]]
        quantizer(demo_model_path(), loader, eval_func=accuracy)
        return quantizer.result

    def test_runs(self, seen: list[Any]) -> None:
        result = self.tune()
        assert result.met
        *missed, met = result.trials
        assert met.met and not any(trial.met for trial in missed)
        heard = [accuracy for accuracy, _ in seen]  # a forecast may have heard others before
        assert heard[-len(result.trials) :] == [trial.accuracy for trial in result.trials]
        counts = [len(trial.recipe.float_ops) for trial in result.trials]
        assert counts == list(range(len(counts)))

    def test_a_second_run_recalls_all_of_it(self, seen: list[Any]) -> None:
        first, again = self.tune(), self.tune()
        assert again.best.recipe == first.best.recipe
        assert all(trial.recalled for trial in again.trials)

    def test_wishes_that_can_not_be_met(self, seen: list[Any]) -> None:
        @strategy_registry
        class LastFirstTuneStrategy(TuneStrategy):
            def next_tune_cfg(self) -> Iterator[dict[str, Any]]:
                first = next(iter(self.opwise_tune_cfgs))
                yield {"op": {first: {"activation": {"dtype": "int3"}}}}

        with pytest.raises(LpotError, match="it can be one of"):
            self.tune()

    def test_a_name_that_does_not_end_as_it_should(self) -> None:
        with pytest.raises(ConfigError, match="MineTuneStrategy"):

            @strategy_registry
            class Mine(TuneStrategy): ...


class TestNothingIsIgnored:
    """Attributes and sections that would have no effect are told."""

    def test_an_attribute_that_nothing_reads(self) -> None:
        quantizer = lpot.experimental.Quantization(CONF)
        with pytest.warns(UserWarning, match="did you mean 'calib_dataloader'"):
            quantizer.calib_dataloder = []

    def test_attributes_of_older_scripts(self, recwarn: pytest.WarningsRecorder) -> None:
        loader = [DATA.images[:8]]
        evaluator = lpot.experimental.Benchmark(CONF)
        evaluator.dataloader = loader
        assert evaluator.b_dataloader is loader
        quantizer = lpot.experimental.Quantization(CONF)
        quantizer.q_dataloader = loader
        quantizer.eval_func = accuracy
        quantizer.measure_speed = False
        assert quantizer.calib_dataloader is loader and not recwarn.list

    @pytest.mark.parametrize(
        ("section", "said"),
        [
            ("pruning", "lpot.experimental.Pruning"),
            ("distillation", "lpot.experimental.Distillation"),
            ("nas", "nas is not available yet"),
            ("model_conversion", "lpot.experimental.ModelConversion"),
        ],
    )
    def test_a_file_that_asks_for_other_work(self, section: str, said: str) -> None:
        conf = {"model": CONF["model"], section: {}}
        with pytest.raises(LpotError, match=said):
            lpot.Quantization(conf)(demo_model_path(), [DATA.images[:8]], eval_func=accuracy)

    def test_words_as_the_original_writes_them(self) -> None:
        config = found("lpot.conf.config", "Conf")({"model_conversion": {"source": "QAT"}})
        assert config.model_conversion.source == "qat"

    def test_hosts_of_a_training(self) -> None:
        from lpot.config.availability import unavailable

        config = found("lpot.conf.config", "Conf")({"quantization": {"train": {"hostfile": "h"}}})
        assert "this machine only" in unavailable(config)[0]


def test_numbers_of_the_original() -> None:
    dequantize = found("lpot.utils.utility", "Dequantize")
    values = dequantize(np.array([0, 255], np.uint8), (-1.0, 3.0))
    assert values.tolist() == [-1.0, 3.0] and values.dtype == np.float32
    info = found("lpot.utils.utility", "CpuInfo")()
    assert isinstance(info.vnni, bool) and isinstance(info.bf16, bool)


def test_a_limit_of_time_names_the_yaml() -> None:
    time_limit = found("lpot.utils.utility", "time_limit")
    with time_limit(0):
        pass
    with pytest.raises(NotAvailableYet, match=r"exit_policy\.timeout"), time_limit(3):
        pass
