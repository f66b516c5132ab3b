"""The tutorials' ways of using TensorFlow graphs (S1 to S9, S15 to S18), on small graphs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from backends.tensorflow.nets import images, iterator_graph, little, write_lines
from lpot.adaptor.tf_utils import util
from lpot.core.errors import UnsupportedModel

BERT = """
model:
  name: bert
  framework: tensorflow
  inputs: input_file, batch_size
  outputs: IteratorGetNext:1, unstack:0, unstack:1

quantization:
  calibration:
    sampling_size: 10
  model_wise:
    weight:
      granularity: per_channel
  op_wise: {
             'MatMul_head/MatMul': {
               'activation':  {'dtype': ['fp32']},
               'weight':  {'dtype': ['fp32']},
             }
           }
tuning:
  accuracy_criterion:
    relative:  0.05
  exit_policy:
    timeout: 0
    max_trials: 100
  random_seed: 9527
"""
SSD = """
model:
  name: ssd
  framework: tensorflow
  inputs: x
  outputs: logits

quantization:
  calibration:
    sampling_size: 8
  model_wise:
    activation:
      algorithm: minmax
    weight:
      algorithm: minmax
  op_wise: {
             'stem': {
               'activation':  {'dtype': ['fp32']},
             }
           }
tuning:
  accuracy_criterion:
    relative:  0.01
  exit_policy:
    timeout: 0
    max_trials: 100
  random_seed: 9527
"""


class Dataset:
    """As the BERT tutorial has it: one item, fed once."""

    def __init__(self, file: str, batch_size: int) -> None:
        self.item = (file, batch_size)

    def __getitem__(self, index: int) -> Any:
        if index:
            raise IndexError(index)
        return self.item, None

    def __len__(self) -> int:
        return 1


def collate_fn(batch: list[Any]) -> Any:
    return batch[0]


def test_the_bert_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lpot.quantization import Quantization

    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert.yaml").write_text(BERT)
    file = str(write_lines(tmp_path / "rows.txt", 20))
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(iterator_graph(), name="")
    seen = []

    def eval_func(graph: tf.Graph, iteration: int = -1) -> float | None:
        iter_op = graph.get_operation_by_name("MakeIterator")
        feed_dict = {"input_file:0": file, "batch_size:0": 4}
        output_tensor = {
            "unique_ids": graph.get_tensor_by_name("IteratorGetNext:1"),
            "start_logits": graph.get_tensor_by_name("unstack:0"),
            "end_logits": graph.get_tensor_by_name("unstack:1"),
        }
        sess = tf.compat.v1.Session(graph=graph)
        sess.run(iter_op, feed_dict)
        results = []
        while len(results) < iteration or iteration == -1:
            try:
                results.append(sess.run(output_tensor))
            except tf.errors.OutOfRangeError:
                break
        start = np.concatenate([result["start_logits"] for result in results])
        seen.append({op.type for op in graph.get_operations()})
        if iteration != -1:
            return None
        return float(np.abs(start).mean())

    quantizer = Quantization("./bert.yaml")
    quantizer.measure_speed = False
    dataloader = quantizer.dataloader(Dataset(file, 4), collate_fn=collate_fn)
    q_model = quantizer(graph, q_dataloader=dataloader, eval_func=eval_func)
    util.write_graph(q_model.as_graph_def(), tmp_path / "out.pb")
    assert "_QuantizedMatMul" in seen[1]
    written = util.get_graph_def(str(tmp_path / "out.pb"), ["unstack:0"])
    kinds = {node.name: node.op for node in written.node}
    assert kinds["MatMul_head/MatMul"] == "MatMul"  # as op_wise says
    assert kinds["MakeIterator"] == "MakeIterator"
    assert "_QuantizedMatMul" in kinds.values()


def test_the_ssd_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lpot import Quantization

    monkeypatch.chdir(tmp_path)
    (tmp_path / "ssd.yaml").write_text(SSD)
    model = tmp_path / "frozen_inference_graph.pb"
    util.write_graph(little(), model)

    class Infer:
        """No label, no batch_size, and an evaluation that is a bound method."""

        def __iter__(self) -> Iterator[Any]:
            for (batch,) in images(4):
                yield [batch]

        def accuracy_check(self, input_graph: Any = None) -> float:
            # The tutorial's own script loads its file again and ignores what it is given.
            graph_def = util.get_graph_def(str(model), ["logits"])
            graph = tf.Graph()
            with graph.as_default():
                tf.graph_util.import_graph_def(graph_def, name="")
            with tf.compat.v1.Session(graph=graph) as session:
                found = session.run("logits:0", {"x:0": images(1)[0][0]})
            return float(np.abs(found).mean())

    infer = Infer()
    quantizer = Quantization("ssd.yaml")
    quantizer.measure_speed = False
    q_model = quantizer(str(model), q_dataloader=infer, eval_func=infer.accuracy_check)
    kinds = {node.name: node.op for node in q_model.as_graph_def().node}
    assert kinds["stem"] == "Conv2D"
    assert kinds["inner"] == "_FusedQuantizedConv2D"


def test_the_functions_behind_the_old_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    util.write_graph(little(), "plain.pb")  # a bare name has no folder, and needs none
    again = util.get_graph_def("plain.pb", ["logits"])
    assert {node.name for node in again.node} == {node.name for node in little().node}
    assert not util.is_ckpt_format(tmp_path)
    assert not util.is_saved_model_format(tmp_path)
    with pytest.raises(UnsupportedModel, match="TF-Slim"):
        util.get_slim_graph("inception_v1.ckpt", None, None, None)


def test_iterator_sess_run_reads_to_the_end(tmp_path: Path) -> None:
    file = str(write_lines(tmp_path / "rows.txt", 10))
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(iterator_graph(), name="")
    with tf.compat.v1.Session(graph=graph) as session:
        start = graph.get_operation_by_name("MakeIterator")
        feeds = {"input_file:0": file, "batch_size:0": 4}
        both = util.iterator_sess_run(session, start, feeds, ["unstack:0", "unstack:1"])
        assert [part.shape for part in both] == [(10,), (10,)]
        one = util.iterator_sess_run(session, start, feeds, "unstack:0", iteration=2)
        np.testing.assert_array_equal(one, both[0][:8])


def test_importing_lpot_imports_no_tensorflow() -> None:
    code = "import sys, lpot, lpot.quantization; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
