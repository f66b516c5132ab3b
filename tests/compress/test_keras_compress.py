"""Prune, distill and quantize a Keras model under one bar; go on from what is there; reload."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("sklearn")

from tests.compress.keras_nets import Batches, residual, scorer, trained  # noqa: E402

import lpot  # noqa: E402
from lpot.backends.tensorflow import TensorflowBackend  # noqa: E402
from lpot.core.backend import ModelSpec  # noqa: E402
from lpot.core.compress.groups import Left  # noqa: E402
from lpot.core.compress.prunable import Prunable  # noqa: E402
from lpot.core.errors import ConfigError, HistoryError, UnsupportedModel  # noqa: E402
from lpot.experimental import Pruning  # noqa: E402

layers = tf.keras.layers
TRAIN, TEST = Batches(0, 400), Batches(600, 900)
SETTINGS: dict[str, Any] = {"ratio": [0.3], "epochs": 2, "samples": 50, "learning_rate": 0.01}
LOW = lpot.Goal(absolute=0.6)


@pytest.fixture(scope="module")
def net(gains_by_size: None) -> Any:
    tf.keras.utils.set_random_seed(1)
    made = trained(residual(depth=2), TRAIN, epochs=8)
    assert scorer(TEST)(made) > 0.6  # or a bar would tell nothing
    return made


def compressed(net: Any, workspace: Path, goal: Any = LOW, **structured: Any) -> lpot.Result:
    return lpot.tune(
        net,
        TRAIN,
        scorer(TEST),
        goal,
        really=True,
        config={
            "pruning": {"approach": {"structured": {**SETTINGS, **structured}}},
            "tuning": {"diagnosis": True, "tensorboard": True},
        },
        train_loader=TRAIN,
        workspace=workspace,
        measure_speed=False,
    )


@pytest.fixture(scope="module")
def result(net: Any, tmp_path_factory: pytest.TempPathFactory) -> lpot.Result:
    return compressed(net, tmp_path_factory.mktemp("keras") / "w")


def test_a_pruned_model_holds_the_bar_is_smaller_and_can_be_loaded(
    net: Any, result: lpot.Result
) -> None:
    assert result.met and result.recipe.repairs.pruning == 0.3 and result.path is not None
    assert any(note.startswith("pruned 30%: ") for note in result.notes)
    plain = lpot.tune(
        net, TRAIN, workspace=result.path.parent.parent / "plain", measure_speed=False
    )
    assert result.model.nbytes < plain.model.nbytes
    again = lpot.load(result.path)
    assert scorer(TEST)(again.native) == result.accuracy
    assert again.output_names == plain.model.output_names
    assert result.model.signature == plain.model.signature


def test_a_rerun_and_recover_use_what_was_trained(
    net: Any, result: lpot.Result, tmp_path: Path
) -> None:
    assert result.path is not None
    workspace = tmp_path / "w"
    shutil.copytree(result.path.parent, workspace)
    rebuilt = lpot.recover(net, workspace, result.best.number)
    assert scorer(TEST)(rebuilt.native) == result.accuracy
    rerun = compressed(net, workspace)
    assert all(trial.recalled for trial in rerun.trials)
    assert any("trained earlier is used" in note for note in rerun.notes)
    assert scorer(TEST)(rerun.model.native) == result.accuracy
    shutil.rmtree(workspace / "pruned-30")
    with pytest.raises(HistoryError, match="no longer there: run the job again"):
        lpot.recover(net, workspace, result.best.number)


def test_the_model_given_stays_as_it_was(net: Any, result: lpot.Result) -> None:
    assert result.met and net.count_params() == residual(depth=2).count_params()
    assert scorer(TEST)(net) == result.baseline.accuracy
    assert len(net.get_layer("stem")._outbound_nodes) == 2  # a convolution and a sum


def test_a_bar_that_no_pruned_model_holds_gives_plain_int8(net: Any, tmp_path: Path) -> None:
    goal = lpot.Goal(absolute=0.03)
    hard = compressed(net, tmp_path / "w", goal, ratio=[0.9], epochs=1, learning_rate=1e-7)
    assert hard.met and hard.recipe.repairs.pruning is None
    assert "no pruned model met the bar: the model is quantized without pruning" in hard.notes


def test_a_file_and_the_door_of_the_yaml(gains_by_size: None, tmp_path: Path) -> None:
    path = tmp_path / "net.keras"
    tf.keras.utils.set_random_seed(1)
    trained(residual(width=16, depth=1), TRAIN, epochs=2).save(path)
    prune = Pruning(
        {
            "model": {"name": "net", "framework": "tensorflow"},
            "pruning": {"approach": {"structured": SETTINGS}},
            "tuning": {
                "accuracy_criterion": {"absolute": 1.0, "really": True},
                "workspace": {"path": str(tmp_path / "w")},
            },
        }
    )
    prune.model, prune.train_dataloader, prune.eval_func = str(path), TRAIN, scorer(TEST)
    made = prune()
    assert made.recipe is not None and made.recipe.repairs.pruning == 0.3


def test_what_can_not_be_pruned_is_told_before_anything_is_evaluated(
    net: Any, tmp_path: Path
) -> None:
    class Written(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.fc = layers.Dense(10)

        def call(self, images: Any) -> Any:
            return self.fc(tf.reshape(images, (-1, 64)))

    written, frozen = Written(), tmp_path / "net.pb"
    written(TRAIN.images[:2])
    TensorflowBackend().save(TensorflowBackend().load(net), frozen)
    for given, told in ((frozen, r"takes Keras models \(the object"), (written, "as a class")):
        with pytest.raises(UnsupportedModel, match=told):
            lpot.tune(
                given,
                TRAIN,
                lambda model: pytest.fail("it was evaluated"),
                config={"pruning": {"approach": {"structured": SETTINGS}}},
                train_loader=TRAIN,
                workspace=tmp_path / "w",
            )


def test_another_backend_says_what_to_give(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    ends = [helper.make_tensor_value_info(name, 1, [None, 2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    with pytest.raises(ConfigError, match="give a torch module or a Keras model"):
        lpot.tune(
            helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)]),
            [np.zeros((1, 2), np.float32)],
            config={"pruning": {"approach": {"structured": SETTINGS}}},
            workspace=tmp_path / "w",
        )


# -- the verbs -------------------------------------------------------------------------------------


def test_the_copy_is_made_when_pruning_asks_and_is_compared(net: Any) -> None:
    backend = TensorflowBackend()
    assert isinstance(backend, Prunable)
    own = tf.keras.models.clone_model(net)
    model, inputs = backend.load(own), (TRAIN.images[:4],)
    assert model.root is None
    backend.check_prunable(model)
    own.set_weights([0 * weight for weight in own.get_weights()])  # trained on afterwards
    assert set(backend.parts(model, [inputs]).blocks) == {"block0", "block1"}
    assert backend.parts(model, [inputs], blocks=False).blocks == {}
    late = backend.load(own)
    own.set_weights(net.get_weights())
    with pytest.raises(UnsupportedModel, match="was trained after it was loaded"):
        backend.parts(late, [inputs])


def test_several_inputs_by_name_and_in_order() -> None:
    left, right = tf.keras.Input((6,), name="b"), tf.keras.Input((4,), name="a")
    hidden = layers.Concatenate()([layers.Dense(8)(left), layers.Dense(6)(right)])
    net = tf.keras.Model([left, right], layers.Dense(2)(layers.ReLU()(hidden)))
    backend, draw = TensorflowBackend(), np.random.default_rng(0)
    one, two = (draw.normal(size=(5, size)).astype(np.float32) for size in (6, 4))
    model = backend.load(net)
    for inputs in ((one, two), {"a": two, "b": one}):
        parts = backend.parts(model, [inputs], blocks=False)
        assert [group.size for group in parts.groups] == [14]
    turned = backend.load(net, ModelSpec(inputs=("a", "b")))
    assert backend.parts(turned, [(two, one)]).groups == parts.groups
    small = backend.pruned(model, parts, Left({parts.groups[0].name: (0, 9)}))
    assert small.input_names == model.input_names
    assert small.nbytes < model.nbytes and backend.run(small, (one, two))[0].shape == (5, 2)


def test_layers_behind_a_block_that_is_gone_may_have_other_names() -> None:
    """TensorFlow numbers like names in the order of calls."""
    x = given = tf.keras.Input((6,))
    inside, outer = layers.Dense(6, name="fc"), layers.Dense(6, name="fc_1")
    x = layers.Add(name="sum")([x, inside(outer(x))])
    net = tf.keras.Model(given, layers.Dense(3, name="fc_2")(x))
    backend = TensorflowBackend()
    inputs = (np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32),)
    model = backend.load(net)
    parts = backend.parts(model, [inputs])
    small = backend.pruned(model, parts, Left(removed=("sum",)))
    recipe = lpot.tune(net, [inputs[0]], measure_speed=False).recipe
    assert recipe.low_ops
    seen = backend.observe(small, [inputs], (recipe.samples,))[recipe.samples]
    made = backend.build(small, recipe, seen)
    kinds = {node.op for node in made.net.nodes.values()}
    assert any("Quantized" in kind for kind in kinds), kinds


def test_one_batch_size_is_kept() -> None:
    x = given = tf.keras.Input((8, 8, 3), batch_size=4)
    x = layers.Flatten()(layers.Conv2D(8, 3, name="a")(x))
    backend = TensorflowBackend()
    model = backend.load(tf.keras.Model(given, layers.Dense(2)(x)))
    inputs = (np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype(np.float32),)
    parts = backend.parts(model, [inputs])
    small = backend.pruned(model, parts, Left({"a": (0, 3, 7)}))
    assert small.inputs == model.inputs and backend.run(small, inputs)[0].shape == (4, 2)
