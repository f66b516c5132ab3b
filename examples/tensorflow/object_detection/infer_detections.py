"""Tune a TF1 object detector with lpot, or measure its accuracy and speed, on a COCO TFRecord."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # read when TensorFlow is imported

import numpy as np
import tensorflow as tf
from coco_score import CocoScore

from lpot.adaptor.tf_utils.util import get_graph_def, write_graph

v1 = tf.compat.v1

INPUT = "image_tensor"
OUTPUTS = ("num_detections", "detection_boxes", "detection_scores", "detection_classes")
MASKS = "detection_masks"
WARMUP = 5
SIZE = (640, 640)  # of images that go in batches
HERE = Path(__file__).parent
TOPOLOGIES = (
    "ssd_resnet50_v1",
    "ssd_mobilenet_v1",
    "faster_rcnn_inception_resnet_v2",
    "faster_rcnn_resnet101",
    "mask_rcnn_inception_v2",
    "ssdlite_mobilenet_v2",
)


class model_infer:
    """A detector and its data: the calibration loader and the evaluation of the tutorial."""

    def __init__(self, args: argparse.Namespace, record: str | None = None) -> None:
        self.args = args
        self.record = record or args.data_location
        self.config = v1.ConfigProto(intra_op_parallelism_threads=args.num_threads)
        self.input_layer = INPUT
        self.output_layers = [*OUTPUTS, MASKS] if "mask" in args.topology else [*OUTPUTS]
        self.infer_graph: tf.Graph | None = None

    def get_input(self) -> Any:
        """The next image of the record, as a batch of one."""

        def parse(record: Any) -> Any:
            found = tf.io.parse_single_example(
                record, {"image/encoded": tf.io.FixedLenFeature([], tf.string)}
            )
            # Exact, as other readers of JPEG files decode.
            return tf.io.decode_jpeg(
                found["image/encoded"], channels=3, dct_method="INTEGER_ACCURATE"
            )

        data = tf.data.TFRecordDataset(self.record).map(parse)
        # Images differ in size: they go one by one, or all in one size.
        if self.args.batch_size > 1:
            data = data.map(lambda image: tf.cast(tf.image.resize(image, SIZE), tf.uint8))
        return v1.data.make_one_shot_iterator(data.batch(self.args.batch_size)).get_next()

    def __iter__(self) -> Iterator[list[np.ndarray]]:
        """Enable the generator for q_dataloader: [images], without labels."""
        data_graph = tf.Graph()
        with data_graph.as_default():
            input_images = self.get_input()
        # Not a `with`: whoever iterates may have a session of its own open.
        data_sess = v1.Session(graph=data_graph, config=self.config)
        try:
            while True:
                yield data_sess.run([input_images])
        except tf.errors.OutOfRangeError:
            return
        finally:
            data_sess.close()

    def use(self, graph: tf.Graph) -> None:
        """From now on this graph is scored."""
        self.infer_graph = graph
        self.input_tensor = graph.get_tensor_by_name(f"{self.input_layer}:0")
        self.output_tensors = [graph.get_tensor_by_name(f"{x}:0") for x in self.output_layers]

    def load(self) -> None:
        """The graph of `--input_graph`: frozen pb, checkpoint or SavedModel directory."""
        graph = tf.Graph()
        with graph.as_default():
            graph_def = get_graph_def(self.args.input_graph, self.output_layers)
            v1.import_graph_def(graph_def, name="")
        self.use(graph)

    def run_accuracy(self, input_graph: tf.Graph | None = None) -> float:
        """mAP of the graph given, or of `--input_graph`; of masks, where the net gives masks."""
        if input_graph is not None:
            self.use(input_graph)
        elif self.infer_graph is None:
            self.load()
        score = CocoScore(self.record, self.args.category_ids, MASKS in self.output_layers)
        number = 0
        with v1.Session(graph=self.infer_graph, config=self.config) as sess:
            for (images,) in self:
                outputs = sess.run(self.output_tensors, {self.input_tensor: images})
                for row in zip(*outputs, strict=True):
                    number += 1
                    score.add(number, *row)
                if 0 < self.args.limit <= number:
                    break
        found = score.result()
        print(f"Accuracy: mAP {found:.4f} on {number} images")
        return found

    accuracy_check = run_accuracy

    def run_benchmark(self) -> float:
        """Median seconds an image."""
        if self.infer_graph is None:
            self.load()
        times: list[float] = []
        with v1.Session(graph=self.infer_graph, config=self.config) as sess:
            for number, (images,) in enumerate(self):
                if number >= WARMUP + self.args.iters:
                    break
                start = time.perf_counter()
                sess.run(self.output_tensors, {self.input_tensor: images})
                times.append((time.perf_counter() - start) / len(images))
        seconds = float(np.median(times[WARMUP:] or times))
        print(f"Batch size = {self.args.batch_size}")
        print(f"Latency: {1e3 * seconds:.3f} ms")
        print(f"Throughput: {1 / seconds:.3f} images/sec")
        return seconds


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="COCO object detection: tune, accuracy, speed")
    add = parser.add_argument
    add("-g", "--input_graph", required=True, help=".pb, checkpoint or SavedModel directory")
    add("-d", "--data_location", required=True, help="COCO TFRecord (coco_val.record)")
    add("--topology", choices=TOPOLOGIES, default="ssd_resnet50_v1")
    add("--config", help="yaml; default: that of the topology")
    add("--output_model", default="./detector_int8.pb")
    add("--mode", choices=("tune", "accuracy", "benchmark"), default="tune")
    add("--calibration_location", help="another TFRecord to calibrate with")
    add("--category_ids", type=_numbers, default=(), help="class numbers that count, e.g. 1,2")
    add("--batch_size", type=int, default=1)
    add("--iters", type=int, default=100, help="images timed by --mode=benchmark")
    add("--limit", type=int, default=0, help="score the first so many images; 0: all")
    add("--num_threads", type=int, default=0, help="0: as many as TensorFlow likes")
    args = parser.parse_args(arguments)
    args.config = args.config or str(HERE / f"{args.topology}.yaml")
    return args


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.replace(",", " ").split())


def tune(args: argparse.Namespace, infer: model_infer) -> None:
    from lpot import Quantization

    loader = model_infer(args, args.calibration_location) if args.calibration_location else infer
    quantizer = Quantization(args.config)
    q_model = quantizer(args.input_graph, q_dataloader=loader, eval_func=infer.accuracy_check)
    write_graph(q_model.as_graph_def(), args.output_model)


def main(arguments: list[str] | None = None) -> None:
    args = parse_args(arguments)
    infer = model_infer(args)
    if args.mode == "tune":
        tune(args, infer)
    elif args.mode == "accuracy":
        infer.run_accuracy()
    else:
        infer.run_benchmark()


if __name__ == "__main__":
    main()
