"""The BlendCNN example's paths on tiny data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_bert import script, without_speed, write_bert
from tiny_blendcnn import FOLDER, classify, trained

CONF = (
    "model: {name: blendcnn, framework: pytorch}\ntuning: {accuracy_criterion: {absolute: 0.5}}\n"
)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    without_speed(monkeypatch)
    (tmp_path / "conf.yaml").write_text(CONF)
    return trained(tmp_path)


@pytest.mark.parametrize("stubs", [(), ("--manual_stubs",)], ids=["plain", "stubs"])
def test_train_tune_and_measure(
    stubs: tuple[str, ...], models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = classify().main
    small = ("--dataset_location=MRPC", "--batch_size=4", "--max_len=24")
    assert sorted(path.name for path in models.iterdir()) == ["model_final.pt", "vocab.txt"]
    flags = ["--tune", f"--input_model={models}", "--output_model=int8", "--lpot_yaml=conf.yaml"]
    main([*flags, *small, *stubs])
    assert (Path("int8") / "best_configure.yaml").is_file()
    capsys.readouterr()
    main(["--int8=true", "--mode=benchmark", "--iter=3", *small])
    told = capsys.readouterr().out
    assert "Throughput:" in told and "Batch size = 4" in told
    main(["--int8=False", "--mode=accuracy", f"--input_model={models}", *small])
    assert "Accuracy: 0.7500" in capsys.readouterr().out


def test_embeddings_stay_as_they_were(models: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    state = torch.load(models / "model_final.pt", weights_only=True)
    source = load_file(tmp_path / "embeddings" / "model.safetensors")
    assert torch.equal(state["embed.word.weight"], source["embeddings.word_embeddings.weight"])


@pytest.mark.slow
def test_embeddings_of_a_tensorflow_checkpoint(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    embeddings = script("embeddings", FOLDER)
    bert = embeddings.read_embeddings(write_bert(tmp_path / "bert"))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = [
            tf.compat.v1.get_variable(key, initializer=bert[name].numpy())
            for name, key in embeddings.TF_NAMES.items()
        ]
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(made)
        saver.save(session, str(tmp_path / "tf" / "bert_model.ckpt"))
    found = embeddings.read_embeddings(tmp_path / "tf")
    assert all((found[name] == bert[name]).all() for name in bert)


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = classify()
    with pytest.raises(SystemExit, match="nothing was tuned here yet"):
        module.main(["--int8=true", "--mode=benchmark", "--dataset_location=MRPC"])
    with pytest.raises(SystemExit, match="train it first"):
        module.main(["--tune", "--input_model=gone", "--dataset_location=MRPC"])
    with pytest.raises(SystemExit, match=r"neither bert_model.ckpt.index"):
        script("embeddings", FOLDER).read_embeddings(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not json"),
        ("[]", "should hold one {…}, not a list"),
        ('{"epohcs": 3}', "unknown key 'epohcs', did you mean 'epochs'?"),
        ('{"epochs": "three"}', "epochs should be of type int, not 'three'"),
        ('{"epochs": 0}', "epochs should be 1 or more, not 0"),
        ('{"dropout": 1}', "dropout should be from 0 to below 1"),
        ('{"max_len": 65, "embeddings": "bert"}', "bert has 64 positions"),
        (None, "train.json can't be read"),
    ],
)
def test_a_wrong_train_json_is_explained(
    text: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_bert(tmp_path / "bert")
    if text is not None:
        (tmp_path / "train.json").write_text(text)
    with pytest.raises(SystemExit, match=re.escape(message)):
        classify().main(["--model_config", "train.json"])


def test_other_weights_are_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    load = script("models", FOLDER).load_weights
    path = tmp_path / "model_final.pt"
    for write in (lambda: path.write_bytes(b"no"), lambda: torch.save({"a": torch.ones(1)}, path)):
        write()
        with pytest.raises(SystemExit, match="is no BlendCNN"):
            load(path)


@pytest.mark.slow
def test_unknown_flags_of_the_shell_scripts_are_refused(tmp_path: Path) -> None:
    for name in ("run_tuning.sh", "run_benchmark.sh"):
        done = subprocess.run(
            [str(FOLDER / name), "--inptu_model=x"],
            env={**os.environ, "PYTHON": sys.executable},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2 and "known are" in done.stderr
