"""Accuracy and speed of a checkpoint, of the INT8 model tuned from it, or of both, compared."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import run_glue_tune
import run_squad_tune
import torch
import transformers
from task_arguments import WITH_TYPES, Parser, by_name, fail
from task_model import INT8, load_tokenizer, read_config, with_stubs
from torch import nn
from torch.utils.data import TensorDataset

import lpot
from lpot.benchmark import Contestant, InputSpec, Settings, benchmark
from lpot.metric import get_metric
from lpot.utils.pytorch import load

DRAWS = 1000  # resamplings of a paired bootstrap
Call = Callable[[Mapping[str, np.ndarray]], object]


def open_model(folder: str, head: str, stubbed_from: str | None = None) -> nn.Module:
    """A checkpoint's FP32 model or a tuned one. One tuned with stubs in it needs a module with
    stubs to be put into, which is made from the FP32 checkpoint."""
    if not (Path(folder) / "lpot.json").is_file():
        kind = getattr(transformers, head)
        return kind.from_pretrained(folder, local_files_only=True).float().eval()
    if stubbed_from is not None:
        return load(folder, with_stubs(open_model(stubbed_from, head)))
    return lpot.load(folder, "pytorch").native


def contestant(
    folder: str, head: str, stubbed_from: str | None = None
) -> tuple[Call, list[InputSpec]]:
    """For the benchmark's child process: a callable and its inputs."""
    model = open_model(folder, head, stubbed_from)

    def call(feed: Mapping[str, np.ndarray]) -> object:
        with torch.inference_mode():
            return model(**{name: torch.from_numpy(value) for name, value in feed.items()})

    names = ("input_ids", "attention_mask", "token_type_ids")
    taken = names if model.config.model_type in WITH_TYPES else names[:2]
    return call, [InputSpec(name, "int64", ("n", "length")) for name in taken]


class Task:
    """GLUE or SQuAD behind the same three questions: data, model, score of each draw."""

    def __init__(self, args: argparse.Namespace) -> None:
        name = args.topology.rpartition("_")[2]
        self.squad = name.lower() == "squad"
        self.script: Any = run_squad_tune if self.squad else run_glue_tune
        words = ["--do_eval", "--no_cuda", f"--task_name={name}", f"--output_dir={args.scratch}"]
        words += [f"--model_name_or_path={args.fp32}", f"--data_dir={args.dataset_location}"]
        words += [f"--per_gpu_eval_batch_size={args.batch_size}"]
        for flag in ("max_eval_samples", "max_seq_length"):
            if getattr(args, flag):
                words.append(f"--{flag}={getattr(args, flag)}")
        self.args = self.script.read_arguments(words)
        read_config(self.args)
        self.tokenizer = load_tokenizer(self.args)
        self.found: Any = self.script.load_and_cache_examples(
            self.args, self.tokenizer, evaluate=True, output_examples=True
        )

    @property
    def dataset(self) -> TensorDataset:
        return self.found[0] if self.squad else self.found

    def batch(self, size: int) -> dict[str, np.ndarray]:
        rows = self.dataset[:size]
        return {name: value.numpy() for name, value in by_name(self.args, rows).items()}

    def answers(self, model: nn.Module) -> tuple[dict[str, float], Any]:
        return self.script.evaluate(self.args, model, self.tokenizer)

    def drops(self, before: Any, after: Any, seed: int = 0) -> tuple[str, np.ndarray]:
        """The metric's name, and its relative drop in each paired resampling of the dev set."""
        draw = np.random.default_rng(seed)
        if self.squad:
            metric = get_metric("SquadF1")
            references = {one.qas_id: one.answers for one in self.found[1]}
            pair = [metric.per_sample(one, references) for one in (before, after)]
            picks = draw.integers(0, len(references), (DRAWS, len(references)))
            means = [one[picks].mean(1) for one in pair]
            usable = means[0] > 0
            return "f1", 1 - means[1][usable] / means[0][usable]
        labels = self.dataset.tensors[-1].numpy()
        metric = get_metric("GLUE", task=self.args.task_name)
        metric.update(_outputs(before), labels)
        key = next(key for key in run_glue_tune.ACCURACY_KEYS if key in metric.details)
        found = []
        for _ in range(DRAWS):
            pick = draw.integers(0, len(labels), len(labels))
            scores = []
            for logits in (before, after):
                metric.reset()
                metric.update(_outputs(logits)[pick], labels[pick])
                scores.append(_score(metric, key))
            if scores[0] and None not in scores:
                found.append(1 - scores[1] / scores[0])
        return key, np.asarray(found)


def _outputs(logits: torch.Tensor) -> np.ndarray:
    array = logits.numpy()
    return array.reshape(-1) if array.shape[-1] == 1 else array


def _score(metric: Any, key: str) -> float | None:
    """None where a draw has no score: a few rows may be all alike."""
    try:
        return float(metric.details[key])
    except lpot.LpotError:
        return None


def measure(args: argparse.Namespace, task: Task, folders: Sequence[str]) -> None:
    """Time of a batch: each model in a process of its own, in turns."""
    head = task.script.HEAD
    labels = ["FP32" if folder == args.fp32 else "INT8" for folder in folders]
    models = [
        Contestant(
            "run_benchmark:contestant",
            "callable",
            label,
            arguments={"folder": folder, "head": head, "stubbed_from": args.stubbed_from},
        )
        for label, folder in zip(labels, folders, strict=True)
    ]
    batch = task.batch(args.batch_size)
    found = benchmark(
        models,
        feeds=batch,
        settings=Settings(seconds=args.seconds, iteration=args.iters),
        environment={"PYTHONPATH": str(Path(__file__).resolve().parent)},
    )
    size = len(next(iter(batch.values())))
    for one in found.models:
        if one.timing is None:
            raise fail(f"{one.label} could not be measured: {one.error}")
        seconds = one.timing.median
        print(f"{one.label}: Batch size = {size}")
        print(f"{one.label}: Latency: {seconds / size * 1e3:.3f} ms")
        print(f"{one.label}: Throughput: {size / seconds:.1f} samples/sec")
        print(f"{one.label}: peak memory {one.peak_memory / 1e6:.0f} MB")
        if one.comparison is not None:
            versus = one.comparison
            print(f"times faster: {versus.ratio:.2f} [{versus.low:.2f}, {versus.high:.2f}]")


def compare(args: argparse.Namespace, task: Task) -> None:
    """Both models on the same samples: is the drop more than chance?"""
    before, first = task.answers(open_model(args.fp32, task.script.HEAD))
    after, second = task.answers(open_model(args.int8_model, task.script.HEAD, args.stubbed_from))
    key, drops = task.drops(first, second)
    print(f"{key}: FP32 {before[key]:.4f}, INT8 {after[key]:.4f}")
    if not before[key] or not len(drops):
        print("no relative drop: FP32 scores 0")
        return
    low, high = np.percentile(drops, (2.5, 97.5))
    drop = 1 - after[key] / before[key]
    print(f"relative drop {drop:.2%}, between {low:.2%} and {high:.2%} (95 %, paired bootstrap)")


def read_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--topology", "--task_name", default="bert_base_MRPC", help="ends with the task's name")
    add("--mode", choices=("benchmark", "performance", "accuracy", "compare"), default="benchmark")
    add("--int8", default="false", type=str.lower, choices=("true", "false"))
    add("--input_model", required=True, help="the checkpoint; its INT8 model is in int8/ there")
    add("--int8_model", help="the INT8 model's folder, if it lies elsewhere")
    add("--dataset_location", required=True)
    add("--batch_size", type=int, default=8)
    add("--manual_stubs", action="store_true", help="the model was tuned with --manual_stubs")
    add("--iters", type=int, help="timed runs; as many as fit into --seconds otherwise")
    add("--seconds", type=float, default=3.0, help="timed seconds of each model")
    add("--max_seq_length", type=int, help="128, for SQuAD 384")
    add("--max_eval_samples", type=int)
    args = parser.parse_all(words)
    given = Path(args.input_model)
    if given.name == INT8 and not (given.parent / "config.json").is_file():
        parser.error(f"--input_model {given}: the FP32 checkpoint around it is missing")
    args.fp32 = str(given.parent if given.name == INT8 else given)
    args.int8_model = args.int8_model or str(Path(args.fp32) / INT8)
    args.scratch = args.fp32
    args.stubbed_from = args.fp32 if args.manual_stubs else None
    wanted = args.int8 == "true" or args.mode == "compare"
    if wanted and not (Path(args.int8_model) / "lpot.json").is_file():
        parser.error(f"{args.int8_model} holds no tuned model: run_tuning.sh makes it")
    return args


def main(words: Sequence[str] | None = None) -> None:
    args = read_arguments(words)
    task = Task(args)
    chosen = args.int8_model if args.int8 == "true" else args.fp32
    if args.mode == "accuracy":
        model = open_model(chosen, task.script.HEAD, args.stubbed_from)
        for key, value in sorted(task.answers(model)[0].items()):
            print(f"{key} = {value}")
    elif args.mode == "compare":
        compare(args, task)
        measure(args, task, [args.fp32, args.int8_model])
    else:
        measure(args, task, [chosen])


if __name__ == "__main__":
    try:
        main()
    except lpot.LpotError as error:
        raise fail(str(error)) from error
