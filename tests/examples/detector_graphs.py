"""Detectors of the TF1 zoo's shapes, small and with seeded weights, as frozen graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from backends.tensorflow.nets import Maker
from lpot.backends.tensorflow.runtime import GraphDef, tf, v1

SIZE = 64
CLASSES = 3
WIDTH = 16
BOTTOM_UP = "FeatureExtractor/resnet_v1_50/fpn/bottom_up_block5/Conv2D"
TOWER = "WeightSharedConvolutionalBoxPredictor_2/ClassPredictionTower/conv2d_0/Conv2D"
OUTPUTS = ("num_detections", "detection_boxes", "detection_scores", "detection_classes")


@contextmanager
def first_control_flow() -> Iterator[None]:
    """While loops as TensorFlow 1 writes them: Enter, Switch, Merge, NextIteration, TensorArray."""
    was = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        yield
    finally:
        if was:
            v1.enable_control_flow_v2()


def preprocess() -> Any:
    """Each image resized in a while loop, as the zoo's Preprocessor does."""
    images = v1.placeholder(tf.uint8, [None, None, None, 3], name="image_tensor")
    with tf.name_scope("Preprocessor"):
        resized = tf.map_fn(
            lambda image: tf.image.resize(image, [SIZE, SIZE]),
            tf.cast(images, tf.float32),
            fn_output_signature=tf.float32,
        )
        return tf.ensure_shape(resized, [None, SIZE, SIZE, 3]) / 127.5 - 1.0


def bottleneck(make: Maker, x: Any, name: str, stride: int = 1) -> Any:
    """ResNet v1: three convolutions with batch norm, a shortcut, Relu after the sum."""
    width = int(x.shape[-1])
    y = tf.nn.relu(make.norm(make.conv(x, WIDTH // 2, 1, name=f"{name}/conv1/Conv2D")))
    y = tf.nn.relu(make.norm(make.conv(y, WIDTH // 2, 3, stride, name=f"{name}/conv2/Conv2D")))
    y = make.norm(make.conv(y, WIDTH, 1, name=f"{name}/conv3/Conv2D"))
    if stride > 1 or width != WIDTH:
        x = make.norm(make.conv(x, WIDTH, 1, stride, name=f"{name}/shortcut/Conv2D"))
    return tf.nn.relu(x + y)


def pyramid(make: Maker, x: Any) -> list[Any]:
    root = "FeatureExtractor/resnet_v1_50/"
    x = tf.nn.relu(make.norm(make.conv(x, WIDTH, 7, 4, name=f"{root}resnet_v1_50/conv1/Conv2D")))
    fine = bottleneck(make, x, f"{root}resnet_v1_50/block3/unit_1")
    coarse = bottleneck(make, fine, f"{root}resnet_v1_50/block4/unit_1", stride=2)
    top = make.conv(coarse, WIDTH, 1, name=f"{root}fpn/projection_2/Conv2D")
    near = make.conv(fine, WIDTH, 1, name=f"{root}fpn/projection_1/Conv2D")
    merged = near + tf.repeat(tf.repeat(top, 2, axis=1), 2, axis=2)
    smooth = make.conv(merged, WIDTH, 3, name=f"{root}fpn/smoothing_1/Conv2D")
    block5 = make.conv(top, WIDTH, 3, 2, name=BOTTOM_UP)
    return [smooth, top, tf.nn.relu(make.norm(block5))]


class SharedPredictor:
    """The same weights at each level, with a batch norm of its own."""

    def __init__(self, make: Maker) -> None:
        self.make = make
        self.towers = {
            kind: make.weight(3, 3, WIDTH, WIDTH, gain=1.4)
            for kind in ("ClassPredictionTower", "BoxPredictionTower")
        }
        self.classes = make.weight(3, 3, WIDTH, CLASSES + 1, gain=2.0)
        self.boxes = make.weight(3, 3, WIDTH, 4, gain=0.5)

    def __call__(self, level: int, x: Any) -> tuple[Any, Any]:
        scope = "WeightSharedConvolutionalBoxPredictor" + (f"_{level}" if level else "")
        rows = []
        heads = (self.classes, self.boxes)
        for (kind, weight), head in zip(self.towers.items(), heads, strict=True):
            y = tf.nn.conv2d(x, weight, 1, "SAME", name=f"{scope}/{kind}/conv2d_0/Conv2D")
            y = tf.nn.relu6(self.make.norm(y))
            last = f"{scope}/{kind[:-5]}er/Conv2D"
            y = tf.nn.bias_add(
                tf.nn.conv2d(y, head, 1, "SAME", name=last), self.make.vector(int(head.shape[-1]))
            )
            rows.append(tf.reshape(y, [tf.shape(y)[0], -1, int(head.shape[-1])]))
        return rows[0], rows[1]


def anchors(sizes: list[int]) -> np.ndarray:
    """(ymin, xmin, ymax, xmax) of one square around each cell of each level."""
    rows = []
    for size in sizes:
        centre = (np.arange(size) + 0.5) / size
        y, x = (axis.reshape(-1) for axis in np.meshgrid(centre, centre, indexing="ij"))
        half = 1.0 / size
        rows.append(np.stack([y - half, x - half, y + half, x + half], axis=1))
    return np.concatenate(rows).astype(np.float32)


def finish(boxes: Any, scores: Any, most: int = 20) -> Any:
    """The four outputs of the zoo; gives the boxes kept."""
    kept, score, kind, count = tf.image.combined_non_max_suppression(
        boxes[:, :, None], scores, 10, most, 0.6, 0.05
    )
    tf.cast(count, tf.float32, name=OUTPUTS[0])
    tf.identity(kept, name=OUTPUTS[1])
    tf.identity(score, name=OUTPUTS[2])
    tf.identity(kind + 1.0, name=OUTPUTS[3])
    return kept


def ssd_resnet50_fpn(seed: int = 0) -> GraphDef:
    """An SSD with a feature pyramid and shared predictors, under the names of the zoo."""
    graph = tf.Graph()
    with first_control_flow(), graph.as_default():
        make = Maker(seed)
        levels = pyramid(make, preprocess())
        predict = SharedPredictor(make)
        classes, offsets = zip(*(predict(n, x) for n, x in enumerate(levels)), strict=True)
        scores = tf.sigmoid(tf.concat(classes, axis=1))[:, :, 1:]
        boxes = anchors([int(x.shape[1]) for x in levels]) + 0.02 * tf.concat(offsets, axis=1)
        finish(tf.clip_by_value(boxes, 0.0, 1.0), scores)
    return graph.as_graph_def()


def mask_rcnn(seed: int = 0, masks: bool = True, proposals: int = 12) -> GraphDef:
    """Two stages: proposals by a while loop over images, CropAndResize, a head, masks."""
    graph = tf.Graph()
    with first_control_flow(), graph.as_default():
        make = Maker(seed)
        x = preprocess()
        stem = make.norm(make.conv(x, WIDTH, 7, 4, name="FirstStageFeatureExtractor/Conv2D"))
        features = bottleneck(make, tf.nn.relu(stem), "FirstStageFeatureExtractor/block", stride=2)
        chosen = propose(make, features, proposals)
        crops = crop(features, chosen, proposals)
        head = bottleneck(make, crops, "SecondStageFeatureExtractor/block")
        rows = tf.reduce_mean(head, [1, 2])
        logits = make.dense(rows, CLASSES + 1, "SecondStageBoxPredictor/ClassPredictor")
        moves = make.dense(rows, 4, "SecondStageBoxPredictor/BoxEncodingPredictor")
        scores = tf.reshape(tf.nn.softmax(3.0 * logits), [-1, proposals, CLASSES + 1])[:, :, 1:]
        boxes = chosen + 0.02 * tf.reshape(moves, [-1, proposals, 4])
        kept = finish(tf.clip_by_value(boxes, 0.0, 1.0), scores, most=8)
        if masks:
            predict_masks(make, crop(features, kept, 8))
    return graph.as_graph_def()


def propose(make: Maker, features: Any, count: int) -> Any:
    """The best boxes of each image, chosen one image after the other."""
    y = tf.nn.relu6(make.conv(features, WIDTH, 3, name="Conv/Conv2D"))
    score = make.conv(y, 1, 1, name="FirstStageBoxPredictor/ClassPredictor/Conv2D")
    move = make.conv(y, 4, 1, name="FirstStageBoxPredictor/BoxEncodingPredictor/Conv2D")
    grid = anchors([int(features.shape[1])])
    boxes = grid + 0.05 * tf.reshape(move, [-1, len(grid), 4])
    boxes = tf.clip_by_value(boxes, 0.0, 1.0)

    def choose(pair: Any) -> Any:
        one, scores = pair
        picked = tf.image.non_max_suppression(one, scores, count, 0.7)
        found = tf.gather(one, picked)
        return tf.pad(found, [[0, count - tf.shape(found)[0]], [0, 0]])

    scores = tf.reshape(score, [-1, len(grid)])
    chosen = tf.map_fn(choose, (boxes, scores), fn_output_signature=tf.float32)
    return tf.ensure_shape(chosen, [None, count, 4])


def crop(features: Any, boxes: Any, count: int) -> Any:
    images = tf.repeat(tf.range(tf.shape(features)[0]), count)
    rows = tf.reshape(boxes, [-1, 4])
    crops = tf.image.crop_and_resize(features, rows, images, [8, 8], name="CropAndResize")
    return tf.nn.max_pool2d(crops, 2, 2, "SAME")


def predict_masks(make: Maker, crops: Any) -> None:
    """Masks of the boxes kept: a transposed convolution between two plain ones."""
    x = tf.nn.relu(make.conv(crops, WIDTH, 3, name="SecondStageBoxPredictor_1/Conv/Conv2D"))
    weight = make.weight(2, 2, WIDTH, WIDTH)
    shape = [tf.shape(x)[0], 8, 8, WIDTH]
    x = tf.nn.relu(tf.nn.conv2d_transpose(x, weight, shape, 2))
    y = make.conv(x, 1, 1, name="SecondStageBoxPredictor_1/Conv_1/Conv2D")
    tf.reshape(tf.sigmoid(4.0 * y), [-1, 8, 8, 8], name="detection_masks")
