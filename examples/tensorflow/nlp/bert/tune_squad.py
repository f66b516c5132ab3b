"""Tune BERT for SQuAD v1.1 with lpot, or measure what came out of it.

The graph reads its features itself, from a TFRecord whose name it is fed once. `eval_func` is the
tutorial's: it takes the graph it is given to the end of the data and returns F1.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # read when TensorFlow is imported

import numpy as np
import tensorflow as tf
from bert_checkpoint import checkpoint_prefix, freeze, restored
from bert_graph import BertConfig, question_graph

from lpot.data.datasets.squad import SQuAD
from lpot.data.postprocess import SquadV1PostTransform
from lpot.metric.squad import SquadF1

v1 = tf.compat.v1

RawResult = collections.namedtuple("RawResult", ["unique_id", "start_logits", "end_logits"])
OUTPUTS = ["IteratorGetNext", "unstack", "MakeIterator"]
WARMUP = 5


class Dataset:
    """What the graph is fed: the name of its file and its batch size, once."""

    def __init__(self, filename: str, batch_size: int) -> None:
        self.fed = (filename, batch_size)

    def __getitem__(self, index: int) -> tuple[tuple[str, int], int]:
        if index:
            raise IndexError(index)
        return self.fed, 0

    def __len__(self) -> int:
        return 1


def collate_fn(batch: list[Any]) -> Any:
    """A batch of the one sample is that sample."""
    return batch[0]


class FeatureWriter:
    """Windows of questions as a TFRecord; `filename` is what the graph is fed."""

    def __init__(self, filename: str) -> None:
        self.filename = filename

    def write(self, features: list[Any]) -> None:
        with tf.io.TFRecordWriter(self.filename) as writer:
            for one in features:
                columns = {
                    "unique_ids": [one.unique_id],
                    "input_ids": one.input_ids,
                    "input_mask": one.input_mask,
                    "segment_ids": one.segment_ids,
                }
                kinds = {name: _integers(values) for name, values in columns.items()}
                example = tf.train.Example(features=tf.train.Features(feature=kinds))
                writer.write(example.SerializeToString())


def _integers(values: list[int]) -> Any:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def parse_label_file(label_file: str) -> list[Any]:
    """The articles of a SQuAD file, with their answers."""
    with Path(label_file).open() as stream:
        return list(json.load(stream)["data"])


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="BERT on SQuAD v1.1: tune, accuracy, benchmark")
    add = parser.add_argument
    add("--mode", choices=("tune", "accuracy", "benchmark"), default="tune")
    add("--input_model", required=True, help="checkpoint prefix or its folder, or a frozen .pb")
    add("--output_model", default="./bert_int8.pb")
    add("--config", default="./bert.yaml")
    add("--dataset_location", default=".", help="folder of dev-v1.1.json, vocab.txt, bert_config")
    add("--label_file", help="default: dev-v1.1.json in dataset_location")
    add("--vocab_file", help="default: vocab.txt in dataset_location, or beside the model")
    add("--bert_config_file", help="default: bert_config.json, found likewise")
    add("--predict_batch_size", type=int, default=8)
    add("--max_seq_length", type=int, default=384)
    add("--doc_stride", type=int, default=128)
    add("--max_query_length", type=int, default=64)
    add("--n_best_size", type=int, default=20)
    add("--max_answer_length", type=int, default=30)
    add("--do_lower_case", type=_yes, default=True)
    add("--iters", type=int, default=100, help="batches timed by --mode=benchmark")
    add("--num_threads", type=int, default=0, help="0: as many as TensorFlow likes")
    flags = parser.parse_args(arguments)
    flags.label_file = _found(flags, flags.label_file, "dev-v1.1.json")
    flags.vocab_file = _found(flags, flags.vocab_file, "vocab.txt")
    return flags


def _yes(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes")


def _found(flags: argparse.Namespace, given: str | None, name: str) -> str:
    """A file the user names, else the one in the data's folder or beside the model."""
    model = Path(flags.input_model)
    places = [Path(given)] if given else [Path(flags.dataset_location) / name, model / name]
    places += [] if given else [model.parent / name]
    for place in places:
        if place.is_file():
            return str(place)
    raise SystemExit(f"{name}: not found; looked at {', '.join(map(str, places))}")


def load_graph(flags: argparse.Namespace) -> tf.Graph:
    """A frozen graph: from a .pb, or built for a checkpoint and filled from it."""
    model = Path(flags.input_model)
    if model.suffix == ".pb":
        from lpot.adaptor.tf_utils.util import get_graph_def

        graph_def = get_graph_def(str(model), ["IteratorGetNext:3", "unstack:0", "unstack:1"])
    else:
        config = BertConfig.from_file(_found(flags, flags.bert_config_file, "bert_config.json"))
        plain = question_graph(config, flags.max_seq_length)
        with restored(plain, checkpoint_prefix(model)) as session:
            graph_def = freeze(session, OUTPUTS)
    graph = tf.Graph()
    with graph.as_default():
        v1.import_graph_def(graph_def, name="")
    return graph


def result_producer(results: dict[str, np.ndarray]) -> Iterator[RawResult]:
    for number, unique_id in enumerate(results["unique_ids"]):
        start, end = results["start_logits"][number], results["end_logits"][number]
        yield RawResult(int(unique_id), start.tolist(), end.tolist())


def make_eval_func(
    FLAGS: argparse.Namespace, eval_writer: FeatureWriter, data: SQuAD
) -> Callable[..., float | None]:
    eval_examples, eval_features = data.examples, data.features

    def eval_func(graph: tf.Graph, iteration: int = -1) -> float | None:
        """F1 of the graph given; with `iteration` only the time of so many batches."""
        iter_op = graph.get_operation_by_name("MakeIterator")
        feed_dict = {
            "input_file:0": eval_writer.filename,
            "batch_size:0": FLAGS.predict_batch_size,
        }
        output_tensor = {
            "unique_ids": graph.get_tensor_by_name("IteratorGetNext:3"),
            "start_logits": graph.get_tensor_by_name("unstack:0"),
            "end_logits": graph.get_tensor_by_name("unstack:1"),
        }
        config = v1.ConfigProto(intra_op_parallelism_threads=FLAGS.num_threads)
        all_results: list[RawResult] = []
        time_list: list[float] = []
        with v1.Session(graph=graph, config=config) as sess:
            sess.run(iter_op, feed_dict)
            while iteration == -1 or len(time_list) < iteration:
                start = time.perf_counter()
                try:
                    results = sess.run(output_tensor)
                except tf.errors.OutOfRangeError:
                    break
                time_list.append(time.perf_counter() - start)
                all_results.extend(result_producer(results))
        timed = time_list[WARMUP:] or time_list
        print(f"Latency is {np.median(timed) / FLAGS.predict_batch_size:.6f} s a window")
        print(f"Batch size is {FLAGS.predict_batch_size}")
        if iteration != -1:
            return None
        transform = SquadV1PostTransform(
            eval_examples,
            eval_features,
            FLAGS.n_best_size,
            FLAGS.max_answer_length,
            FLAGS.do_lower_case,
        )
        preds, label = transform((all_results, parse_label_file(FLAGS.label_file)))
        f1 = SquadF1()
        f1.update(preds, label)
        print(f"accuracy is F1: {f1.result()}")
        return f1.result()

    return eval_func


def main(arguments: list[str] | None = None) -> None:
    FLAGS = parse_flags(arguments)
    data = SQuAD(
        FLAGS.label_file,
        FLAGS.vocab_file,
        FLAGS.max_seq_length,
        FLAGS.doc_stride,
        FLAGS.max_query_length,
        FLAGS.do_lower_case,
    )
    graph = load_graph(FLAGS)
    with record_folder(FLAGS) as folder:
        eval_writer = FeatureWriter(str(Path(folder) / "eval.tf_record"))
        eval_writer.write(data.features)
        eval_func = make_eval_func(FLAGS, eval_writer, data)
        if FLAGS.mode == "tune":
            tune(FLAGS, graph, eval_writer, eval_func)
        else:
            eval_func(graph, -1 if FLAGS.mode == "accuracy" else FLAGS.iters)


def record_folder(FLAGS: argparse.Namespace) -> AbstractContextManager[str]:
    """Beside the result, where a tuning that is resumed finds the same name again."""
    if FLAGS.mode != "tune":
        return tempfile.TemporaryDirectory(prefix="bert-squad-")
    folder = Path(FLAGS.output_model).resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    return nullcontext(str(folder))


def tune(
    FLAGS: argparse.Namespace,
    graph: tf.Graph,
    eval_writer: FeatureWriter,
    eval_func: Callable[..., float | None],
) -> None:
    from lpot.adaptor.tf_utils.util import write_graph
    from lpot.quantization import Quantization

    quantizer = Quantization(FLAGS.config)
    # The loader gives the file's name and the batch size only once: the graph reads on by itself.
    dataset = Dataset(eval_writer.filename, FLAGS.predict_batch_size)
    dataloader = quantizer.dataloader(dataset, collate_fn=collate_fn)
    q_model = quantizer(graph, q_dataloader=dataloader, eval_func=eval_func)
    write_graph(q_model.as_graph_def(), FLAGS.output_model)


if __name__ == "__main__":
    main()
