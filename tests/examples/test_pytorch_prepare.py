"""What prepares data and models for the PyTorch examples."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tiny_bert import PYTORCH, script, write_bert

FOLDER = PYTORCH / "language_translation"


def test_sources_become_the_distributed_files(tmp_path: Path) -> None:
    glue = tmp_path / "source" / "glue"
    texts = {
        "MRPC/dev.tsv": 'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t2\t3\t"a\tb\n',
        "STS-B/sts-dev.csv": "main\tMSR\t2012\t0001\t5.000\tA man.\tThe man.\tmore\n",
        "SST-2/train_slice_2.tsv": "sentence\tlabel\ngood \t1\n",
        "RTE/dev.tsv": "sentence1\tsentence2\tlabel\tidx\na\tb\t1\t0\n",
        "CoLA/in_domain_train.tsv": "they went\t1\n",
        "CoLA/out_of_domain_dev.tsv": "went they\t0\n",
    }
    for name, text in texts.items():
        (glue / name).parent.mkdir(parents=True, exist_ok=True)
        (glue / name).write_text(text, encoding="utf-8")
    squad = tmp_path / "source" / "squad"
    squad.mkdir()
    (squad / "train-slice-v1.1.json").write_text(json.dumps({"version": "1.1", "data": []}))
    with gzip.open(squad / "train-slice2-cqa.json.gz", "wt") as stream:
        json.dump([{"context": "In 1990 it rained", "question": "When?", "answer": "1990"}], stream)
    out = tmp_path / "out"
    prepare = script("prepare_dataset", FOLDER)
    prepare.main(["--source", str(tmp_path / "source"), f"--output_dir={out}"])
    from lpot.data import get_dataset

    bert = write_bert(tmp_path / "bert")
    for task, label in (("mrpc", 1), ("sts-b", 5.0), ("rte", 1), ("cola", 0)):
        found = get_dataset("GLUE", str(out), str(bert), task=task, max_seq_length=16)
        assert [found[0][1]] == [label]
    train = get_dataset("GLUE", str(out), str(bert), task="sst-2", evaluate=False)
    assert len(train) == 1
    (article,) = json.loads((out / "SQuAD" / "train-v1.1.json").read_text())["data"]
    answer = article["paragraphs"][0]["qas"][0]["answers"][0]
    assert answer == {"text": "1990", "answer_start": 3}


def test_an_empty_source_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare = script("prepare_dataset", FOLDER)
    with pytest.raises(SystemExit):
        prepare.main([f"--source={tmp_path}", "--output_dir", str(tmp_path / "out")])
    with pytest.raises(SystemExit):
        prepare.main(["--tasks=MRPC,SQAD"])
    told = capsys.readouterr().err
    assert "has no file of" in told and "the tasks are" in told


def test_an_archive_gives_its_tables_and_writes_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("RTE/dev.tsv", "y")
        archive.writestr("RTE/original/dev.tsv", "x")
        archive.writestr("RTE/run.sh", "z")
    unpack = script("prepare_dataset", FOLDER).unpack
    unpack(path, tmp_path / "deep" / "RTE")
    assert [one.name for one in (tmp_path / "deep" / "RTE").iterdir()] == ["dev.tsv"]
    assert (tmp_path / "deep" / "RTE" / "dev.tsv").read_text() == "y"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../../evil.tsv", "x")
    with pytest.raises(SystemExit, match="points outside"):
        unpack(path, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    assert not list(tmp_path.parent.glob("evil.tsv"))


def test_a_checkpoint_in_two_parts_is_put_together(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    whole = write_bert(tmp_path / "whole", "BertForSequenceClassification")
    base = write_bert(tmp_path / "base")
    state = load_file(whole / "model.safetensors")
    part = tmp_path / "part"
    part.mkdir()
    kept = {name: value for name, value in state.items() if ".embeddings." not in name}
    save_file({name: value.half() for name, value in kept.items()}, part / "model.safetensors")
    (part / "config.json").write_bytes((whole / "config.json").read_bytes())
    script("prepare_model", FOLDER).main(
        [f"--model={part}", f"--embeddings={base}", f"--output_dir={tmp_path / 'out'}"]
    )
    made = load_file(tmp_path / "out" / "model.safetensors")
    assert set(made) == set(state) and {str(one.dtype) for one in made.values()} == {
        "torch.float32"
    }
    assert (tmp_path / "out" / "vocab.txt").is_file()


def test_setup_install_does_not_fail(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "install"], cwd=FOLDER, capture_output=True, text=True
    )
    assert done.returncode == 0 and "nothing to build" in done.stdout


def test_stubs_by_hand_change_no_output(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    folder = write_bert(tmp_path / "model", "BertForSequenceClassification")
    modeling = script("modeling_bert", PYTORCH / "bert" / "transformers")
    import transformers

    plain = transformers.BertForSequenceClassification.from_pretrained(folder).eval()
    stubbed = modeling.BertForSequenceClassification.from_pretrained(folder).eval()
    count = sum(type(one).__name__ == "QuantStub" for one in stubbed.modules())
    assert count == sum(isinstance(one, torch.nn.Linear) for one in plain.modules()) == 14
    ids = torch.arange(12).reshape(2, 6)
    with torch.inference_mode():
        assert torch.equal(plain(ids).logits, stubbed(ids).logits)
