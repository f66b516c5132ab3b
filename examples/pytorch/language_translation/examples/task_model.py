"""Checkpoint folders: model as safetensors, tokenizer, training arguments as JSON."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import socket
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
import transformers
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from task_arguments import fail
from torch import nn
from torch.utils.data import TensorDataset

logger = logging.getLogger(__name__)

INT8 = "int8"  # the tuned model's folder inside --output_dir
ARGUMENTS = "training_args.json"
HUB = "https://huggingface.co"
# What of the arguments makes a training another one.
TRAINING = (
    "model_type", "model_name_or_path", "task_name", "data_dir", "train_file", "max_seq_length",
    "doc_stride", "max_query_length", "do_lower_case", "per_gpu_train_batch_size",
    "gradient_accumulation_steps", "learning_rate", "weight_decay", "adam_epsilon",
    "max_grad_norm", "num_train_epochs", "max_steps", "warmup_steps", "seed", "world",
)  # fmt: skip


def read_config(args: argparse.Namespace) -> Any:
    """The checkpoint's config; what does not go with the arguments is said."""
    config = _from(transformers.AutoConfig, args, args.model_name_or_path)
    if config.model_type != args.model_type:
        raise fail(
            f"--model_type {args.model_type}, but {args.model_name_or_path} holds a "
            f"{config.model_type} model: give --model_type {config.model_type}"
        )
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and args.max_seq_length > longest:
        raise fail(f"--max_seq_length {args.max_seq_length}: the model has {longest} positions")
    return config


def load_model(args: argparse.Namespace, head: str, num_labels: int | None = None) -> nn.Module:
    """`head` is an Auto class of transformers; weights that are missing are never made up."""
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()  # missing weights are told below, in a sentence
    config = read_config(args)
    if num_labels is not None:
        if not args.do_train and config.num_labels != num_labels:
            raise fail(
                f"{args.model_name_or_path} has {config.num_labels} outputs, the task "
                f"{args.task_name} needs {num_labels}: was it fine-tuned on another task?"
            )
        config.num_labels = num_labels
    model, found = _from(
        getattr(transformers, head),
        args,
        args.model_name_or_path,
        config=config,
        output_loading_info=True,
        ignore_mismatched_sizes=args.do_train,  # the head of another task
    )
    unfit = (one if isinstance(one, str) else one[0] for one in found["mismatched_keys"])
    missing = sorted({*found["missing_keys"], *unfit})
    if args.do_train:  # the head is new, and so may the pooler be
        prefix = model.base_model_prefix + "."
        missing = [key for key in missing if key.startswith(prefix) and ".pooler." not in key]
    if missing:
        raise fail(
            f"{args.model_name_or_path} lacks {len(missing)} weights, the first is {missing[0]}: "
            "fine-tune it with --do_train first, or put a checkpoint whose embeddings lie apart "
            "together with prepare_model.py"
        )
    return model.float().to(args.device).eval()  # half-precision weights are FP32 here


def load_tokenizer(args: argparse.Namespace) -> Any:
    """The tokenizer. An uncased one lowers its text whether --do_lower_case was typed or not."""
    name = args.tokenizer_name or args.model_name_or_path
    options = {"do_lower_case": True} if args.do_lower_case else {}
    tokenizer = _from(transformers.AutoTokenizer, args, name, **options)
    args.do_lower_case = tokenizer.tokenize("HELLO World") == tokenizer.tokenize("hello world")
    return tokenizer


def _from(kind: Any, args: argparse.Namespace, name: str, **options: Any) -> Any:
    """From a folder, else from what the hub's cache has, else from the hub."""
    if Path(name).is_dir():
        if name == args.model_name_or_path:
            _check_folder(Path(name))
    elif Path(name).exists():
        raise fail(f"{name} is a file: give the checkpoint's folder")
    elif name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise fail(f"{name}: there is no such folder")
    options["cache_dir"] = args.cache_dir
    try:
        return kind.from_pretrained(name, local_files_only=True, **options)
    except (OSError, ValueError, RuntimeError) as error:
        if Path(name).is_dir():
            raise fail(f"{name} ({_first_line(error)})") from error
    if not _hub_answers():
        raise fail(f"{name}: there is no such folder here, and no network to ask the hub for it")
    logger.info("asking the hub for %s", name)
    try:
        return kind.from_pretrained(name, **options)
    except (OSError, ValueError, RuntimeError) as error:
        hint = "it is no folder here, and could not be had from the hub"
        raise fail(f"{name}: {hint} ({_first_line(error)})") from error


def _check_folder(folder: Path) -> None:
    if (folder / "lpot.json").is_file():
        raise fail(
            f"{folder} is an INT8 model already: run_benchmark.sh measures it, lpot.load opens it; "
            "give the FP32 checkpoint here"
        )
    if not (folder / "config.json").is_file():
        raise fail(f"{folder} has no config.json: give the folder of a checkpoint")


def _hub_answers() -> bool:
    """Can the hub's name be found? Without a network transformers would go on asking for long."""
    if urllib.request.getproxies():
        return True
    try:
        socket.getaddrinfo(urlsplit(os.environ.get("HF_ENDPOINT") or HUB).hostname, 443)
    except OSError:
        return False
    return True


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def tokenizer_folder(args: argparse.Namespace, tokenizer: Any) -> str:
    """A local folder with vocab.txt or tokenizer.json, which lpot's datasets read."""
    name = Path(args.tokenizer_name or args.model_name_or_path)
    if (name / "vocab.txt").is_file() or (
        (name / "tokenizer.json").is_file() and args.model_type != "bert"
    ):
        return str(name)
    folder = Path(args.output_dir) / "tokenizer"
    if args.rank == 0:
        save_tokenizer(tokenizer, folder)
    _wait(args)
    return str(folder)


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """As transformers does, and vocab.txt beside it where the tokenizer is WordPiece."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(str(folder))
    words = sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
    if any(word.startswith("##") for word, _ in words):
        text = "\n".join(word for word, _ in words) + "\n"
        (folder / "vocab.txt").write_text(text, encoding="utf-8")


def save_checkpoint(args: argparse.Namespace, model: Any, tokenizer: Any) -> None:
    """The folder that --model_name_or_path takes afterwards."""
    folder = Path(args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(str(folder))
    save_tokenizer(tokenizer, folder)
    text = json.dumps(training_arguments(args), indent=1) + "\n"
    (folder / ARGUMENTS).write_text(text, encoding="utf-8")


def training_arguments(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name, None) for name in TRAINING}


def read_arguments(folder: Path) -> dict[str, Any] | None:
    """The arguments a checkpoint was trained with; a `training_args.bin` is never opened."""
    try:
        raw = json.loads((folder / ARGUMENTS).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return raw if isinstance(raw, dict) else None


def with_stubs(model: nn.Module) -> nn.Module:
    """The tutorial's hand-made modeling_bert.py: stubs around every Linear."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bert" / "transformers"))
    from modeling_bert import add_stubs

    return add_stubs(model)


def cached(
    args: argparse.Namespace, name: str, source: Path, make: Callable[[], list[torch.Tensor]]
) -> TensorDataset:
    """Features of a file, kept in --output_dir: the user's data folder is never written to."""
    stamp = source.stat()
    facts = f"{source.resolve()} {stamp.st_size} {stamp.st_mtime_ns} {_vocabulary(args)}"
    key = hashlib.sha256(f"{facts} {args.do_lower_case} {args.model_type}".encode()).hexdigest()
    folder = Path(args.output_dir)
    path = folder / f"cached_{name}_{args.max_seq_length}.safetensors"
    if not args.overwrite_cache and path.is_file():
        try:
            with safe_open(path, "pt") as stored:
                if (stored.metadata() or {}).get("key") == key:
                    logger.info("features from %s", path)
                    return TensorDataset(*(stored.get_tensor(k) for k in sorted(stored.keys())))
        except (SafetensorError, OSError, ValueError) as error:
            logger.warning("%s: can't be read (%s); tokenizing again", path, error)
    logger.info("tokenizing %s", source)
    tensors = make()
    if args.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".part")
        save_file({str(at): one for at, one in enumerate(tensors)}, draft, metadata={"key": key})
        draft.replace(path)
    return TensorDataset(*tensors)


def _vocabulary(args: argparse.Namespace) -> str:
    folder = Path(args.tokenizer_name or args.model_name_or_path)
    for name in ("vocab.txt", "tokenizer.json"):
        if (folder / name).is_file():
            return hashlib.sha256((folder / name).read_bytes()).hexdigest()
    return str(folder)


def _wait(args: argparse.Namespace) -> None:
    if args.world > 1:
        torch.distributed.barrier()
