"""Put a checkpoint together whose embeddings lie in another folder (weights shared by several).

    python prepare_model.py --model DIR --embeddings DIR --output_dir DIR

`--model` has config.json and model.safetensors without the embeddings, `--embeddings` the encoder
they come from and its tokenizer. What is written is a checkpoint as the scripts take it.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

TOKENIZER = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def assemble(model: Path, embeddings: Path, output: Path) -> None:
    state = load_file(model / "model.safetensors")
    kind = json.loads((model / "config.json").read_text("utf-8"))["model_type"]
    shared = load_file(embeddings / "model.safetensors")
    for name, tensor in shared.items():
        bare = name.removeprefix(f"{kind}.")
        if bare.startswith("embeddings.") and not bare.endswith("position_ids"):
            state.setdefault(f"{kind}.{bare}", tensor)
    output.mkdir(parents=True, exist_ok=True)
    full = {name: tensor.to(torch.float32) for name, tensor in state.items()}
    save_file(full, output / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(model / "config.json", output / "config.json")
    for name in TOKENIZER:
        if (embeddings / name).is_file():
            shutil.copyfile(embeddings / name, output / name)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("--model", "--embeddings", "--output_dir"):
        parser.add_argument(name, type=Path, required=True)
    args = parser.parse_args(words)
    for folder in (args.model, args.embeddings):
        for name in ("config.json", "model.safetensors"):
            if not (folder / name).is_file():
                parser.error(f"{folder} has no {name}")
    try:
        assemble(args.model, args.embeddings, args.output_dir)
    except (SafetensorError, ValueError, KeyError) as error:
        parser.error(f"{args.model} or {args.embeddings} is no checkpoint of transformers: {error}")


if __name__ == "__main__":
    main()
