"""BERT's embeddings from a TensorFlow checkpoint folder or from a folder of safetensors."""

from __future__ import annotations

from pathlib import Path

import torch
from models import EMBEDDINGS, Embeddings

TF_NAMES = {
    "word.weight": "bert/embeddings/word_embeddings",
    "position.weight": "bert/embeddings/position_embeddings",
    "token_type.weight": "bert/embeddings/token_type_embeddings",
    "norm.weight": "bert/embeddings/LayerNorm/gamma",
    "norm.bias": "bert/embeddings/LayerNorm/beta",
}
NAMES = {f"{name}.weight": f"embeddings.{name}_embeddings.weight" for name in EMBEDDINGS}
NAMES |= {f"norm.{name}": f"embeddings.LayerNorm.{name}" for name in ("weight", "bias")}


def read_embeddings(folder: Path) -> dict[str, torch.Tensor]:
    """The five tensors of `models.Embeddings` by name."""
    if (folder / "model.safetensors").is_file():
        return _from_safetensors(folder / "model.safetensors")
    if (folder / "bert_model.ckpt.index").is_file():
        return _from_tensorflow(folder / "bert_model.ckpt")
    raise SystemExit(
        f"error: {folder} has neither bert_model.ckpt.index (BERT-Base as published) nor "
        "model.safetensors: name a folder of embeddings in the json file, or with --embeddings"
    )


def _from_safetensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    stored = load_file(path)
    found = {}
    for name, full in NAMES.items():
        match = [key for key in stored if key == full or key.endswith(f".{full}")]
        if not match:
            raise SystemExit(f"error: {path} has no {full}: is it a BERT model?")
        found[name] = stored[match[0]].to(torch.float32)
    return found


def _from_tensorflow(prefix: Path) -> dict[str, torch.Tensor]:
    try:
        from tensorflow.train import load_checkpoint
    except ImportError as error:
        raise SystemExit(
            f"error: reading {prefix} takes TensorFlow: pip install tensorflow-cpu"
        ) from error
    reader = load_checkpoint(str(prefix))
    return {name: torch.from_numpy(reader.get_tensor(key)) for name, key in TF_NAMES.items()}


def fill(target: Embeddings, tensors: dict[str, torch.Tensor]) -> None:
    """Put them in and freeze them."""
    target.load_state_dict(tensors)
    target.requires_grad_(False)
