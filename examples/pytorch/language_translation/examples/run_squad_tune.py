"""BERT on SQuAD v1.1: fine-tune (--do_train), evaluate (--do_eval), quantize (--tune)."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from squad_answers import answer_positions
from task_arguments import (
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
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from lpot import LpotError
from lpot.data import get_dataset
from lpot.data.postprocess import SquadV1PostTransform
from lpot.metric import get_metric

logger = logging.getLogger(__name__)

HEAD = "AutoModelForQuestionAnswering"
WORD_PIECE = ("bert", "distilbert", "mobilebert")


def read_windows(args: argparse.Namespace, tokenizer: Any, evaluate: bool) -> Any:
    """lpot's SQuAD dataset: `articles`, `examples` and `features`."""
    return get_dataset(
        "SQuAD",
        str(data_file(args, evaluate)),
        tokenizer_folder(args, tokenizer),
        max_seq_length=args.max_seq_length,
        doc_stride=args.doc_stride,
        max_query_length=args.max_query_length,
        do_lower_case=args.do_lower_case,
        model_type=args.model_type,
    )


def data_file(args: argparse.Namespace, evaluate: bool) -> Path:
    """The file named, alone or inside --data_dir, or the distributed name in --data_dir."""
    flag = "--predict_file" if evaluate else "--train_file"
    given = args.predict_file if evaluate else args.train_file
    folder = Path(args.data_dir or ".")
    name = "dev-v1.1.json" if evaluate else "train-v1.1.json"
    places = [Path(given), folder / given] if given else [folder / name]
    for place in places:
        if place.is_file():
            return place
    raise fail(f"{places[-1]}: no such file; name it with {flag}, or its folder with --data_dir")


def load_and_cache_examples(
    args: argparse.Namespace,
    tokenizer: Any,
    evaluate: bool = False,
    output_examples: bool = False,
) -> Any:
    """Token numbers, mask and token types of each window, then its number (dev) or the answer's
    first and last token (train). With `output_examples` also the examples and features."""
    if not evaluate:
        source = data_file(args, evaluate)
        name = f"train_squad_{args.doc_stride}"
        return cached(args, name, source, lambda: _train_tensors(args, tokenizer))
    windows = read_windows(args, tokenizer, evaluate)
    columns = _columns(windows.features)
    dataset = TensorDataset(*columns, torch.arange(len(windows.features)))
    if args.max_eval_samples:
        kept = windows.examples[: args.max_eval_samples]
        count = sum(one.example_index < len(kept) for one in windows.features)
        windows.examples, windows.features = kept, windows.features[:count]
        dataset = TensorDataset(*dataset[:count])
    return (dataset, windows.examples, windows.features) if output_examples else dataset


def _columns(features: Sequence[Any]) -> list[torch.Tensor]:
    names = ("input_ids", "input_mask", "segment_ids")
    return [torch.tensor([getattr(one, name) for one in features]) for name in names]


def _train_tensors(args: argparse.Namespace, tokenizer: Any) -> list[torch.Tensor]:
    windows = read_windows(args, tokenizer, evaluate=False)
    places = answer_positions(windows.articles, windows.features, tokenizer.tokenize)
    if not any(last for _, last in places):
        raise fail(f"{data_file(args, evaluate=False)}: no question has an answer to learn from")
    return [*_columns(windows.features), torch.tensor(places)]


def predict(
    args: argparse.Namespace, model: nn.Module, dataset: TensorDataset
) -> tuple[np.ndarray, np.ndarray]:
    """Start and end logits of all windows."""
    loader = DataLoader(dataset, batch_size=args.eval_batch_size)
    found = []
    for batch in progress(loader, "evaluating", len(loader)):
        with torch.inference_mode():
            outputs = model(**by_name(args, batch))
        found.append([outputs[0].cpu().numpy(), outputs[1].cpu().numpy()])
    starts, ends = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return starts, ends


def evaluate(
    args: argparse.Namespace, model: nn.Module, tokenizer: Any
) -> tuple[dict[str, float], dict[str, str]]:
    """F1 and exact match by the official rules, and the answers by question."""
    dataset, examples, features = load_and_cache_examples(
        args, tokenizer, evaluate=True, output_examples=True
    )
    starts, ends = predict(args, model, dataset)
    to_answers = SquadV1PostTransform(
        examples,
        features,
        n_best_size=args.n_best_size,
        max_answer_length=args.max_answer_length,
        do_lower_case=args.do_lower_case,
    )
    answers, _ = to_answers(([starts, ends], {}))
    metric = get_metric("SquadF1")
    metric.update(answers, {one.qas_id: one.answers for one in examples})
    return dict(metric.details), answers


def fine_tune(args: argparse.Namespace, tokenizer: Any) -> dict[str, float]:
    """Train, or go on training; the checkpoint is in --output_dir afterwards."""
    if is_finished(args):
        return {}
    model = load_model(args, HEAD)
    dataset = load_and_cache_examples(args, tokenizer)

    def loss_of(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        outputs = net(**by_name(args, batch))
        sides = (cross_entropy(outputs[at], batch[3][:, at]) for at in (0, 1))
        return sum(sides, torch.zeros(())) / 2

    steps, loss = train(args, model, dataset, loss_of)
    if args.rank == 0:
        save_checkpoint(args, model, tokenizer)
        clear_saved(args.output_dir)
    return {"global_step": steps, "loss": loss}


def tune(args: argparse.Namespace, model: nn.Module, tokenizer: Any, eval_task: str) -> None:
    """The tutorial's code; the best model is on disk when it returns."""
    results: dict[float, Any] = {}
    answers: dict[float, dict[str, str]] = {}

    def eval_func_for_lpot(model: nn.Module) -> float:
        result, found = evaluate(args, model, tokenizer)
        results[result["f1"]], answers[result["f1"]] = result, found
        return result["f1"]

    eval_dataset = load_and_cache_examples(args, tokenizer, evaluate=True)
    from lpot import Quantization

    quantizer = Quantization(find_config(args))
    keep_apart(args, quantizer, data_file(args, evaluate=True).read_bytes())
    dataset = quantizer.dataset(
        "bert", dataset=eval_dataset, task=eval_task, model_type=args.model_type
    )
    test_dataloader = quantizer.dataloader(
        dataset, args.eval_batch_size, sampler=range(min(args.calibration_samples, len(dataset)))
    )
    quantizer(model, test_dataloader, eval_func=eval_func_for_lpot)
    folder = keep_tuned(args, quantizer, results)
    if quantizer.result.accuracy in answers:
        write_predictions(folder, answers[quantizer.result.accuracy])


def write_predictions(folder: str | Path, answers: dict[str, str]) -> None:
    """`predictions.json`: {question id: answer}, as the official evaluation reads it."""
    text = json.dumps(answers, indent=1, ensure_ascii=False) + "\n"
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / "predictions.json").write_text(text, encoding="utf-8")


def read_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.set_defaults(max_seq_length=384, task_name="squad")
    add = parser.add_argument
    add("--train_file", help="train-v1.1.json")
    add("--predict_file", help="dev-v1.1.json")
    add("--doc_stride", type=int, default=128, help="tokens from one window to the next")
    add("--max_query_length", type=int, default=64)
    add("--max_answer_length", type=int, default=30)
    add("--n_best_size", type=int, default=20)
    args = settle(parser, words)
    if args.task_name.lower() != "squad":
        parser.error(f"--task_name {args.task_name}: this script knows SQuAD only")
    if args.model_type not in WORD_PIECE:
        parser.error(f"--model_type {args.model_type}: SQuAD takes {', '.join(WORD_PIECE)}")
    room = args.max_seq_length - args.max_query_length - 3  # [CLS], [SEP], [SEP]
    if 0 < room < args.doc_stride:
        logger.warning("--doc_stride %d: windows of %d tokens skip text", args.doc_stride, room)
    return args


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
        model = load_model(args, HEAD)
        if args.manual_stubs:
            model = with_stubs(model)
        if args.tune:
            tune(args, model.cpu(), tokenizer, "squad")
        else:
            result, answers = evaluate(args, model, tokenizer)
            write_results(args.output_dir, result | trained)
            write_predictions(args.output_dir, answers)
    leave(args)


if __name__ == "__main__":
    try:
        main()
    except LpotError as error:
        raise fail(str(error)) from error
