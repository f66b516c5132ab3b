"""The PyTorch tutorials' own code, yaml and commands, taken from their text and run (S10–S14)."""

from __future__ import annotations

import logging
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tiny_bert import PYTORCH, ROOT, script, without_speed, write_bert, write_glue, write_squad
from tiny_blendcnn import FOLDER, classify, trained

SEEDS = Path(os.environ.get("LPOT_SEEDS", ROOT.parent / "shared" / "seeds"))


def tutorial(number: str) -> str:
    found = sorted(SEEDS.glob(f"{number}_*.txt"))
    if not found:
        pytest.skip(f"no tutorial {number} under {SEEDS}: set LPOT_SEEDS")
    return found[0].read_text(encoding="utf-8")


def blocks(text: str) -> list[str]:
    """The fenced blocks, without the indentation they share with their fences."""
    found = []
    for indent, body in re.findall(r"^( *)```\w*\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        lines = body.splitlines()
        found.append("\n".join(line.removeprefix(indent) for line in lines) + "\n")
    return found


def block(number: str, word: str) -> str:
    """The one block of a tutorial that has the word in it."""
    (found,) = [one for one in blocks(tutorial(number)) if word in one]
    return found


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    without_speed(monkeypatch)
    for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run_bert_block(name: str, task: str, eval_task: str, stubs: bool, more: list[str]) -> Any:
    """S10–S12: yaml and code of the BERT tutorial, with our script's functions around them."""
    Path("conf.yaml").write_text(block("001", "name: bert"), encoding="utf-8")
    run = script(name)
    args = run.read_arguments(
        ["--model_name_or_path=model", "--do_eval", "--tune", "--no_cuda", f"--task_name={task}",
         "--per_gpu_eval_batch_size=4", "--output_dir=out", *more]
    )  # fmt: skip
    names = {
        "args": args,
        "evaluate": run.evaluate,
        "load_and_cache_examples": run.load_and_cache_examples,
        "tokenizer": script("task_model").load_tokenizer(args),
        "logger": logging.getLogger("tutorial"),
        "eval_task": eval_task,
        "exit": sys.exit,
        "model": (
            run.load_model(args, run.HEAD, 2) if task == "MRPC" else run.load_model(args, run.HEAD)
        ),
    }
    if stubs:
        names["model"] = run.with_stubs(names["model"])
    with pytest.raises(SystemExit) as ended:
        exec(compile(block("001", "eval_func_for_lpot"), "tutorial 001", "exec"), names)
    assert ended.value.code == 0
    return names


def checkpoint() -> Path:
    (found,) = Path("lpot_workspace").rglob("best_configure.yaml")
    assert (found.parent / "model.safetensors").is_file()
    return found.parent


@pytest.mark.parametrize("stubs", [False, True], ids=["as it is", "stubs by hand"])
def test_bert_block_on_glue(stubs: bool) -> None:
    torch = pytest.importorskip("torch")
    write_bert(Path("model"), "BertForSequenceClassification")
    write_glue(Path("glue"), "MRPC")
    more = ["--data_dir=glue/MRPC", "--max_seq_length=24"]
    names = run_bert_block("run_glue_tune", "MRPC", "mrpc", stubs, more)
    from lpot.utils.pytorch import load

    ids = torch.arange(12).reshape(2, 6)
    tuned = load(str(checkpoint()), names["model"])
    with torch.inference_mode():
        before, after = names["model"](ids)[0], tuned(ids)[0]
    assert not torch.equal(before, after) and torch.allclose(before, after, atol=0.1)


def test_bert_block_on_squad() -> None:
    write_bert(Path("model"), "BertForQuestionAnswering")
    write_squad(Path("squad"))
    more = ["--data_dir=squad", "--max_seq_length=40", "--max_query_length=8", "--doc_stride=8"]
    run_bert_block("run_squad_tune", "SQuAD", "squad", False, more)
    checkpoint()


def test_the_yaml_is_the_one_in_the_examples_folder() -> None:
    printed = block("001", "name: bert")
    assert (PYTORCH / "language_translation" / "conf.yaml").read_text("utf-8") == printed


@pytest.mark.parametrize("stubs", [False, True], ids=["as it is", "stubs by hand"])
def test_blendcnn_block(stubs: bool) -> None:
    """S13: the attribute-style API with the user's own loader class."""
    models = trained(Path())
    module = classify()
    Path("blendcnn.yaml").write_text(block("002", "name: blendcnn"), encoding="utf-8")
    from types import SimpleNamespace

    args = SimpleNamespace(lpot_yaml="blendcnn.yaml", batch_size=4)
    data_iter = module.read_data(Path("MRPC"), models / "vocab.txt", 4, 24)
    loader = module.Bert_DataLoader(data_iter, 4)
    names = {
        "args": args,
        "data_iter": data_iter,
        "Bert_DataLoader": module.Bert_DataLoader,
        "model": module.load_weights(models / "model_final.pt", stubs),
        "eval_func": lambda model: module.accuracy(model, loader),
    }
    exec(compile(block("002", "Bert_DataLoader"), "tutorial 002", "exec"), names)
    assert names["q_model"].save("int8")
    checkpoint()


@pytest.mark.slow
def test_blendcnn_commands() -> None:
    """S14: the three commands as typed, with the paths filled in."""
    trained(Path())
    commands = block("002", "./run_tuning.sh")
    known = {
        "/PATH/TO/models/": "models/",
        "/PATH/TO/MRPC/": "MRPC/",
        "/DIR/TO/INT8_MODEL/": "int8=model/",
        "/PATH/TO/FP32_MODEL": "models",
        "./run_": f"{FOLDER}/run_",
    }
    told = []
    for line in commands.splitlines():
        if not line.strip():
            continue
        for word, ours in known.items():
            line = line.replace(word, ours)
        done = subprocess.run(
            shlex.split(line),
            env={**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        told.append(done.stdout)
    assert len(told) == 3
    assert all("Throughput:" in one for one in told[1:])
    assert Path("int8=model/best_configure.yaml").is_file(), "a value may hold an equals sign"


def commands_of_bert() -> list[list[str]]:
    """Every call of a python script in the BERT tutorial, as words."""
    found = []
    for one in blocks(tutorial("001")):
        text = re.sub(r"\\\s*\n", " ", one)
        found += [
            shlex.split(line)
            for line in text.splitlines()
            if re.match(r"\s*python .*examples/run_\w+\.py", line)
        ]
    return found


def test_the_flags_of_every_bert_command_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of the tutorial parses; `$GLUE_DIR` and `/path/to` stay as they are."""
    commands = commands_of_bert()
    assert len(commands) == 5
    for words in commands:
        at = next(n for n, word in enumerate(words) if word.startswith("examples/run_"))
        name = (
            Path(words[at]).stem.replace("run_squad", "run_squad_tune").replace("tune_tune", "tune")
        )
        flags = [word.replace("$TASK_NAME", "MRPC") for word in words[at + 1 :] if word.strip()]
        args = script(name).read_arguments(flags)
        assert args.do_eval and args.output_dir == "/path/to/checkpoint/dir"
        assert (PYTORCH / "language_translation" / words[at]).is_file()
