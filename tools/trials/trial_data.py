"""Images and records read back, and the metrics that need a library."""

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from lpot.data import DataLoader, get_dataset
from lpot.metric import get_metric

with tempfile.TemporaryDirectory() as name:
    for label in ("cat", "dog"):
        Path(name, label).mkdir()
        pixels = np.full((12, 12, 3), 10 if label == "cat" else 200, np.uint8)
        Image.fromarray(pixels).save(Path(name, label, "0.png"))
    dataset = get_dataset("ImageFolder", root=name)
    ((images, labels),) = DataLoader(dataset, batch_size=2)
assert np.asarray(images).shape == (2, 12, 12, 3) and list(np.ravel(labels)) == [0, 1]

bleu = get_metric("BLEU")
bleu.update(["the cat sat on the mat"], ["the cat sat on the mat"])
assert round(bleu.result()) == 100
spearman = get_metric("Spearman")
spearman.update([1.0, 2.0, 3.0], [2.0, 4.0, 9.0])
assert round(spearman.result(), 6) == 1.0
detections = get_metric("COCOmAP")
box, score, kind = [[[0.1, 0.1, 0.5, 0.5]]], [[0.9]], [[1]]
detections.update((box, score, kind), (box, [["person"]], [[1]], [b"1"]))
assert detections.result() > 0.99
