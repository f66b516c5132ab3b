"""BERT-like inputs from features somebody has made already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lpot.core.batch import LABEL_KEYS
from lpot.core.errors import ConfigError, DataError, did_you_mean
from lpot.data.datasets.base import Dataset, FilterFunction, TransformFunction
from lpot.data.datasets.squad import FIRST_ID, read_articles
from lpot.data.files import existing_file
from lpot.data.image import to_array
from lpot.data.record import RecordFile, parse_example

TASKS = ("classifier", "squad")
# The models that take token types, and those that take the answer's mask.
WITH_TYPES = ("bert", "xlnet", "mobilebert", "albert", "electra")
WITH_MASK = ("xlnet", "xlm")


class Bert(Dataset):
    """Features as (inputs by name, labels), or a record file for a model that reads it itself.

    With `dataset`: its samples are tuples of token numbers, attention mask, token types and label
    (classifier) or example index (squad), as transformers' scripts make them. With `root`: one
    sample, (root, articles of label_file), for a graph that reads the record file itself.

    Args:
        dataset: the features: anything with numbered samples.
        task: 'classifier' or 'squad'.
        model_type: bert, distilbert, roberta, xlnet, xlm, …: which inputs the model takes.
        root: path of a record file made from SQuAD.
        label_file: SQuAD's json file, with `root`.
        transform: applied to each (inputs, label).
        filter: keeps only samples for which it returns true.
    """

    def __init__(
        self,
        dataset: Any = None,
        task: str = "squad",
        model_type: str = "bert",
        root: str | None = None,
        label_file: str | None = None,
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
    ) -> None:
        super().__init__(transform, filter)
        if task not in TASKS:
            raise ConfigError(
                f"task {task!r} is not known{did_you_mean(str(task), TASKS) or ';'} "
                "Known: classifier, squad"
            )
        if (dataset is None) == (root is None):
            raise ConfigError(
                "give either dataset (features) or root (a record file) with label_file"
            )
        self.task, self.model_type = task, model_type.lower()
        self._features = dataset
        self._whole: tuple[str, Any] | None = None
        if root is not None:
            if label_file is None:
                raise ConfigError("root needs label_file, SQuAD's json file")
            self._whole = str(existing_file(root, "record file")), read_articles(label_file)

    def count(self) -> int:
        return 1 if self._whole is not None else len(self._features)

    def read(self, number: int) -> tuple[Any, Any]:
        if self._whole is not None:
            return self._whole
        sample = self._features[number]
        if isinstance(sample, Mapping):
            return self._named(sample, number)
        parts = [to_array(item) for item in sample]
        needed = 6 if self.task == "squad" and self.model_type in WITH_MASK else 4
        if len(parts) < needed:
            raise DataError(
                f"bert sample {number} has {len(parts)} parts, the task {self.task!r} with "
                f"{self.model_type!r} needs {needed}: token numbers, mask, token types, label, …"
            )
        inputs = {"input_ids": parts[0], "attention_mask": parts[1]}
        if self.model_type in WITH_TYPES:
            inputs["token_type_ids"] = parts[2]
        if self.task == "squad" and self.model_type in WITH_MASK:
            inputs |= {"cls_index": parts[4], "p_mask": parts[5]}
        return inputs, parts[3]

    def _named(self, sample: Mapping[str, Any], number: int) -> tuple[Any, Any]:
        inputs = {name: to_array(value) for name, value in sample.items()}
        for key in LABEL_KEYS:
            if key in inputs:
                return inputs, inputs.pop(key)
        raise DataError(
            f"bert sample {number} has the keys {sorted(sample)}, none of them a label "
            f"({', '.join(LABEL_KEYS)})"
        )


# -- BERT's SQuAD windows out of a TFRecord file, for models that take three inputs.


INPUTS = ("input_ids", "input_mask", "segment_ids")


class BertRecord(Dataset):
    """Windows of a record file: ((token numbers, mask, token types), window's unique id).

    The ids are those of the record file, or counted up from 1000000000 as BERT's scripts do: what
    the postprocess SquadV1 needs.

    Args:
        root: the record file that BERT's script made from SQuAD.
        label_file: the SQuAD v1.1 json file it was made from.
        task: 'squad'.
        model_type: 'bert'.
        transform: applied to each (inputs, unique id).
        filter: keeps only samples for which it returns true.
        num_cores: accepted for compatibility; no effect.
    """

    def __init__(
        self,
        root: str,
        label_file: str,
        task: str = "squad",
        model_type: str = "bert",
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
        num_cores: int = 28,
    ) -> None:
        super().__init__(transform, filter)
        for name, given, known in (("task", task, "squad"), ("model_type", model_type, "bert")):
            if given != known:
                raise ConfigError(f"{name} should be {known!r}, not {given!r}")
        self.articles = read_articles(label_file)
        self.file = RecordFile(existing_file(root, "record file"))
        if not len(self.file):
            raise DataError(f"{root}: holds no records")

    def count(self) -> int:
        return len(self.file)

    def origin(self, number: int) -> str:
        return f"{self.file.path}: record {number}"

    def read(self, number: int) -> tuple[tuple[np.ndarray, ...], int]:
        origin = self.origin(number)
        features = parse_example(self.file[number], origin)
        columns = [np.asarray(features.get(name, ())) for name in INPUTS]
        sizes = {column.size for column in columns}
        if len(sizes) != 1 or 0 in sizes or any(column.dtype.kind != "i" for column in columns):
            raise DataError(
                f"{origin}: should hold {', '.join(INPUTS)}, whole numbers of one length; it has: "
                f"{', '.join(sorted(features)) or 'nothing'}"
            )
        given = np.asarray(features.get("unique_ids", ()))
        known = given.size == 1 and given.dtype.kind == "i"
        return tuple(columns), int(given[0]) if known else FIRST_ID + number
