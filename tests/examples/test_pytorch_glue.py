"""The GLUE script's paths on a tiny BERT: all nine tasks, resume, refusals, tuning."""

from __future__ import annotations

import json
import os
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
    for wrong in (("MRPCC", "--do_eval"), ("MRPC",)):
        with pytest.raises(SystemExit):
            main(words(bert, wrong[0], data, out, *wrong[1:]))
    told = capsys.readouterr().err
    assert "the tasks are cola" in told and "nothing to do" in told


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
    command = [sys.executable, "-m", launcher, "--nproc_per_node=2", "--master_port=0"]
    command += [str(SCRIPTS / "run_glue_tune.py"), *words(bert, "MRPC", data, out, *TRAIN)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, timeout=300, env=env, cwd=tmp_path)
    assert results(out)["global_step"] == "2", "12 rows, 2 processes with 4 each"
