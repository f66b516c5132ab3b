"""examples/tensorflow/style_transfer, with the command that stands in the BERT tutorial."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("PIL")

from PIL import Image

from examples.tiny_bert import example_module
from lpot.adaptor.tf_utils.util import get_graph_def, write_graph

FOLDER = "tensorflow/style_transfer"


def test_the_tutorial_s_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lpot.jobs.finish.result.with_speed", lambda job, result: result)
    random = np.random.default_rng(0)
    for folder in ("style_images", "content_images"):
        Path(folder).mkdir()
        for number in range(2):
            pixels = random.integers(0, 256, (6, 6, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((64, 48)).save(f"{folder}/{number}.jpg")
    graphs = example_module(FOLDER, "style_graph")
    write_graph(graphs.style_graph(), Path("model") / graphs.FILE)
    main = example_module(FOLDER, "style_tune").main
    command = (
        "--output_dir=./result --style_images_paths=./style_images "
        "--content_images_paths=./content_images --model_dir=./model --precision=quantized"
    )
    main([*command.split(), "--image_size=48"])
    kinds = {node.op for node in get_graph_def("result/style_transfer_int8.pb").node}
    assert "_FusedQuantizedConv2D" in kinds
    assert len(list(Path("result").glob("stylized_*.png"))) == 4
    with pytest.raises(SystemExit, match=r"expected one \.pb, found 0"):
        main([*command.replace("./model", "./result/none").split()])
