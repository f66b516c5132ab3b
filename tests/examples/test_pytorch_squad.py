"""The SQuAD scripts' paths on a tiny BERT, and what they write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiny_bert import results, script, without_speed, write_bert, write_squad


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    without_speed(monkeypatch)
    for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def words(model: Path, output: Path, *more: str) -> list[str]:
    return [
        "--model_type", "bert", "--model_name_or_path", str(model), "--max_seq_length", "40",
        "--doc_stride", "8", "--max_query_length", "8", "--no_cuda", "--output_dir", str(output),
        "--per_gpu_eval_batch_size=4", "--per_gpu_train_batch_size=3", *more,
    ]  # fmt: skip


def test_train_predict_and_evaluate(tmp_path: Path) -> None:
    data = write_squad(tmp_path / "squad")
    model = write_bert(tmp_path / "model")
    out = tmp_path / "out"
    run = script("run_squad_tune")
    flags = ["--do_train", "--do_eval", "--do_lower_case", "--max_steps", "4"]
    flags += ["--train_file", str(data / "train-v1.1.json")]
    flags += ["--predict_file", str(data / "dev-v1.1.json"), "--learning_rate", "3e-3"]
    run.main(words(model, out, *flags))
    answers = json.loads((out / "predictions.json").read_text())
    assert sorted(answers) == ["q0", "q1", "q2", "q3"]
    assert all(isinstance(text, str) for text in answers.values())
    found = results(out)
    assert {"f1", "exact_match", "loss", "global_step"} <= set(found)
    assert found["global_step"] == "4"
    again = script("run_squad").main
    again(words(out, tmp_path / "eval", "--do_eval", "--data_dir", str(data)))
    assert json.loads((tmp_path / "eval" / "predictions.json").read_text()) == answers


def test_tuning_as_the_tutorial_types_it(tmp_path: Path) -> None:
    data = write_squad(tmp_path / "squad")
    model = write_bert(tmp_path / "model", "BertForQuestionAnswering")
    (tmp_path / "conf.yaml").write_text(
        "model: {name: bert, framework: pytorch}\n"
        "tuning: {accuracy_criterion: {absolute: 99, really: true}, exit_policy: {max_trials: 2}}\n"
    )
    flags = ["--task_name", "SQuAD", "--do_eval", "--data_dir", str(data), "--tune"]
    script("run_squad_tune").main(words(model, model, *flags))
    assert (model / "int8" / "predictions.json").is_file()
    assert {"fp32", "int8", "f1"} <= set(results(model / "int8"))


def test_the_answers_tokens_are_found(tmp_path: Path) -> None:
    data = write_squad(tmp_path / "squad")
    model = write_bert(tmp_path / "model")
    run = script("run_squad_tune")
    args = run.read_arguments(words(model, tmp_path / "out", "--do_train", f"--data_dir={data}"))
    tokenizer = script("task_model").load_tokenizer(args)
    assert args.do_lower_case is True, "an uncased tokenizer, though the flag was not typed"
    windows = run.read_windows(args, tokenizer, evaluate=False)
    places = script("squad_answers").answer_positions(
        windows.articles, windows.features, tokenizer.tokenize
    )
    shown = {
        (feature.example_index, tuple(feature.tokens[first : last + 1]))
        for feature, (first, last) in zip(windows.features, places, strict=True)
        if first
    }
    assert shown == {(n, ("the", "cat")) for n in (0, 2)} | {
        (n, ("in", "the", "park")) for n in (1, 3)
    }
    assert (0, 0) in places, "windows that don't show the answer point at [CLS]"


def test_missing_files_and_wrong_tasks_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_bert(tmp_path / "model", "BertForQuestionAnswering")
    main = script("run_squad_tune").main
    with pytest.raises(SystemExit, match=r"dev-v1.1.json: no such file; .*--predict_file"):
        main(words(model, tmp_path / "out", "--do_eval", "--data_dir", str(tmp_path)))
    with pytest.raises(SystemExit):
        main(words(model, tmp_path / "out", "--do_eval", "--task_name", "MRPC"))
    assert "SQuAD only" in capsys.readouterr().err


def test_training_needs_answers(tmp_path: Path) -> None:
    data = write_squad(tmp_path / "squad")
    raw = json.loads((data / "train-v1.1.json").read_text())
    for question in raw["data"][0]["paragraphs"][0]["qas"]:
        del question["answers"]
    (data / "train-v1.1.json").write_text(json.dumps(raw))
    flags = words(write_bert(tmp_path / "model"), tmp_path / "out", f"--data_dir={data}")
    with pytest.raises(SystemExit, match="no question has an answer to learn from"):
        script("run_squad_tune").main([*flags, "--do_train", "--max_steps=1"])
