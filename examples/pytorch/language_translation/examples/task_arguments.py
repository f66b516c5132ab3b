"""The command line of the BERT scripts: the tutorial's flags, and what follows from them."""

from __future__ import annotations

import argparse
import difflib
import json
import logging
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch
import torch.distributed as dist

Item = TypeVar("Item")
logger = logging.getLogger(__name__)

# Models that read token types; the others take token numbers and mask alone.
WITH_TYPES = ("bert", "xlnet", "mobilebert", "albert", "electra")
# flag → the least it may be
LEAST = {
    "per_gpu_train_batch_size": 1, "per_gpu_eval_batch_size": 1, "max_seq_length": 4,
    "gradient_accumulation_steps": 1, "save_steps": 0, "warmup_steps": 0, "weight_decay": 0,
    "calibration_samples": 1, "max_eval_samples": 1, "doc_stride": 1, "max_query_length": 1,
    "max_answer_length": 1, "n_best_size": 1, "num_train_epochs": 0,
}  # fmt: skip
SILENT = 5.0  # seconds between two lines of progress


class Parser(argparse.ArgumentParser):
    """A mistake is told in one line, with the flag that was meant, instead of all the flags."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (--help lists all flags)\n")

    def parse_all(self, words: Sequence[str] | None) -> argparse.Namespace:
        for word in sys.argv[1:] if words is None else words:
            flag = word.partition("=")[0]
            if flag.startswith("--") and flag not in self._option_string_actions:
                near = difflib.get_close_matches(flag, self._option_string_actions, 1)
                hint = f", did you mean {near[0]}?" if near else ""
                self.error(f"{flag} is not known{hint}")
        return self.parse_args(words)


def new_parser(description: str | None) -> Parser:
    """All flags that GLUE and SQuAD share."""
    parser = Parser(description=description, allow_abbrev=False)
    add = parser.add_argument
    add("--model_type", help="bert, distilbert, electra, …; the checkpoint's own if not given")
    add("--model_name_or_path", required=True, help="a checkpoint folder, or a name on the hub")
    add("--tokenizer_name", help="folder or name of the tokenizer, if not with the model")
    add("--cache_dir", help="where models from the hub are kept")
    add("--task_name", help="the task")
    add("--data_dir", help="folder of the task's files")
    add("--output_dir", required=True, help="checkpoint and results")
    add("--config", default="./conf.yaml", help="the tuning's yaml")
    add("--max_seq_length", type=int, default=128)
    add("--do_train", action="store_true", help="fine-tune")
    add("--do_eval", action="store_true", help="evaluate on the dev set")
    add("--tune", action="store_true", help="quantize, holding the accuracy bar of conf.yaml")
    add("--manual_stubs", action="store_true", help="the model with QuantStub/DeQuantStub put in")
    add("--do_lower_case", action="store_true", help="for uncased models")
    add("--per_gpu_train_batch_size", type=int, default=8)
    add("--per_gpu_eval_batch_size", type=int, default=8)
    add("--gradient_accumulation_steps", type=int, default=1)
    add("--learning_rate", type=float, default=5e-5)
    add("--weight_decay", type=float, default=0.0)
    add("--adam_epsilon", type=float, default=1e-8)
    add("--max_grad_norm", type=float, default=1.0)
    add("--num_train_epochs", type=float, default=3.0)
    add("--max_steps", type=int, default=-1, help="stop after so many steps instead of epochs")
    add("--warmup_steps", type=int, default=0, help="the learning rate rises over so many steps")
    add(
        "--save_steps",
        type=int,
        default=200,
        help="steps between checkpoints to resume from; 0: none",
    )
    add("--calibration_samples", type=int, default=100, help="samples the ranges are taken from")
    add("--max_eval_samples", type=int, help="evaluate on the first so many samples only")
    add("--no_cuda", action="store_true", help="stay on the CPU")
    add("--overwrite_output_dir", action="store_true", help="train again from the start")
    add("--overwrite_cache", action="store_true", help="tokenize again")
    add("--seed", type=int, default=42)
    add("--local_rank", "--local-rank", type=int, default=-1, help="given by the launcher")
    return parser


def settle(parser: Parser, words: Sequence[str] | None) -> argparse.Namespace:
    """Parsed, checked, with device, process group and seeds set up."""
    args = parser.parse_all(words)
    _check(parser, args)
    args.model_type = (args.model_type or _type_of(args.model_name_or_path)).lower()
    # torchrun tells its processes by environment, torch.distributed.launch by flag.
    args.local_rank = int(os.environ.get("LOCAL_RANK", args.local_rank))
    cuda = torch.cuda.is_available() and not args.no_cuda
    args.n_gpu = int(cuda)
    args.device = torch.device("cuda", max(args.local_rank, 0)) if cuda else torch.device("cpu")
    args.world, args.rank = _join(args.local_rank, cuda)
    args.eval_batch_size = args.per_gpu_eval_batch_size * max(1, args.n_gpu)
    logging.basicConfig(
        level=logging.INFO if args.rank == 0 else logging.WARNING,
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
    )
    for noisy in ("httpx", "lpot.backends"):  # what lpot has to say comes through its listener
        logging.getLogger(noisy).setLevel(logging.WARNING)
    set_seed(args.seed)
    return args


def _check(parser: Parser, args: argparse.Namespace) -> None:
    if not (args.do_train or args.do_eval or args.tune):
        parser.error("nothing to do: give --do_train, --do_eval or --tune")
    for name, least in LEAST.items():
        value = getattr(args, name, None)
        if value is not None and not value >= least:
            parser.error(f"--{name} should be {least} or more, not {value}")
    if not args.learning_rate > 0:
        parser.error(f"--learning_rate should be above 0, not {args.learning_rate}")
    for place in (Path(args.output_dir), *Path(args.output_dir).parents):
        if place.exists() and not place.is_dir():
            parser.error(f"--output_dir {args.output_dir}: {place} is a file, expected a folder")


def _type_of(checkpoint: str) -> str:
    try:
        return str(json.loads((Path(checkpoint) / "config.json").read_text("utf-8"))["model_type"])
    except (OSError, ValueError, KeyError, TypeError):
        return "bert"  # a name on the hub, or what is no checkpoint and is told so later


def _join(local_rank: int, cuda: bool) -> tuple[int, int]:
    """The number of training processes, and which of them this is."""
    if local_rank < 0:
        return 1, 0
    if not dist.is_initialized() and "RANK" not in os.environ:
        raise fail(
            f"--local_rank {local_rank} is given by a launcher: put `torchrun --nproc_per_node=2` "
            "in front of the script, or leave the flag out"
        )
    if not dist.is_initialized():
        dist.init_process_group("nccl" if cuda else "gloo")
    return dist.get_world_size(), dist.get_rank()


def leave(args: argparse.Namespace) -> None:
    if args.world > 1 or dist.is_initialized():
        dist.destroy_process_group()


def set_seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def fail(message: str) -> SystemExit:
    """The end of a script that can't go on, in one sentence."""
    return SystemExit(f"error: {message}")


def find_config(args: argparse.Namespace) -> str:
    """`./conf.yaml` as the tutorial writes it; from another folder, the example's own."""
    given = Path(args.config)
    own = Path(__file__).parents[1] / "conf.yaml"
    if not given.is_file() and given == Path("conf.yaml"):
        return str(own)
    return str(given)


def by_name(args: argparse.Namespace, batch: Sequence[Any]) -> dict[str, Any]:
    """The model's inputs from token numbers, mask and token types."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    count = 3 if args.model_type in WITH_TYPES else 2
    return {name: batch[at].to(args.device) for at, name in enumerate(names[:count])}


def progress(items: Iterable[Item], what: str, total: int, done: int = 0) -> Iterator[Item]:
    """The items, with a line now and then that says how long the rest will take."""
    start = last = time.monotonic()
    for number, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last >= SILENT:
            last = now
            left = (now - start) / number * (total - done - number)
            logger.info("%s: %d of %d, %.0f s left", what, done + number, total, left)


def write_results(folder: str | Path, results: dict[str, float]) -> None:
    """`eval_results.txt`: one `key = value` a line."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    lines = [f"{key} = {results[key]}" for key in sorted(results)]
    (place / "eval_results.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for line in lines:
        logger.info("  %s", line)
