"""BERT on the nine GLUE tasks: fine-tune (--do_train), evaluate (--do_eval), quantize (--tune)."""

from __future__ import annotations

import argparse
import difflib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from task_arguments import (
    Parser,
    by_name,
    fail,
    find_config,
    leave,
    new_parser,
    progress,
    settle,
    write_results,
)
from task_model import (
    cached,
    load_model,
    load_tokenizer,
    save_checkpoint,
    tokenizer_folder,
    with_stubs,
)
from task_training import clear_saved, is_finished, train
from task_tuning import keep_apart, keep_tuned
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset

from lpot import LpotError
from lpot.data import get_dataset
from lpot.metric import get_metric

logger = logging.getLogger(__name__)

HEAD = "AutoModelForSequenceClassification"
# task → number of the model's outputs
LABELS = {
    "cola": 2, "sst-2": 2, "mrpc": 2, "sts-b": 1, "qqp": 2, "mnli": 3, "qnli": 2, "rte": 2,
    "wnli": 2,
}  # fmt: skip
ACCURACY_KEYS = ("best_f1", "f1", "mcc", "spearmanr", "acc")


def load_and_cache_examples(
    args: argparse.Namespace,
    tokenizer: Any,
    evaluate: bool = False,
    output_examples: bool = False,
    task: str | None = None,
) -> TensorDataset:
    """Token numbers, mask, token types and label of each row."""
    task = task or args.task_name
    source = get_dataset(
        "GLUE",
        args.data_dir,
        tokenizer_folder(args, tokenizer),
        max_seq_length=args.max_seq_length,
        do_lower_case=args.do_lower_case,
        task=task,
        model_type=args.model_type,
        evaluate=evaluate,
    )

    def make() -> list[torch.Tensor]:
        rows = [source[at] for at in progress(range(len(source)), "tokenizing", len(source))]
        names = ("input_ids", "attention_mask", "token_type_ids")
        first = rows[0][0]
        columns = [
            torch.stack([torch.from_numpy(row[name]) for row, _ in rows])
            if name in first
            else torch.zeros(len(rows), args.max_seq_length, dtype=torch.int64)
            for name in names
        ]
        kind = torch.float32 if LABELS.get(task) == 1 else torch.int64
        return [*columns, torch.tensor([label for _, label in rows], dtype=kind)]

    dataset = cached(args, f"{'dev' if evaluate else 'train'}_{task}", source.path, make)
    if evaluate and args.max_eval_samples:
        dataset = TensorDataset(*dataset[: args.max_eval_samples])
    return dataset


def loss_from(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    if logits.shape[-1] == 1:
        return mse_loss(logits.reshape(-1), labels)
    return cross_entropy(logits, labels)


def predict(
    args: argparse.Namespace, model: nn.Module, dataset: TensorDataset
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and labels of all rows."""
    loader = DataLoader(dataset, batch_size=args.eval_batch_size)
    logits = []
    for batch in progress(loader, "evaluating", len(loader)):
        with torch.inference_mode():
            logits.append(model(**by_name(args, batch))[0].cpu())
    return torch.cat(logits), dataset.tensors[-1]


def evaluate(
    args: argparse.Namespace, model: nn.Module, tokenizer: Any, task: str | None = None
) -> tuple[dict[str, float], torch.Tensor]:
    """All numbers of the task on its dev set, and the logits."""
    task = task or args.task_name
    dataset = load_and_cache_examples(args, tokenizer, evaluate=True, task=task)
    logits, labels = predict(args, model, dataset)
    metric = get_metric("GLUE", task=task)
    outputs = logits.reshape(-1) if logits.shape[-1] == 1 else logits
    metric.update(outputs.numpy(), labels.numpy())
    return {**metric.details, "eval_loss": float(loss_from(logits, labels))}, logits


def fine_tune(args: argparse.Namespace, tokenizer: Any) -> dict[str, float]:
    """Train, or go on training; the checkpoint is in --output_dir afterwards."""
    if is_finished(args):
        return {}
    model = load_model(args, HEAD, LABELS[args.task_name])
    dataset = load_and_cache_examples(args, tokenizer)

    def loss_of(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        return loss_from(net(**by_name(args, batch))[0], batch[-1])

    steps, loss = train(args, model, dataset, loss_of)
    if args.rank == 0:
        save_checkpoint(args, model, tokenizer)
        clear_saved(args.output_dir)
    return {"global_step": steps, "loss": loss}


def tune(args: argparse.Namespace, model: nn.Module, tokenizer: Any, eval_task: str) -> None:
    """The tutorial's code; the best model is on disk when it returns."""
    results: dict[float, Any] = {}

    def eval_func_for_lpot(model: nn.Module) -> float:
        result, _ = evaluate(args, model, tokenizer)
        key = next(key for key in ACCURACY_KEYS if key in result)
        results[result[key]] = result
        return result[key]

    eval_dataset = load_and_cache_examples(args, tokenizer, evaluate=True)
    from lpot import Quantization

    quantizer = Quantization(find_config(args))
    keep_apart(args, quantizer, b"".join(one.numpy().tobytes() for one in eval_dataset.tensors))
    dataset = quantizer.dataset(
        "bert", dataset=eval_dataset, task=eval_task, model_type=args.model_type
    )
    test_dataloader = quantizer.dataloader(
        dataset, args.eval_batch_size, sampler=range(min(args.calibration_samples, len(dataset)))
    )
    quantizer(model, test_dataloader, eval_func=eval_func_for_lpot)
    keep_tuned(args, quantizer, results)


def read_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    args = settle(parser, words)
    if not args.task_name or not args.data_dir:
        parser.error("--task_name and --data_dir are needed")
    args.task_name = find_task(parser, args.task_name)
    return args


def find_task(parser: Parser, given: str) -> str:
    """The task's name however it is spelt: STS-B, stsb, sts_b."""
    spelt = {task.replace("-", ""): task for task in LABELS}
    bare = given.lower().replace("-", "").replace("_", "")
    if bare in spelt:
        return spelt[bare]
    near = difflib.get_close_matches(bare, spelt, 1)
    hint = f", did you mean {spelt[near[0]]}?" if near else ""
    parser.error(f"--task_name {given} is not known{hint}; the tasks are {', '.join(LABELS)}")


def main(words: Sequence[str] | None = None) -> None:
    args = read_arguments(words)
    tokenizer = load_tokenizer(args)
    trained: dict[str, float] = {}
    if args.do_train:
        trained = fine_tune(args, tokenizer)
        if args.world > 1:
            torch.distributed.barrier()
        args.model_name_or_path, args.tokenizer_name = args.output_dir, None
        args.do_train = False
    if args.rank == 0 and (args.do_eval or args.tune):
        model = load_model(args, HEAD, LABELS[args.task_name])
        if args.manual_stubs:
            model = with_stubs(model)
        if args.tune:
            tune(args, model.cpu(), tokenizer, "classifier")
        else:
            folders = {args.task_name: args.output_dir}
            if args.task_name == "mnli":
                folders["mnli-mm"] = str(Path(args.output_dir)) + "-MM"
            for task, folder in folders.items():
                write_results(folder, evaluate(args, model, tokenizer, task)[0] | trained)
    leave(args)


if __name__ == "__main__":
    try:
        main()
    except LpotError as error:
        raise fail(str(error)) from error
