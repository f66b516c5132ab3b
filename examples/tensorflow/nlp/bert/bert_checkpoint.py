"""BERT's weights: checkpoints found, written, and put into a graph.

    python bert_checkpoint.py --source DIR --output_dir DIR

turns a folder of PyTorch's BertForQuestionAnswering (config.json, model.safetensors, vocab.txt)
into a checkpoint of the public BERT code's names with bert_config.json and vocab.txt beside it.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

# What PyTorch's BERT calls a tensor, piece by piece, in the words of the public BERT code.
WORDS = (
    ("encoder.layer.", "encoder.layer_"),
    ("embeddings.weight", "embeddings"),
    ("LayerNorm.weight", "LayerNorm.gamma"),
    ("LayerNorm.bias", "LayerNorm.beta"),
    ("qa_outputs.weight", "cls.squad.output_weights"),
    ("qa_outputs.bias", "cls.squad.output_bias"),
    (".weight", ".kernel"),
)
ACTIVATIONS = {"gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu"}


def checkpoint_prefix(place: str | Path) -> str:
    """A checkpoint's prefix, from itself or from the folder it lies in, however deep."""
    path = Path(place)
    if path.is_dir():
        listed = tf.train.latest_checkpoint(str(path))
        if listed:
            return listed
        found = sorted(path.rglob("*.index"), key=lambda item: item.stat().st_mtime)
        if not found:
            raise SystemExit(f"{path}: holds no checkpoint (*.index)")
        return str(found[-1].with_suffix(""))
    if not path.with_name(f"{path.name}.index").is_file():
        raise SystemExit(f"{path}: no such checkpoint ({path.name}.index is missing)")
    return str(path)


def restored(graph: tf.Graph, prefix: str) -> v1.Session:
    """A session of the graph with the checkpoint's values; what the checkpoint lacks is named."""
    held = {name for name, _ in tf.train.list_variables(prefix)}
    with graph.as_default():
        wanted = v1.global_variables()
        missing = [item.op.name for item in wanted if item.op.name not in held]
        if missing:
            what = "not fine-tuned for SQuAD" if missing[0].startswith("cls/") else "another net"
            raise SystemExit(
                f"{prefix}: lacks {len(missing)} variables, the first is {missing[0]}: {what}?"
            )
        session = v1.Session(graph=graph)
        v1.train.Saver(wanted).restore(session, prefix)
    return session


def freeze(session: v1.Session, outputs: list[str]) -> Any:
    """The session's graph with variables as constants."""
    graph_def = session.graph.as_graph_def()
    return v1.graph_util.convert_variables_to_constants(session, graph_def, outputs)


def save(session: v1.Session, folder: Path) -> str:
    """A checkpoint with its graph (.meta): a directory that lpot reads as a model."""
    folder.mkdir(parents=True, exist_ok=True)
    with session.graph.as_default():
        return str(v1.train.Saver().save(session, str(folder / "model.ckpt")))


def write(prefix: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays as a checkpoint, without a graph."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    part = f"{prefix}.part"
    names = list(arrays)
    values = [tf.constant(arrays[name]) for name in names]
    tf.raw_ops.SaveV2(
        prefix=part, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
    )
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=[part], destination_prefix=str(prefix))


def from_transformers(folder: Path) -> dict[str, np.ndarray]:
    """Tensors of PyTorch's BertForQuestionAnswering under the names of the public BERT code."""
    from safetensors.numpy import load_file

    tensors = load_file(folder / "model.safetensors")
    if not any(name.startswith("bert.embeddings.") for name in tensors):
        # Frozen in training and kept once, beside the model it was made from.
        base = load_file(folder.parent / "minilm_l6_bert" / "model.safetensors")
        tensors |= {f"bert.{k}": v for k, v in base.items() if k.startswith("embeddings.")}
    arrays = {}
    for name, value in tensors.items():
        if name.endswith("position_ids"):
            continue
        plain = name
        for theirs, ours in WORDS:
            plain = plain.replace(theirs, ours)
        value = value.T if plain.endswith(".kernel") else value
        arrays[plain.replace(".", "/")] = np.ascontiguousarray(value, dtype=np.float32)
    return arrays


def convert(source: Path, target: Path) -> Path:
    """A folder as `prepare_model.sh` gives it, from PyTorch's."""
    config = json.loads((source / "config.json").read_text())
    act = config.get("hidden_act", "gelu")
    config["hidden_act"] = ACTIVATIONS.get(act, act)
    write(target / "model.ckpt", from_transformers(source))
    (target / "bert_config.json").write_text(json.dumps(config, indent=2))
    vocabularies = [source / "vocab.txt", source.parent / "minilm_l6_bert" / "vocab.txt"]
    found = next((path for path in vocabularies if path.is_file()), None)
    if found is None:
        raise SystemExit(f"{source}: holds no vocab.txt")
    shutil.copyfile(found, target / "vocab.txt")
    return target / "model.ckpt"


def main() -> None:
    parser = argparse.ArgumentParser(description="A PyTorch BERT as a BERT checkpoint")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    options = parser.parse_args()
    print(convert(options.source, options.output_dir))


if __name__ == "__main__":
    main()
