"""The yaml of the four tutorials loads unchanged and says what the tutorials say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lpot.config import Config, load, unavailable
from lpot.config.rules import goal, limits, model_spec, rules, sampling_sizes
from lpot.core.goal import Goal
from lpot.core.limits import Limits
from lpot.core.space import Rule, TensorRule

ROOT = Path(__file__).parents[2]
SEEDS = Path(os.environ.get("LPOT_SEEDS", ROOT.parent / "shared" / "seeds"))
FP32 = TensorRule(dtype=("fp32",))


def _blocks(text: str) -> list[str]:
    """Fenced blocks that hold a configuration."""
    found: list[str] = []
    block: list[str] | None = None
    for line in text.splitlines(keepends=True):
        if not line.lstrip().startswith("```"):
            if block is not None:
                block.append(line)
        elif block is None:
            block = []
        else:
            found.append("".join(block))
            block = None
    return [text for text in found if text.startswith("model:")]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Config]:
    texts = sorted(SEEDS.glob("*.txt")) if SEEDS.is_dir() else []
    if not texts:
        pytest.skip(f"no tutorials at {SEEDS}: set LPOT_SEEDS to their folder")
    folder = tmp_path_factory.mktemp("seeds")
    found: dict[str, Config] = {}
    for path in texts:
        for block in _blocks(path.read_text(encoding="utf-8")):
            file = folder / f"{path.stem}.yaml"
            file.write_text(block, encoding="utf-8")
            config = load(file)
            assert file.read_text(encoding="utf-8") == block
            found[f"{config.model.framework} {config.model.name}"] = config
    return found


def test_four_files(seeds: dict[str, Config]) -> None:
    assert set(seeds) == {
        "tensorflow bert",
        "pytorch bert",
        "pytorch blendcnn",
        "tensorflow ssd_resnet50_v1",
    }


def test_common_ground(seeds: dict[str, Config]) -> None:
    for config in seeds.values():
        assert goal(config) == Goal(relative=0.01)
        assert config.tuning.random_seed == 9527
        assert config.tuning.strategy.name == "basic"
        assert config.device == "cpu"
        assert config.quantization.approach == "post_training_static_quant"
        assert unavailable(config) == []
        assert goal(config).higher_is_better


def test_limits(seeds: dict[str, Config]) -> None:
    assert limits(seeds["pytorch bert"]) == Limits(timeout=0, max_trials=300)
    assert limits(seeds["pytorch blendcnn"]) == Limits(timeout=0, max_trials=100)
    assert limits(seeds["tensorflow bert"]) == Limits(timeout=0, max_trials=100)


def test_tensorflow_bert(seeds: dict[str, Config]) -> None:
    config = seeds["tensorflow bert"]
    spec = model_spec(config)
    assert spec.inputs == ("input_file", "batch_size")
    assert spec.outputs == ("IteratorGetNext:3", "unstack:0", "unstack:1")
    assert sampling_sizes(config) == (500,)
    assert rules(config) == (
        Rule(
            weight=TensorRule(granularity=("per_channel",)),
            path="quantization.model_wise",
        ),
        Rule("MatMul", FP32, FP32, path="quantization.op_wise.MatMul"),
    )
    assert config.where("quantization.op_wise.MatMul").endswith(".yaml:14")


def test_ssd(seeds: dict[str, Config]) -> None:
    config = seeds["tensorflow ssd_resnet50_v1"]
    spec = model_spec(config)
    assert spec.inputs == ("image_tensor",)
    assert spec.outputs == (
        "num_detections",
        "detection_boxes",
        "detection_scores",
        "detection_classes",
    )
    assert sampling_sizes(config) == (100,)
    everywhere, block5, tower = rules(config)
    assert everywhere.activation == everywhere.weight == TensorRule(algorithm=("minmax",))
    assert block5.pattern == "FeatureExtractor/resnet_v1_50/fpn/bottom_up_block5/Conv2D"
    assert block5.activation == tower.activation == FP32
    assert block5.weight is None


def test_pytorch_files_leave_the_rest_open(seeds: dict[str, Config]) -> None:
    for name in ("pytorch bert", "pytorch blendcnn"):
        assert rules(seeds[name]) == ()
        assert sampling_sizes(seeds[name]) == (0,)
        assert model_spec(seeds[name]).inputs == ()
