"""Style transfer in FP32 or tuned to INT8, judged by PSNR against FP32.

    python style_tune.py --output_dir=./result --style_images_paths=./style_images \
        --content_images_paths=./content_images --model_dir=./model --precision=quantized
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # read when TensorFlow is imported

import numpy as np
import tensorflow as tf
from PIL import Image

from lpot import Quantization
from lpot.adaptor.tf_utils.util import get_graph_def, write_graph

v1 = tf.compat.v1
BEST = 60.0  # dB; what is nearer to FP32 counts as this
HERE = Path(__file__).parent


class Stylizer:
    """Runs graphs over all pairs of images; the first one it scores is the reference."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.reference: list[np.ndarray] = []

    def images(self, graph: tf.Graph) -> Iterator[np.ndarray]:
        with v1.Session(graph=graph) as session:
            for number in range(len(self.dataset)):
                (content, style), _ = self.dataset[number]
                fed = {"content:0": content[None], "style:0": style[None]}
                yield session.run("stylized:0", fed)[0]

    def psnr(self, graph: tf.Graph) -> float:
        """Mean PSNR in dB against FP32, which is scored first."""
        found = list(self.images(graph))
        if not self.reference:
            self.reference = found
        values = []
        for one, exact in zip(found, self.reference, strict=True):
            error = float(np.mean((one - exact) ** 2))
            values.append(BEST if error == 0 else min(BEST, -10 * np.log10(error)))
        return float(np.mean(values))

    def write(self, graph: tf.Graph, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for number, image in enumerate(self.images(graph)):
            pixels = np.rint(255 * image).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"stylized_{number}.png")


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Style transfer, FP32 or tuned")
    add = parser.add_argument
    add("--output_dir", type=Path, default=Path("./result"))
    add("--style_images_paths", required=True, help="folder of style images")
    add("--content_images_paths", required=True, help="folder of content images")
    add("--model_dir", type=Path, default=Path("./model"), help="folder of the frozen graph")
    add("--precision", choices=("fp32", "quantized"), default="quantized")
    add("--config", default=str(HERE / "style_transfer.yaml"))
    add("--image_size", type=int, default=256)
    add("--image_format", default="jpg")
    return parser.parse_args(arguments)


def load(folder: Path) -> tf.Graph:
    found = sorted(folder.glob("*.pb"))
    if len(found) != 1:
        raise SystemExit(f"{folder}: expected one .pb, found {len(found)}; see style_graph.py")
    graph = tf.Graph()
    with graph.as_default():
        v1.import_graph_def(get_graph_def(str(found[0]), ["stylized"]), name="")
    return graph


def main(arguments: list[str] | None = None) -> None:
    args = parse_args(arguments)
    graph = load(args.model_dir)
    quantizer = Quantization(args.config)
    dataset = quantizer.dataset(
        "style_transfer",
        content_folder=args.content_images_paths,
        style_folder=args.style_images_paths,
        resize_shape=(args.image_size, args.image_size),
        image_format=args.image_format,
    )
    stylizer = Stylizer(dataset)
    if args.precision == "quantized":
        loader = quantizer.dataloader(dataset)
        graph = quantizer(graph, q_dataloader=loader, eval_func=stylizer.psnr)
        write_graph(graph.as_graph_def(), args.output_dir / "style_transfer_int8.pb")
    stylizer.write(graph, args.output_dir)


if __name__ == "__main__":
    main()
