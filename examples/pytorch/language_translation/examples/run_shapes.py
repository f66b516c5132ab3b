"""What to expect of the real checkpoint: BERT-base or -large with random weights, tuned and timed.

    python run_shapes.py --shape base --batch_size 8 [--max_seq_length 128]

Random weights have no accuracy; the figure shown is how often INT8 and FP32 agree.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import transformers
from torch import nn

import lpot

# layers, width, heads
SHAPES = {"tiny": (2, 32, 2), "base": (12, 768, 12), "large": (24, 1024, 16)}
LONGEST = 512


@dataclass(frozen=True)
class Found:
    """One shape's figures; sizes in bytes."""

    speed: float | None
    peak: int
    before: int
    sizes: tuple[int, int]
    agreement: float


def make_model(shape: str) -> nn.Module:
    layers, width, heads = SHAPES[shape]
    torch.manual_seed(0)
    config = transformers.BertConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=LONGEST,
    )
    return transformers.BertForSequenceClassification(config).eval()


def peak_memory() -> int:
    """The most this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(shape: str, batch_size: int, length: int, batches: int, workspace: str) -> Found:
    model = make_model(shape)
    draw = torch.Generator().manual_seed(1)
    data = [
        {
            "input_ids": torch.randint(1000, 30000, (batch_size, length), generator=draw),
            "attention_mask": torch.ones(batch_size, length, dtype=torch.int64),
        }
        for _ in range(batches)
    ]
    with torch.inference_mode():
        wanted = [model(**batch).logits.argmax(1) for batch in data]
    before = peak_memory()

    def agreement(candidate: nn.Module) -> float:
        with torch.inference_mode():
            found = [candidate(**batch).logits.argmax(1) for batch in data]
        return float((torch.cat(found) == torch.cat(wanted)).float().mean())

    result = lpot.tune(
        model,
        data,
        agreement,
        goal=0.5,
        really=True,
        strategy="basic",
        workspace=workspace,
        new_run=True,
    )
    sizes = result.sizes or (0, 0)
    return Found(result.speed, peak_memory(), before, sizes, result.accuracy or 0.0)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="base")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batches", type=int, default=2, help="of random tokens")
    parser.add_argument("--workspace", default="lpot_workspace/shapes")
    args = parser.parse_args(words)
    for name in ("batch_size", "max_seq_length", "batches"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} should be 1 or more, not {getattr(args, name)}")
    if args.max_seq_length > LONGEST:
        parser.error(f"--max_seq_length {args.max_seq_length}: BERT has {LONGEST} positions")
    found = measure(args.shape, args.batch_size, args.max_seq_length, args.batches, args.workspace)
    print(f"{args.shape}, batch {args.batch_size}, {args.max_seq_length} tokens")
    print("times faster: " + ("not measured" if found.speed is None else f"{found.speed:.2f}"))
    megabytes = [size / 1e6 for size in (found.before, found.peak, *found.sizes)]
    print("memory: {:.0f} MB with FP32 alone, {:.0f} MB at the tuning's peak".format(*megabytes))
    print("weights: {2:.0f} MB in FP32, {3:.0f} MB tuned".format(*megabytes))
    print(f"agreement with FP32: {found.agreement:.3f}")


if __name__ == "__main__":
    main()
