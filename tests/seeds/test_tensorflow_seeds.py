"""The TensorFlow tutorials' own code blocks, cut out of their text and run on small graphs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from examples.detector_graphs import BOTTOM_UP, OUTPUTS, TOWER, ssd_resnet50_fpn
from examples.tiny_bert import (
    EXAMPLES,
    LENGTH,
    WINDOW,
    example_module,
    write_model,
    write_questions,
)
from lpot.adaptor.tf_utils.util import get_graph_def, write_graph

SEEDS = Path(os.environ.get("LPOT_SEEDS", Path(__file__).parents[3] / "shared" / "seeds"))
pytestmark = pytest.mark.skipif(not SEEDS.is_dir(), reason="LPOT_SEEDS has no tutorials")
NAMES = ["IteratorGetNext:3", "unstack:0", "unstack:1"]
DETECTOR = EXAMPLES / "tensorflow" / "object_detection"


def blocks(number: str, language: str) -> list[str]:
    """The fenced blocks of a tutorial in one language, in order."""
    (file,) = SEEDS.glob(f"{number}_*.txt")
    # Text and blocks take turns; a block begins with the rest of its fence's line.
    inside = re.split(r"^[ ]*```", file.read_text(), flags=re.MULTILINE)[1::2]
    pairs = [one.partition("\n") for one in inside]
    return [textwrap.dedent(body) for head, _, body in pairs if head.strip().lower() == language]


def block(number: str, language: str, mark: str) -> str:
    (found,) = (one for one in blocks(number, language) if mark in one)
    return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test in its own folder; no child processes that time the result."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lpot.jobs.finish.result.with_speed", lambda job, result: result)


@pytest.fixture
def bert(tmp_path: Path) -> dict[str, Any]:
    """What stands around the BERT tutorial's blocks: flags, features, the live graph."""
    tune = example_module("tensorflow/nlp/bert", "tune_squad")
    write_model(tmp_path / "model")
    write_questions(tmp_path / "dev-v1.1.json")
    place = ["--input_model", str(tmp_path / "model"), "--dataset_location", str(tmp_path)]
    flags = tune.parse_flags([*place, *WINDOW, "--output_model", str(tmp_path / "out.pb")])
    data = tune.SQuAD(flags.label_file, flags.vocab_file, LENGTH, 16, 4)
    writer = tune.FeatureWriter(str(tmp_path / "eval.tf_record"))
    writer.write(data.features)
    names = ("RawResult", "parse_label_file", "Dataset", "collate_fn", "SquadV1PostTransform")
    return {
        **{name: getattr(tune, name) for name in (*names, "SquadF1")},
        "np": np,
        "tf": tf,
        "six": pytest.importorskip("six"),
        "FLAGS": flags,
        "eval_writer": writer,
        "eval_examples": data.examples,
        "eval_features": data.features,
        "graph": tune.load_graph(flags),
    }


# The printed eval_func leaves the first times out, which are all that so few batches have.
@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value encountered")
def test_the_bert_tutorial(
    bert: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S1 to S9: the printed yaml, the printed eval_func, the printed code."""
    (printed,) = blocks("000", "yaml")
    Path("bert.yaml").write_text(printed)
    exec(block("000", "python", "def eval_func"), bert)
    assert bert["eval_func"](bert["graph"], 1) is None  # S6: times one batch, gives no value
    exec(block("000", "python", "quantizer.dataloader"), bert)
    kinds = {node.name: node.op for node in get_graph_def(str(tmp_path / "out.pb"), NAMES).node}
    assert kinds["MatMul"] == "MatMul"  # S8: the head, by its name, and nothing else
    assert list(kinds.values()).count("_QuantizedMatMul") == 8  # query, key and value are one
    told = capsys.readouterr()
    assert "op_wise.MatMul: matched 1 op(s) by name" in told.out + told.err
    assert told.out.count("accuracy is F1: 100.0") == 2
    configs = bert["quantizer"].result.recipe.low_ops
    ops = bert["quantizer"].result.recipe.ops
    assert {ops[key].weight.granularity for key in configs} == {"per_channel"}  # S9
    assert Path("bert.yaml").read_text() == printed


def test_the_printed_yaml_is_the_example_s() -> None:
    (bert,) = blocks("000", "yaml")
    (ssd,) = blocks("003", "yaml")
    assert (EXAMPLES / "tensorflow/nlp/bert/bert.yaml").read_text() == bert
    assert (DETECTOR / "ssd_resnet50_v1.yaml").read_text() == ssd


def infer_class() -> type:
    """The tutorial's class, put together from its two blocks and what it leaves out."""
    ahead = "import numpy as np\nimport tensorflow as tf\nCOCO_NUM_VAL_IMAGES = 6\n"
    ahead += "from lpot.adaptor.tf_utils.util import get_graph_def\n"
    reset = textwrap.indent(block("003", "python", "if input_graph:"), " " * 8)
    body = f"""
class model_infer:
    config = None
    input_layer = "image_tensor"
    output_layers = {list(OUTPUTS)}

    def __init__(self, args):
        self.args = args

    def get_input(self):
        images = tf.random.stateless_uniform([1, 90, 120, 3], [1, 2], 0, 256, tf.int32)
        return tf.cast(images, tf.uint8), tf.constant(0), tf.constant(0), tf.constant(0)

    def run_accuracy(self, input_graph=None):
{reset}
        images = np.random.default_rng(3).integers(0, 256, (2, 90, 120, 3), dtype=np.uint8)
        with tf.compat.v1.Session(graph=self.infer_graph) as session:
            outputs = session.run(self.output_tensors, {{self.input_tensor: images}})
        return float(outputs[2].mean())

    accuracy_check = run_accuracy
"""
    iterate = textwrap.indent(block("003", "python", "def __iter__"), " " * 4)
    space: dict[str, Any] = {}
    exec(ahead + body + "\n" + iterate, space)
    found: type = space["model_infer"]
    return found


def as_pb(folder: Path) -> str:
    path = folder / "frozen_inference_graph.pb"
    write_graph(ssd_resnet50_fpn(), path)
    return str(path)


def as_checkpoint(folder: Path) -> str:
    convert = example_module("tensorflow/object_detection", "frozen_to_checkpoint").convert
    convert(Path(as_pb(folder)), folder / "checkpoint")
    return str(folder / "checkpoint")


@pytest.mark.parametrize("given", [as_pb, as_checkpoint])
def test_the_ssd_tutorial(given: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S15 to S18: loader without labels, pb and checkpoint, a method that ignores its graph."""
    (printed,) = blocks("003", "yaml")
    Path("ssd_resnet50_v1.yaml").write_text(printed)
    args = SimpleNamespace(config="./ssd_resnet50_v1.yaml", input_graph=given(tmp_path))
    space: dict[str, Any] = {"args": args, "infer": infer_class()(args)}
    exec(block("003", "python", "q_dataloader=infer"), space)
    kinds = {node.name: node.op for node in space["q_model"].as_graph_def().node}
    assert kinds[BOTTOM_UP] == "Conv2D" and kinds[TOWER] == "Conv2D"  # S18
    low = [key for key in space["quantizer"].result.recipe.low_ops if key.kind == "Conv2D"]
    assert list(kinds.values()).count("_FusedQuantizedConv2D") == len(low) > 10
    told = capsys.readouterr()
    for name in (BOTTOM_UP, TOWER):
        assert f"op_wise.{name}: matched 1 op(s) by name" in told.out + told.err
    # S17: the tutorial's method loads its own file again, so each trial scores like FP32.
    assert "is eval_func using the model it is given" in told.out + told.err
    # The result gives detections under the names of the input graph.
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(space["q_model"].as_graph_def(), name="")
    with tf.compat.v1.Session(graph=graph) as session:
        fed = {"image_tensor:0": np.zeros((1, 70, 50, 3), np.uint8)}
        found = session.run([f"{name}:0" for name in OUTPUTS], fed)
    assert found[1].shape == (1, 20, 4) and np.isfinite(found[2]).all()


def test_iter_yields_images_alone() -> None:
    batches: Iterator[Any] = iter(infer_class()(None))
    (images,) = next(batches)
    assert images.shape == (1, 90, 120, 3)


def test_prepare_model_helps_as_printed() -> None:
    """S21."""
    printed = next(one for one in blocks("003", "") if one.startswith("usage: prepare_model.py"))
    script = str(DETECTOR / "prepare_model.py")
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, script, "-h"], capture_output=True, text=True, env=environment
    )
    assert " ".join(done.stdout.split()) == " ".join(printed.split())


@pytest.mark.parametrize(
    ("number", "mark"), [("000", "prepare_dataset.sh"), ("000", "prepare_model.sh")]
)
def test_the_prepare_commands_stand_where_the_tutorial_types_them(number: str, mark: str) -> None:
    """S21: the folder of `cd` exists, the script is in it, and it takes the flags printed."""
    typed = next(one for one in blocks(number, "shell") if f"bash {mark}" in one)
    folder = re.search(r"cd (\S+)", typed)
    assert folder is not None
    place = EXAMPLES.parent / folder[1]
    flags = re.findall(r"--(\w+)=", typed)
    text = (place / mark).read_text()
    assert flags and all(f"--{flag}=*)" in text for flag in flags)


def test_the_run_commands_stand_where_the_tutorial_types_them() -> None:
    """S16: each flag of the two printed commands is one of run_tuning.sh."""
    typed = [line for one in blocks("003", "shell") for line in one.splitlines()]
    commands = [line for line in typed if line.startswith("bash run_tuning.sh")]
    text = (DETECTOR / "run_tuning.sh").read_text()
    assert len(commands) == 2
    for command in commands:
        flags = re.findall(r"--(\w+)=", command)
        assert flags == ["topology", "dataset_location", "input_model", "output_model"]
        assert all(f"--{flag}=*)" in text for flag in flags)
