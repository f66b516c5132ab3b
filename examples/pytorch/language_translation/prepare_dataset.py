"""GLUE and SQuAD under their distributed names and columns: downloaded, or made from a folder.

`--source DIR` holds `glue/<task>/…` and `squad/…` (or is one of them): GLUE's own files, or as
their sources publish them: STS-B's csv, RTE with numbers, CoLA with two columns, slices.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import downloads

# task → the archive's name; MRPC and SQuAD come as plain files
ARCHIVES = {
    "CoLA": "CoLA", "SST-2": "SST-2", "STS-B": "STS-B", "QQP": "QQP-clean", "MNLI": "MNLI",
    "QNLI": "QNLIv2", "RTE": "RTE", "WNLI": "WNLI",
}  # fmt: skip
TASKS = (*ARCHIVES, "MRPC", "SQuAD")
STS_HEAD = "index genre filename year old_index source1 source2 sentence1 sentence2 score"
MRPC_HEAD = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
ENTAILMENT = {"0": "entailment", "1": "not_entailment"}
Rows = list[list[str]]


# -- from a folder ---------------------------------------------------------------------------


def read_rows(path: Path) -> Rows:
    text = path.read_text(encoding="utf-8-sig")
    return [line.rstrip("\r").split("\t") for line in text.split("\n") if line.strip()]


def write_rows(path: Path, rows: Sequence[Sequence[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def as_they_are(rows: Rows) -> Rows:
    return rows


def sts_rows(rows: Rows) -> Rows:
    """genre, file, year, id, score, texts → GLUE's ten columns."""
    found = [STS_HEAD.split(" ")]
    for number, row in enumerate(rows):
        genre, file, year, old, score, first, second = row[:7]
        found.append([str(number), genre, file, year, old, "none", "none", first, second, score])
    return found


def rte_rows(rows: Rows) -> Rows:
    """Numbers as labels → words; the index comes first."""
    places = [rows[0].index(name) for name in ("sentence1", "sentence2", "label")]
    found = [["index", "sentence1", "sentence2", "label"]]
    for number, row in enumerate(rows[1:]):
        first, second, label = (row[place] for place in places)
        found.append([str(number), first, second, ENTAILMENT.get(label, label)])
    return found


def cola_rows(rows: Rows) -> Rows:
    """Sentence and label → GLUE's four columns without a header."""
    if len(rows[0]) == 4:
        return rows
    return [["cola", label, "", sentence] for sentence, label in rows]


# task → distributed name, the names it may have in the source, what makes the one of the other
FILES: dict[str, tuple[tuple[str, tuple[str, ...], Callable[[Rows], Rows]], ...]] = {
    "MRPC": tuple((f"{p}.tsv", (f"{p}.tsv",), as_they_are) for p in ("train", "dev", "test")),
    "STS-B": tuple((f"{p}.tsv", (f"sts-{p}.csv",), sts_rows) for p in ("train", "dev")),
    "SST-2": (
        ("train.tsv", ("train.tsv", "train_slice_*.tsv"), as_they_are),
        ("dev.tsv", ("dev.tsv",), as_they_are),
    ),
    "RTE": tuple((f"{p}.tsv", (f"{p}.tsv",), rte_rows) for p in ("train", "dev")),
    "CoLA": (
        ("train.tsv", ("train.tsv", "in_domain_train.tsv"), cola_rows),
        ("dev.tsv", ("dev.tsv", "out_of_domain_dev.tsv", "in_domain_dev.tsv"), cola_rows),
    ),
    "MNLI": tuple(
        (f"{p}.tsv", (f"{p}.tsv",), as_they_are)
        for p in ("train", "dev_matched", "dev_mismatched")
    ),
} | {
    task: tuple((f"{p}.tsv", (f"{p}.tsv",), as_they_are) for p in ("train", "dev"))
    for task in ("QQP", "QNLI", "WNLI")
}  # fmt: skip


def convert(source: Path, output: Path, tasks: Sequence[str]) -> list[Path]:
    """What of the tasks the source has, under `output`."""
    written = []
    for task in tasks:
        if task == "SQuAD":
            written += convert_squad(source, output)
            continue
        folder = next(
            (one for one in (source / "glue" / task, source / task) if one.is_dir()), source
        )
        if folder == source and source.name != task:
            continue
        for name, patterns, change in FILES[task]:
            path = next((one for pattern in patterns for one in sorted(folder.glob(pattern))), None)
            if path is None and task == "STS-B" and (folder / name).is_file():
                path, change = folder / name, as_they_are
            if path is not None:
                write_rows(output / task / name, change(read_rows(path)))
                written.append(output / task / name)
    return written


def convert_squad(source: Path, output: Path) -> Iterator[Path]:
    folder = next((one for one in (source / "squad", source / "SQuAD") if one.is_dir()), source)
    for part in ("dev", "train"):
        names = (f"{part}-v1.1.json", f"{part}-slice-v1.1.json")
        path = next((folder / name for name in names if (folder / name).is_file()), None)
        if path is None:
            continue
        content = json.loads(path.read_text("utf-8"))
        more = folder / "train-slice2-cqa.json.gz"
        if part == "train" and path.name != names[0] and more.is_file():
            with gzip.open(more, "rt", encoding="utf-8") as stream:
                content["data"] += [
                    question_article(*pair) for pair in enumerate(json.load(stream))
                ]
        target = output / "SQuAD" / names[0]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(content), encoding="utf-8")
        yield target


def question_article(number: int, row: dict[str, str]) -> dict[str, Any]:
    """{context, question, answer} as an article of one paragraph; the place is the first found."""
    start = row["context"].index(row["answer"])
    answers = [{"text": row["answer"], "answer_start": start}]
    question = {"id": f"cqa-{number}", "question": row["question"], "answers": answers}
    return {"title": "", "paragraphs": [{"context": row["context"], "qas": [question]}]}


# -- from the network ------------------------------------------------------------------------


def download(output: Path, tasks: Sequence[str]) -> list[Path]:
    for task in tasks:
        if task == "SQuAD":
            for part in ("train", "dev"):
                downloads.fetched(f"{part}-v1.1.json", output / task)
        elif task == "MRPC":
            download_mrpc(output / task)
        else:
            unpack(downloads.fetched(f"{ARCHIVES[task]}.zip", output), output / task)
    return [path for task in tasks for path in sorted((output / task).glob("*.*"))]


def unpack(archive: Path, folder: Path) -> None:
    """The tsv files alone, without the archive's folders."""
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".unpacked-") as name:
        for path in downloads.unpacked(archive, Path(name)):
            if path.suffix == ".tsv" and "original" not in str(path.relative_to(name)):
                folder.mkdir(parents=True, exist_ok=True)
                path.replace(folder / path.name)


def download_mrpc(folder: Path) -> None:
    """The dev set is the part of the published train file whose ids GLUE lists."""
    for part in ("train", "test"):
        downloads.fetched(f"msr_paraphrase_{part}.txt", folder)
    ids = downloads.fetched("mrpc_dev_ids.tsv", folder)
    wanted = {tuple(row[:2]) for row in read_rows(ids)}
    rows = read_rows(folder / "msr_paraphrase_train.txt")[1:]
    head = MRPC_HEAD.split("\t")
    write_rows(folder / "dev.tsv", [head, *(r for r in rows if tuple(r[1:3]) in wanted)])
    write_rows(folder / "train.tsv", [head, *(r for r in rows if tuple(r[1:3]) not in wanted)])
    shutil.copyfile(folder / "msr_paraphrase_test.txt", folder / "test.tsv")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output_dir", type=Path, default=Path("data"))
    parser.add_argument("--source", type=Path, help="a folder instead of the network")
    parser.add_argument("--tasks", default=",".join(TASKS), help="some of " + ", ".join(TASKS))
    args = parser.parse_args(words)
    known = {task.lower(): task for task in TASKS}
    tasks = [known.get(task.strip().lower(), "") for task in args.tasks.split(",")]
    if "" in tasks:
        parser.error(f"--tasks {args.tasks}: the tasks are {', '.join(TASKS)}")
    if args.source is None:
        written = download(args.output_dir, tasks)
    elif args.source.is_dir():
        written = convert(args.source, args.output_dir, tasks)
    else:
        parser.error(f"--source {args.source}: no such folder")
    if not written:
        parser.error(f"--source {args.source} has no file of {', '.join(tasks)}")
    for path in written:
        print(path)


if __name__ == "__main__":
    main()
