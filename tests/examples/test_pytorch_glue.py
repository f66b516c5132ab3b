"""The GLUE script's paths on a tiny BERT: all nine tasks, resume, refusals, tuning."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tiny_bert import LAYOUTS, SCRIPTS, results, script, without_speed, write_bert, write_glue

WANTED = {
    "CoLA": {"mcc"},
    "STS-B": {"pearson", "spearmanr", "corr"},
    "MRPC": {"acc", "f1", "acc_and_f1"},
    "QQP": {"acc", "f1", "acc_and_f1"},
}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    without_speed(monkeypatch)
    for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def words(bert: Path, task: str, data: Path, output: Path, *more: str) -> list[str]:
    return [
        "--model_type", "bert", "--model_name_or_path", str(bert), "--task_name", task,
        "--data_dir", str(data), "--max_seq_length", "24", "--do_lower_case",
        "--per_gpu_eval_batch_size=4", "--per_gpu_train_batch_size=4", "--no_cuda",
        "--output_dir", str(output), *more,
    ]  # fmt: skip


TRAIN = ("--do_train", "--do_eval", "--num_train_epochs", "1.0", "--learning_rate", "2e-3")


@pytest.mark.parametrize("task", LAYOUTS)
def test_every_task_is_trained_and_evaluated(task: str, bert: Path, tmp_path: Path) -> None:
    data = write_glue(tmp_path / "glue", task)
    out = tmp_path / "out"
    script("run_glue_tune").main(words(bert, task, data, out, *TRAIN))
    found = results(out)
    keys = WANTED.get(task, {"acc"}) | {"eval_loss", "loss", "global_step"}
    assert set(found) == keys
    assert found["global_step"] == "3"
    assert (out / "model.safetensors").is_file() and (out / "vocab.txt").is_file()
    kept = json.loads((out / "training_args.json").read_text())
    assert kept["learning_rate"] == 2e-3 and kept["task_name"] == task.lower()
    assert not list(out.glob("checkpoint-*")) and not list(out.glob("*.bin"))
    assert set(results(tmp_path / "out-MM")) == keys if task == "MNLI" else True
    assert sorted(path.name for path in data.iterdir()) == sorted(
        f"{name}.tsv" for name in LAYOUTS[task][0]
    ), "the data folder is left as it was"


def weights(folder: Path) -> Any:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_an_interrupted_training_ends_with_the_same_weights(bert: Path, tmp_path: Path) -> None:
    import torch

    run, training = script("run_glue_tune"), script("task_training")
    data = write_glue(tmp_path / "glue", "MRPC")
    more = (*TRAIN, "--save_steps", "2", "--warmup_steps", "2", "--num_train_epochs", "2.0")
    run.main(words(bert, "MRPC", data, tmp_path / "whole", *more))
    update = training.Run.update

    def stopping(self: Any) -> None:
        if self.step == 5:
            raise KeyboardInterrupt
        update(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.Run, "update", stopping)
        with pytest.raises(KeyboardInterrupt):
            run.main(words(bert, "MRPC", data, tmp_path / "cut", *more))
    assert [one.name for one in (tmp_path / "cut").glob("checkpoint-*")] == ["checkpoint-4"]
    seen: list[int] = []

    def counting(self: Any) -> None:
        seen.append(self.step)
        update(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.Run, "update", counting)
        run.main(words(bert, "MRPC", data, tmp_path / "cut", *more))
    assert seen == [4, 5]
    whole, cut = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    assert results(tmp_path / "whole") == results(tmp_path / "cut")


def test_a_finished_training_is_not_done_twice(
    bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = script("run_glue_tune")
    data = write_glue(tmp_path / "glue", "RTE")
    out = tmp_path / "out"
    run.main(words(bert, "RTE", data, out, *TRAIN))
    stamp = (out / "model.safetensors").stat().st_mtime_ns
    run.main(words(bert, "RTE", data, out, *TRAIN))
    assert (out / "model.safetensors").stat().st_mtime_ns == stamp
    with pytest.raises(SystemExit, match=r"other arguments.*--overwrite_output_dir"):
        run.main(words(bert, "RTE", data, out, *TRAIN, "--seed", "7"))
    run.main(words(bert, "RTE", data, out, *TRAIN, "--seed", "7", "--overwrite_output_dir"))
    assert (out / "model.safetensors").stat().st_mtime_ns != stamp


@pytest.mark.parametrize("stubs", [(), ("--manual_stubs",)], ids=["plain", "stubs"])
def test_tuning_leaves_the_int8_model_beside_the_checkpoint(
    stubs: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bert = write_bert(tmp_path / "model", "BertForSequenceClassification")
    data = write_glue(tmp_path / "glue", "MRPC")
    before = (bert / "model.safetensors").read_bytes()
    (tmp_path / "conf.yaml").write_text(
        "model: {name: bert, framework: pytorch}\n"
        "tuning: {accuracy_criterion: {absolute: 0.5}, exit_policy: {max_trials: 2}}\n"
    )
    more = ("--do_eval", "--tune", *stubs)
    script("run_glue_tune").main(words(bert, "MRPC", data, bert, *more))
    assert (bert / "model.safetensors").read_bytes() == before
    assert (bert / "int8" / "best_configure.yaml").is_file()
    assert {"fp32", "int8", "evaluations", "f1"} <= set(results(bert / "int8"))
    assert (tmp_path / "lpot_workspace").is_dir()
    flags = [f"--input_model={bert}", f"--dataset_location={data.parent}", "--batch_size=4"]
    flags += ["--max_seq_length=24", "--mode=accuracy", "--int8=True", *stubs]
    capsys.readouterr()
    script("run_benchmark").main(flags)
    assert f"f1 = {results(bert / 'int8')['f1']}" in capsys.readouterr().out


def test_what_can_not_work_is_said_in_a_sentence(
    bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = script("run_glue_tune").main
    data, out = write_glue(tmp_path / "glue", "MRPC"), tmp_path / "out"
    with pytest.raises(SystemExit, match=r"lacks 2 weights.*--do_train"):
        main(words(bert, "MRPC", data, out, "--do_eval"))
    with pytest.raises(SystemExit, match="give --model_type bert"):
        main([*words(bert, "MRPC", data, out, "--do_eval"), "--model_type", "roberta"])
    with pytest.raises(SystemExit, match="no such folder"):
        main(words(tmp_path / "gone", "MRPC", data, out, "--do_eval"))
    with pytest.raises(SystemExit, match="the model has 64 positions"):
        main([*words(bert, "MRPC", data, out, "--do_eval"), "--max_seq_length", "65"])
    head = write_bert(tmp_path / "three", "BertForSequenceClassification", labels=3)
    with pytest.raises(SystemExit, match=r"3 outputs.*needs 2"):
        main(words(head, "MRPC", data, out, "--do_eval"))
    file = tmp_path / "file"
    file.write_text("")
    wrong = {
        "did you mean mrpc?; the tasks are cola": words(bert, "MRPCC", data, out, "--do_eval"),
        "nothing to do": words(bert, "MRPC", data, out),
        "--modle_type is not known, did you mean --model_type?": ["--modle_type=x", "--do_eval"],
        "file is a file, expected a folder": words(bert, "MRPC", data, file / "x", "--do_eval"),
        "--save_steps should be 0 or more": words(
            bert, "MRPC", data, out, "--do_train", "--save_steps=-1"
        ),
    }
    for message, flags in wrong.items():
        with pytest.raises(SystemExit) as ended:
            main([*flags, "--model_name_or_path=x", "--output_dir=x"] if len(flags) < 3 else flags)
        told = capsys.readouterr().err
        assert ended.value.code == 2 and message in told
        assert len(told.splitlines()) == 1, "one line, not all the flags"


def test_what_is_no_checkpoint_is_told_apart(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = script("run_glue_tune").main
    data, out = write_glue(tmp_path / "glue", "MRPC"), tmp_path / "out"
    monkeypatch.setattr(script("task_model"), "_hub_answers", lambda: False)
    (tmp_path / "empty").mkdir()
    (tmp_path / "int8").mkdir()
    (tmp_path / "int8" / "lpot.json").write_text("{}")
    for name, message in {
        "data/dev.tsv": "is a file: give the checkpoint's folder",
        "empty": "has no config.json",
        "int8": "is an INT8 model already",
        "bert-base-unheard": "no network to ask the hub",
    }.items():
        place = Path(name.replace("data", "glue/MRPC"))
        with pytest.raises(SystemExit, match=message):
            main(words(place, "MRPC", data, out, "--tune"))
    with pytest.raises(SystemExit, match="is given by a launcher"):
        main(words(bert, "MRPC", data, out, "--do_train", "--local_rank=0"))


def test_a_checkpoint_of_another_task_is_trained_on(tmp_path: Path) -> None:
    three = write_bert(tmp_path / "three", "BertForSequenceClassification", labels=3)
    data, out = write_glue(tmp_path / "glue", "MRPC"), tmp_path / "out"
    script("run_glue_tune").main(words(three, "MRPC", data, out, *TRAIN))
    assert weights(out)["classifier.weight"].shape[0] == 2


@pytest.mark.parametrize("spelt", ["STS-B", "stsb", "sts_b", "Sts-b"])
def test_a_task_may_be_spelt_as_one_likes(spelt: str, bert: Path, tmp_path: Path) -> None:
    flags = words(bert, spelt, tmp_path, tmp_path / "out", "--do_eval")
    assert script("run_glue_tune").read_arguments(flags).task_name == "sts-b"


def test_scores_of_other_data_are_not_recalled(tmp_path: Path) -> None:
    """Model and calibration data are the same; only what eval_func looks at differs."""
    bert = write_bert(tmp_path / "model", "BertForSequenceClassification")
    (tmp_path / "conf.yaml").write_text(
        "model: {name: bert, framework: pytorch}\n"
        "tuning: {accuracy_criterion: {absolute: 1, really: true}, exit_policy: {max_trials: 1}}\n"
    )
    run = script("run_glue_tune")
    data = write_glue(tmp_path / "glue", "RTE")
    found = []
    for _ in range(2):
        run.main(words(bert, "RTE", data, bert, "--tune"))
        found.append(results(bert / "int8")["fp32"])
        dev = data / "dev.tsv"
        dev.write_text(re.sub(r"\t(not_)?entailment\n", "\tentailment\n", dev.read_text()))
    assert found[0] == "0.5" and found[1] in ("0.0", "1.0")
    assert len(list((tmp_path / "lpot_workspace" / "pytorch").glob("bert_rte_*"))) == 2


def test_a_training_stopped_at_the_last_file_goes_on(bert: Path, tmp_path: Path) -> None:
    run, training = script("run_glue_tune"), script("task_training")
    data, out = write_glue(tmp_path / "glue", "RTE"), tmp_path / "out"
    flags = words(bert, "RTE", data, out, *TRAIN, "--save_steps", "1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "clear_saved", lambda folder: None)
        run.main(flags)
    (out / "training_args.json").unlink()
    assert training.saved(out), "the last step to resume from is still there"
    run.main(flags)
    assert (out / "training_args.json").is_file() and not training.saved(out)


def test_features_are_made_anew_when_the_data_change(bert: Path, tmp_path: Path) -> None:
    run = script("run_glue_tune")
    model = write_bert(tmp_path / "model", "BertForSequenceClassification")
    data, out = write_glue(tmp_path / "glue", "MRPC"), tmp_path / "out"
    args = run.read_arguments(words(model, "MRPC", data, out, "--do_eval"))
    tokenizer = script("task_model").load_tokenizer(args)
    first = run.load_and_cache_examples(args, tokenizer, evaluate=True)
    assert len(first) == len(run.load_and_cache_examples(args, tokenizer, evaluate=True)) == 12
    cache = next(out.glob("cached_dev_mrpc_*.safetensors"))
    cache.write_bytes(b"broken")
    assert len(run.load_and_cache_examples(args, tokenizer, evaluate=True)) == 12
    lines = (data / "dev.tsv").read_text().splitlines()
    (data / "dev.tsv").write_text("\n".join(lines[:6]) + "\n")
    assert len(run.load_and_cache_examples(args, tokenizer, evaluate=True)) == 5


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torch.distributed.run", "torch.distributed.launch"])
def test_two_processes_train_one_model(launcher: str, bert: Path, tmp_path: Path) -> None:
    data, out = write_glue(tmp_path / "glue", "MRPC"), tmp_path / "out"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", launcher, "--nproc_per_node=2", f"--master_port={port}"]
    command += [str(SCRIPTS / "run_glue_tune.py"), *words(bert, "MRPC", data, out, *TRAIN)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=env, cwd=tmp_path) as launched:
        try:
            assert launched.wait(timeout=300) == 0
        finally:
            launched.terminate()  # told so, a launcher ends its processes; killed, it leaves them
    assert results(out)["global_step"] == "2", "12 rows, 2 processes with 4 each"
