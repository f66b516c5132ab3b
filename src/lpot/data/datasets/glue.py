"""The nine GLUE tasks, from their tsv files as distributed."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError, DataError, did_you_mean
from lpot.data.datasets.base import Dataset, FilterFunction, TransformFunction
from lpot.data.files import existing_folder, not_found, read_text
from lpot.data.tokenizer import Encoded, load_tokenizer

logger = logging.getLogger(__name__)

INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")
# Models that read only token numbers and mask.
WITHOUT_TYPES = ("distilbert", "roberta", "xlm", "xlm-roberta")
# MNLI's last two classes change places in these models' published weights.
SWAPPED_MNLI = ("roberta", "xlm-roberta", "bart")


@dataclass(frozen=True)
class GlueTask:
    """One GLUE task: its folder, files, columns by header (or by place), and classes."""

    folder: str
    texts: tuple[str, ...]
    label: str
    classes: tuple[str, ...] = ("0", "1")  # empty: a score instead of a class
    dev: tuple[str, ...] = ("dev.tsv",)
    header: bool = True
    skip_broken: bool = False


ENTAILMENT = ("entailment", "not_entailment")
MNLI = GlueTask(
    "MNLI",
    ("sentence1", "sentence2"),
    "gold_label",
    ("contradiction", "entailment", "neutral"),
    ("dev_matched.tsv",),
)
# GLUE's own QQP files hold some rows that are cut off.
TASKS = {
    "cola": GlueTask("CoLA", ("3",), "1", header=False),
    "sst-2": GlueTask("SST-2", ("sentence",), "label"),
    "mrpc": GlueTask("MRPC", ("#1 String", "#2 String"), "Quality"),
    "sts-b": GlueTask("STS-B", ("sentence1", "sentence2"), "score", classes=()),
    "qqp": GlueTask("QQP", ("question1", "question2"), "is_duplicate", skip_broken=True),
    "mnli": MNLI,
    "mnli-mm": GlueTask("MNLI", MNLI.texts, MNLI.label, MNLI.classes, ("dev_mismatched.tsv",)),
    "qnli": GlueTask("QNLI", ("question", "sentence"), "label", ENTAILMENT),
    "rte": GlueTask("RTE", ("sentence1", "sentence2"), "label", ENTAILMENT),
    "wnli": GlueTask("WNLI", ("sentence1", "sentence2"), "label"),
}


@dataclass(frozen=True)
class GlueRow:
    """One line of a tsv file."""

    line: int
    texts: tuple[str, ...]
    label: int | float


class GLUE(Dataset):
    """One GLUE task, tokenized: ({input_ids, attention_mask, token_type_ids}, label).

    Args:
        data_dir: folder of the task's tsv files, or the folder above it.
        model_name_or_path: local folder with the model's vocab.txt or tokenizer.json.
        max_seq_length: longer texts are truncated, shorter ones padded to this many tokens.
        do_lower_case: whether to lowercase the text; true for uncased models.
        task: cola, sst-2, mrpc, sts-b, qqp, mnli, mnli-mm, qnli, rte or wnli.
        model_type: bert, distilbert, mobilebert, roberta, …: which inputs the model takes.
        dynamic_length: pad to the longest of the batch instead of max_seq_length.
        evaluate: the dev part; false takes the train part.
        input_names: other names for token numbers, mask and token types, in that order.
        transform: applied to each (inputs, label).
        filter: keeps only samples for which it returns true.
    """

    def __init__(
        self,
        data_dir: str,
        model_name_or_path: str,
        max_seq_length: int = 128,
        do_lower_case: bool = True,
        task: str = "mrpc",
        model_type: str = "bert",
        dynamic_length: bool = False,
        evaluate: bool = True,
        input_names: Sequence[str] | None = None,
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
    ) -> None:
        super().__init__(transform, filter)
        self.model_type = model_type.lower()
        self.path, self.rows = read_task(data_dir, task, evaluate, self.model_type)
        self.limit = int(max_seq_length)
        if self.limit < 4:
            raise ConfigError(f"max_seq_length should be 4 or more, not {max_seq_length!r}")
        self.dynamic_length = bool(dynamic_length)
        self._names = self._input_names(input_names)
        self._tokenizer = load_tokenizer(model_name_or_path, do_lower_case, self.model_type)
        self._encoded: dict[int, Encoded] = {}
        if self.dynamic_length:
            self.collate_fn = self._collate

    def count(self) -> int:
        return len(self.rows)

    def label(self, number: int) -> int | float:
        return self.rows[number].label

    def origin(self, number: int) -> str:
        return f"{self.path}:{self.rows[number].line}"

    def read(self, number: int) -> tuple[dict[str, np.ndarray], int | float]:
        encoded = self._encoded.get(number)
        if encoded is None:
            # Tokenizing is the dear part, and tuning passes over the data many times.
            texts = self.rows[number].texts
            second = texts[1] if len(texts) > 1 else None
            encoded = self._encoded[number] = self._tokenizer.encode(texts[0], second, self.limit)
        length = len(encoded.ids) if self.dynamic_length else self.limit
        return self._inputs(encoded, length), self.rows[number].label

    def _input_names(self, given: Sequence[str] | None) -> tuple[str, ...]:
        wanted = 2 if self.model_type in WITHOUT_TYPES else 3
        if given is None:
            return INPUT_NAMES[:wanted]
        if len(given) != wanted:
            raise ConfigError(
                f"input_names should be {wanted} names for {self.model_type}: {given!r}"
            )
        return tuple(given)

    def _inputs(self, encoded: Encoded, length: int) -> dict[str, np.ndarray]:
        rest = length - len(encoded.ids)
        columns = (
            encoded.ids + [self._tokenizer.pad] * rest,
            [1] * len(encoded.ids) + [0] * rest,
            encoded.types + [0] * rest,
        )
        return {
            name: np.asarray(column, dtype=np.int64)
            for name, column in zip(self._names, columns, strict=False)
        }

    def _collate(self, samples: list[Any]) -> tuple[dict[str, np.ndarray], np.ndarray]:
        length = max(len(inputs[self._names[0]]) for inputs, _ in samples)
        fills = (self._tokenizer.pad, 0, 0)
        batch = {
            name: np.full((len(samples), length), fill, dtype=np.int64)
            for name, fill in zip(self._names, fills, strict=False)
        }
        for row, (inputs, _) in enumerate(samples):
            for name, values in inputs.items():
                batch[name][row, : len(values)] = values
        return batch, np.asarray([label for _, label in samples])


def read_task(
    data_dir: str | Path, task: str, evaluate: bool = True, model_type: str = "bert"
) -> tuple[Path, list[GlueRow]]:
    """The rows of a GLUE task's dev or train file, and the file."""
    name = task.lower()
    name = {"sst2": "sst-2", "stsb": "sts-b", "mnli_mm": "mnli-mm"}.get(name, name)
    if name not in TASKS:
        raise ConfigError(
            f"unknown GLUE task {task!r}{did_you_mean(name, TASKS) or ';'} "
            f"Known: {', '.join(TASKS)}"
        )
    layout = TASKS[name]
    path = _find(existing_folder(data_dir), layout, evaluate)
    classes = layout.classes
    if layout.folder == "MNLI" and model_type in SWAPPED_MNLI:
        classes = (classes[0], classes[2], classes[1])
    rows = _read_rows(path, layout, classes)
    if not rows:
        raise DataError(f"{path}: holds no rows")
    return path, rows


def _find(folder: Path, layout: GlueTask, evaluate: bool) -> Path:
    names = layout.dev if evaluate else ("train.tsv",)
    for place in (folder, folder / layout.folder):
        for name in names:
            if (place / name).is_file():
                return place / name
    raise not_found(
        f"GLUE {layout.folder}",
        folder,
        [*names, *(f"{layout.folder}/{name}" for name in names)],
        "Get the task's data from https://gluebenchmark.com/tasks",
    )


def _read_rows(path: Path, layout: GlueTask, classes: tuple[str, ...]) -> list[GlueRow]:
    lines = read_text(path).split("\n")
    head = [cell.strip() for cell in lines[0].rstrip("\r").split("\t")] if layout.header else []
    places = _places(path, layout, head)
    rows, broken = [], []
    for number, line in enumerate(lines, start=1):
        if (layout.header and number == 1) or not line.strip():
            continue
        cells = line.rstrip("\r").split("\t")
        if len(cells) <= max(places) or (head and len(cells) != len(head)):
            broken.append(f"{path}:{number}: has {len(cells)} columns, expected {len(head) or 4}")
            if not layout.skip_broken or len(broken) * 100 > len(lines):
                raise DataError(broken[0])
            continue
        *texts, label = (cells[place] for place in places)
        rows.append(GlueRow(number, tuple(texts), _label(label, classes, f"{path}:{number}")))
    if broken:
        logger.warning("%d broken rows skipped, first %s", len(broken), broken[0])
    return rows


def _places(path: Path, layout: GlueTask, head: list[str]) -> list[int]:
    wanted = [*layout.texts, layout.label]
    if not layout.header:
        return [int(item) for item in wanted]
    missing = [item for item in wanted if item not in head]
    if missing:
        raise DataError(
            f"{path}:1: the header lacks {', '.join(map(repr, missing))}; it has: "
            f"{', '.join(map(repr, head))}. A test file has no labels: use the dev file"
        )
    return [head.index(item) for item in wanted]


def _label(text: str, classes: tuple[str, ...], where: str) -> int | float:
    text = text.strip()
    if not classes:
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if not 0 <= score <= 5:
            raise DataError(f"{where}: the score {text!r} is not a number from 0 to 5")
        return score
    if text in classes:
        return classes.index(text)
    if text.isascii() and text.isdigit() and int(text) < len(classes):
        return int(text)
    raise DataError(f"{where}: the label {text!r} is none of {', '.join(classes)}")
