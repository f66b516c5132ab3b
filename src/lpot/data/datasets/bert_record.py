"""BERT's SQuAD windows out of a TFRecord file, for models that take three inputs."""

from __future__ import annotations

import numpy as np

from lpot.core.errors import ConfigError, DataError
from lpot.data.datasets.base import Dataset, FilterFunction, TransformFunction
from lpot.data.datasets.squad import FIRST_ID, read_articles
from lpot.data.files import existing_file
from lpot.data.record import RecordFile, parse_example

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
