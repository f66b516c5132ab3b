"""Graph optimization end to end: 16-bit floats where they are, a folded graph everywhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import lpot
from backends.tensorflow.nets import cnn, images
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.abilities import multiplies_bfloat16
from lpot.backends.tensorflow.runtime import tf, v1
from lpot.core.cpu import Cpu
from lpot.core.errors import ConfigError
from lpot.core.progress import Listener
from lpot.experimental import Graph_Optimization

BATCH = images(1)[0][0]
OLD_CPU = Cpu("Old CPU", "x86_64", ("avx2",), 2, 2, 0, 0)


def optimizer(folder: Path, **sections: Any) -> Graph_Optimization:
    conf = {"model": {"framework": "tensorflow"}, "tuning": {"workspace": {"path": str(folder)}}}
    made = Graph_Optimization({**conf, **sections})
    made.model = cnn()
    made.listener = Listener()
    made.measure_speed = False
    return made


def loose(folder: Path) -> dict[str, Any]:
    """A bar for a random net: emulated bfloat16 rounds between product and bias, too."""
    return {"workspace": {"path": str(folder)}, "accuracy_criterion": {"relative": 0.03}}


def logits(graph: tf.Graph) -> np.ndarray:
    with v1.Session(graph=graph) as session:
        found: np.ndarray = session.run("logits:0", {"x:0": BATCH})
        return found


def score(graph: tf.Graph) -> float:
    """One minus the error against FP32."""
    truth = logits(TensorflowBackend().load(cnn()).native)
    return 1.0 - float(np.abs(logits(graph) - truth).max() / np.abs(truth).max())


def kinds(graph: tf.Graph) -> Counter[str]:
    return Counter(node.op for node in graph.as_graph_def().node)


def halves(graph: tf.Graph) -> list[str]:
    kinds = ("Conv2D", "MatMul", "DepthwiseConv2dNative")
    made = (operation for operation in graph.get_operations() if operation.type in kinds)
    return [one.name for one in made if one.outputs[0].dtype == tf.bfloat16]


def test_bfloat16_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_BF16", "1")
    made = optimizer(tmp_path, tuning=loose(tmp_path))
    made.precisions = "bf16"
    made.eval_func = score
    model = made()
    assert made.result is not None and made.result.met
    emulated = [note for note in made.result.notes if "emulates" in note]
    assert bool(emulated) is not multiplies_bfloat16()
    assert made.result.precisions["bf16"] == len(halves(model.graph)) >= 9
    assert 0.9 < made.result.accuracy < 1.0
    assert score(lpot.load(made.result.path).native) == made.result.accuracy


@pytest.mark.parametrize("evaluated", [True, False])
def test_without_bfloat16_the_folded_graph_has_weights_of_float16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evaluated: bool
) -> None:
    monkeypatch.delenv("FORCE_BF16", raising=False)
    for place in ("lpot.backends.tensorflow.abilities", "lpot.jobs.tune.optimize"):
        monkeypatch.setattr(f"{place}.this_cpu", lambda: OLD_CPU)
    made = optimizer(tmp_path, graph_optimization={"precisions": ["bf16", "fp32"]})
    made.eval_func = score if evaluated else None
    model = made()
    assert made.result is not None and made.result.met is (True if evaluated else None)
    (word,) = [note for note in made.result.notes if note.startswith("bf16")]
    assert "Old CPU" in word and "avx512_bf16" in word and "FORCE_BF16=1" in word
    assert "stored as fp16" in word and made.result.precisions["fp16"] > 0
    assert halves(model.graph) == []
    assert kinds(model.graph)["FusedBatchNormV3"] == 0 < kinds(model.graph)["Conv2D"]
    np.testing.assert_allclose(score(model.graph), 1.0, atol=1e-3)


def test_fp32_is_the_default(tmp_path: Path) -> None:
    made = optimizer(tmp_path)
    model = made()
    assert made.result is not None
    assert any(note.startswith("only fp32 is allowed") for note in made.result.notes)
    assert halves(model.graph) == [] and score(model.graph) > 0.9999


def test_op_wise_keeps_an_op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_BF16", "1")
    keep = {"stem/conv": {"activation": {"dtype": ["fp32"]}}}
    made = optimizer(tmp_path, graph_optimization={"precisions": "bf16", "op_wise": keep})
    found = halves(made().graph)
    assert found and not any("stem/conv" in name for name in found)
    keep = {"stem/konv": keep["stem/conv"]}
    made = optimizer(tmp_path / "x", graph_optimization={"precisions": "bf16", "op_wise": keep})
    with pytest.raises(ConfigError, match=r"stem/konv.*stem/conv"):
        made()


def test_the_bar_sends_ops_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_BF16", "1")
    made = optimizer(tmp_path)
    made.precisions = ["bf16", "fp32"]
    made.eval_func = lambda graph: 1.0 - 0.01 * max(0, len(halves(graph)) - 3)
    made()
    assert made.result is not None and made.result.met
    assert 0 < made.result.precisions["bf16"] <= 4


def test_a_yaml_without_quantization_says_it_for_tune_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_BF16", "1")
    config = {
        "model": {"framework": "tensorflow"},
        "mixed_precision": {"precisions": "bf16"},
        "tuning": loose(tmp_path),
    }
    result = lpot.tune(
        cnn(), evaluate=score, config=config, workspace=tmp_path, measure_speed=False
    )
    assert result.met and result.precisions["bf16"] >= 9


def test_use_bf16_false_is_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_BF16", "1")
    for allowed in (True, False):
        config = {
            "model": {"framework": "tensorflow"},
            "use_bf16": allowed,
            "tuning": {
                "strategy": {"name": "auto"},
                "exit_policy": {"max_trials": 60, "timeout": 600},
            },
        }
        seen: set[str] = set()

        def lost(graph: tf.Graph, seen: set[str] = seen) -> float:
            seen.update(halves(graph))
            return 1.0 - 0.1 * (kinds(graph)["_FusedQuantizedConv2D"] > 2)

        folder = tmp_path / str(allowed)
        lpot.tune(cnn(), images(2), lost, config=config, workspace=folder, measure_speed=False)
        assert bool(seen) is allowed
