"""Fine-tuning: AdamW with warm-up, on one process or several, resumed from where it stopped."""

from __future__ import annotations

import argparse
import json
import logging
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from task_arguments import fail, progress, set_seed
from task_model import read_arguments, training_arguments
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

logger = logging.getLogger(__name__)

STATE = "trainer_state.json"
LossOf = Callable[[nn.Module, list[torch.Tensor]], torch.Tensor]


def train(
    args: argparse.Namespace, model: nn.Module, dataset: TensorDataset, loss_of: LossOf
) -> tuple[int, float]:
    """Steps done and mean loss. The same arguments and seed give the same weights, resumed or not:
    order and dropout of a step depend on its number alone."""
    run = Run(args, model, len(dataset))
    run.resume()
    if run.step >= run.total:
        return run.step, run.loss_sum / max(run.step, 1)
    wrapped: nn.Module = model
    if args.world > 1:
        wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    model.train()
    # All processes of a step draw other dropout masks, but the same again after a resume.
    groups = progress(run.batches(), "training", run.total, run.step)
    for groups_of_step in groups if args.rank == 0 else run.batches():
        set_seed(args.seed + 100_003 * run.step + args.rank)
        for numbers in groups_of_step:
            batch = [one.to(args.device) for one in dataset[numbers]]
            loss = loss_of(wrapped, batch) / len(groups_of_step)
            loss.backward()
            run.loss_sum += float(loss.detach())
        run.update()
        due = args.save_steps > 0 and run.step % args.save_steps == 0
        if due and run.step < run.total and args.rank == 0:
            run.save()
    model.eval()
    return run.step, run.loss_sum / run.step


def is_finished(args: argparse.Namespace) -> bool:
    """Was this very training done before? Refuses a folder that holds something else."""
    folder = Path(args.output_dir)
    if args.overwrite_output_dir or not folder.is_dir():
        return False
    known = read_arguments(folder)
    if known == training_arguments(args):
        logger.info("%s is trained already; --overwrite_output_dir trains again", folder)
        return True
    if known is None and saved(folder):  # stopped while the last files were being written
        return False
    if known is not None or (folder / "model.safetensors").is_file():
        raise fail(
            f"{folder} holds a checkpoint trained with other arguments: name another --output_dir, "
            "or give --overwrite_output_dir"
        )
    return False


class Run:
    """Optimizer, schedule and place in the data of one training."""

    def __init__(self, args: argparse.Namespace, model: nn.Module, samples: int) -> None:
        self.args, self.model, self.samples = args, model, samples
        self.size = args.per_gpu_train_batch_size * max(1, args.n_gpu)
        each = self.size * args.world * args.gradient_accumulation_steps
        self.steps_per_epoch = max(1, math.ceil(samples / each))
        self.total = round(self.steps_per_epoch * args.num_train_epochs)
        if args.max_steps > 0:
            self.total = args.max_steps
        if self.total < 1:
            raise fail(f"--num_train_epochs {args.num_train_epochs} is no step at all")
        self.step, self.loss_sum = 0, 0.0
        self.optimizer = torch.optim.AdamW(
            _decaying(model, args.weight_decay), lr=args.learning_rate, eps=args.adam_epsilon
        )

    def batches(self) -> Iterator[list[list[int]]]:
        """For each step left, this process's sample numbers, one list a backward pass."""
        args = self.args
        while self.step < self.total:
            epoch, at = divmod(self.step, self.steps_per_epoch)
            draw = torch.Generator().manual_seed(args.seed + epoch)
            order = torch.randperm(self.samples, generator=draw).tolist()
            each = self.size * args.world * args.gradient_accumulation_steps
            chosen = order[at * each : (at + 1) * each]
            # A short last step is filled from the front, so that every process has work.
            needed = -len(chosen) % args.world
            mine = (chosen + order[:needed])[args.rank :: args.world]
            yield [mine[i : i + self.size] for i in range(0, len(mine), self.size)]

    def update(self) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
        warmup = self.args.warmup_steps
        left = (self.total - self.step) / max(1, self.total - warmup)
        share = (self.step + 1) / warmup if self.step < warmup else left
        for group in self.optimizer.param_groups:
            group["lr"] = self.args.learning_rate * share
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1

    def save(self) -> None:
        """`checkpoint-<step>`, whole or not at all; older ones go."""
        folder = Path(self.args.output_dir) / f"checkpoint-{self.step}"
        draft = folder.with_name(folder.name + ".part")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        save_file(_contiguous(self.model.state_dict()), draft / "model.safetensors")
        state = self.optimizer.state_dict()["state"]
        flat = {f"{at}.{key}": value for at, slot in state.items() for key, value in slot.items()}
        save_file(_contiguous(flat), draft / "optimizer.safetensors")
        facts = {"step": self.step, "loss_sum": self.loss_sum, "total": self.total}
        facts["arguments"] = training_arguments(self.args)
        (draft / STATE).write_text(json.dumps(facts), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        draft.replace(folder)
        clear_saved(self.args.output_dir, keep=folder)

    def resume(self) -> None:
        if self.args.overwrite_output_dir:
            if self.args.rank == 0:
                clear_saved(self.args.output_dir)
            return
        for folder in reversed(saved(self.args.output_dir)):
            facts = json.loads((folder / STATE).read_text("utf-8"))
            if facts["arguments"] != training_arguments(self.args):
                logger.warning("%s is of a training with other arguments: not used", folder)
                continue
            self.model.load_state_dict(load_file(folder / "model.safetensors"))
            state: dict[int, dict[str, torch.Tensor]] = {}
            for name, value in load_file(folder / "optimizer.safetensors").items():
                at, _, key = name.partition(".")
                state.setdefault(int(at), {})[key] = value
            whole = {**self.optimizer.state_dict(), "state": state}
            self.optimizer.load_state_dict(whole)
            self.step, self.loss_sum = int(facts["step"]), float(facts["loss_sum"])
            logger.info("going on from %s: step %d of %d", folder, self.step, self.total)
            return


def saved(folder: str | Path) -> list[Path]:
    """The checkpoints to resume from that are whole, the latest last."""
    found = [path.parent for path in Path(folder).glob(f"checkpoint-*/{STATE}")]
    numbered = [one for one in found if one.name.rpartition("-")[2].isdigit()]
    return sorted(numbered, key=lambda one: int(one.name.rpartition("-")[2]))


def clear_saved(folder: str | Path, keep: Path | None = None) -> None:
    for old in saved(folder):
        if old != keep:
            shutil.rmtree(old)


def _contiguous(tensors: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Copies of their own: safetensors refuses tensors that share memory."""
    return {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}


def _decaying(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    plain = ("bias", "LayerNorm.weight")
    named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    return [
        {"params": [p for n, p in named if not n.endswith(plain)], "weight_decay": decay},
        {"params": [p for n, p in named if n.endswith(plain)], "weight_decay": 0.0},
    ]
