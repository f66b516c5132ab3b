"""examples/tensorflow/nlp/bert on a small BERT, and on a real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from examples.tiny_bert import (
    EXAMPLES,
    LENGTH,
    WIDTH,
    WINDOW,
    example_module,
    write_model,
    write_questions,
)

HERE = EXAMPLES / "tensorflow" / "nlp" / "bert"
DATA = Path(os.environ.get("LPOT_DATA", Path(__file__).parents[3] / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="LPOT_DATA has no models and data")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model/ and data/ as the prepare scripts leave them."""
    folder = tmp_path_factory.mktemp("bert")
    write_model(folder / "model")
    write_questions(folder / "data" / "dev-v1.1.json")
    return folder


def words(place: Path, *more: str) -> list[str]:
    model, data = str(place / "model"), str(place / "data")
    return ["--input_model", model, "--dataset_location", data, *WINDOW, *more]


def tuned(place: Path, monkeypatch: pytest.MonkeyPatch, config: Path) -> dict[str, str]:
    """Names and kinds of the tuned graph's nodes."""
    main = example_module("tensorflow/nlp/bert", "tune_squad").main
    monkeypatch.chdir(place)
    monkeypatch.setattr("lpot.jobs.finish.result.with_speed", lambda job, result: result)
    main(words(place, "--config", str(config), "--output_model", "out.pb"))
    from lpot.adaptor.tf_utils.util import get_graph_def

    names = ["IteratorGetNext:3", "unstack:0", "unstack:1"]
    return {node.name: node.op for node in get_graph_def("out.pb", names).node}


def test_the_head_alone_stays_in_fp32(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = tuned(place, monkeypatch, HERE / "bert.yaml")
    assert kinds["MatMul"] == "MatMul"
    assert list(kinds.values()).count("_QuantizedMatMul") == 8  # query, key and value are one
    assert kinds["MakeIterator"] == "MakeIterator"
    told = capsys.readouterr()
    assert "accuracy is F1: 100.0" in told.out
    assert "op_wise.MatMul: matched 1 op(s) by name" in told.out + told.err
    main = example_module("tensorflow/nlp/bert", "tune_squad").main
    vocabulary = str(place / "model" / "vocab.txt")
    common = ["--input_model", "out.pb", "--vocab_file", vocabulary, *WINDOW]
    main([*common, "--dataset_location", str(place / "data"), "--mode", "accuracy"])
    assert "accuracy is F1: 100.0" in capsys.readouterr().out
    main([*common, "--dataset_location", str(place / "data"), "--mode=benchmark", "--iters=2"])
    assert "Latency is" in capsys.readouterr().out


def test_without_the_rule_the_head_is_int8_too(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, _, rest = (HERE / "bert.yaml").read_text().partition("  op_wise:")
    plain = tmp_path / "plain.yaml"
    plain.write_text(before + "tuning:" + rest.partition("tuning:")[2])
    assert list(tuned(place, monkeypatch, plain).values()).count("_QuantizedMatMul") == 9


def test_the_graph_is_that_of_the_public_code(place: Path) -> None:
    graphs = example_module("tensorflow/nlp/bert", "bert_graph")
    config = graphs.BertConfig.from_file(place / "model" / "bert_config.json")
    graph = graphs.question_graph(config, LENGTH)
    kinds = {op.name: op.type for op in graph.get_operations()}
    assert kinds["MatMul"] == "MatMul" and kinds["BiasAdd"] == "BiasAdd"
    assert kinds["unstack"] == "Unpack" and kinds["MakeIterator"] == "MakeIterator"
    assert kinds["bert/encoder/layer_1/attention/self/query/MatMul"] == "MatMul"
    assert graph.get_tensor_by_name("IteratorGetNext:3").shape.rank == 1
    assert graph.get_tensor_by_name("unstack:1").shape.as_list() == [None, LENGTH]


def test_a_checkpoint_with_its_graph_is_a_model_for_lpot(place: Path, tmp_path: Path) -> None:
    graphs = example_module("tensorflow/nlp/bert", "bert_graph")
    checkpoints = example_module("tensorflow/nlp/bert", "bert_checkpoint")
    from lpot.adaptor.tf_utils.util import get_graph_def, is_ckpt_format

    config = graphs.BertConfig.from_file(place / "model" / "bert_config.json")
    graph = graphs.question_graph(config, LENGTH)
    prefix = checkpoints.checkpoint_prefix(place / "model")
    with checkpoints.restored(graph, prefix) as session:
        checkpoints.save(session, tmp_path / "with_graph")
    assert is_ckpt_format(tmp_path / "with_graph")
    frozen = get_graph_def(str(tmp_path / "with_graph"), ["unstack:0", "unstack:1"])
    assert not {"VariableV2", "VarHandleOp"} & {node.op for node in frozen.node}


def test_wrong_models_are_named(place: Path, tmp_path: Path) -> None:
    checkpoints = example_module("tensorflow/nlp/bert", "bert_checkpoint")
    main = example_module("tensorflow/nlp/bert", "tune_squad").main
    arrays = {"bert/embeddings/word_embeddings": np.zeros((4, WIDTH), np.float32)}
    checkpoints.write(tmp_path / "other.ckpt", arrays)
    files = {f"--{n}": str(place / "model" / f) for n, f in FILES.items()}
    named = [word for pair in files.items() for word in pair]
    data = ["--dataset_location", str(place / "data"), *named, *WINDOW]
    with pytest.raises(SystemExit, match="lacks"):
        main(["--input_model", str(tmp_path / "other.ckpt"), *data])
    with pytest.raises(SystemExit, match="no such checkpoint"):
        main(["--input_model", str(tmp_path / "gone.ckpt"), *data])
    with pytest.raises(SystemExit, match=r"dev-v1\.1\.json: not found"):
        main(["--input_model", str(tmp_path), "--dataset_location", str(tmp_path)])


FILES = {"vocab_file": "vocab.txt", "bert_config_file": "bert_config.json"}


def test_the_shell_scripts(place: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable}

    def bash(script: str, *flags: str) -> Any:
        command = ["bash", str(HERE / script), *flags]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True
        )

    source = place / "data"
    done = bash("prepare_dataset.sh", "--output_dir=./data", f"--source={source}")
    assert done.returncode == 0, done.stderr
    data = tmp_path / "data" / "wwm_uncased_L-24_H-1024_A-16"
    assert json.loads((data / "dev-v1.1.json").read_text())["data"]
    done = bash("prepare_model.sh", "--output_dir=./model", f"--source={place / 'model'}")
    assert done.returncode == 0 and (tmp_path / "model" / "model.ckpt.index").is_file()
    assert bash("prepare_model.sh", f"--source={tmp_path / 'data'}").returncode == 1
    assert bash("run_tuning.sh", "dataset").returncode == 2


@pytest.mark.slow
def test_the_whole_way_by_shell(place: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable}
    data, model = f"--dataset_location={place / 'data'}", f"--input_model={place / 'model'}"
    flags = ["--max_seq_length=32", "--max_query_length=4", "--doc_stride=16", data]
    for script, more in (
        ("run_tuning.sh", [model, "--output_model=out.pb"]),
        (
            "run_benchmark.sh",
            [
                "--input_model=out.pb",
                "--mode=accuracy",
                f"--vocab_file={place / 'model' / 'vocab.txt'}",
            ],
        ),
    ):
        command = ["bash", str(HERE / script), *flags, *more]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-2000:]
    assert "accuracy is F1: 100.0" in done.stdout


@needs_data
@pytest.mark.slow
def test_a_real_bert_gives_what_pytorch_gives(tmp_path: Path) -> None:
    """Logits of the graph filled from PyTorch's weights, on windows of real questions."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import load_file

    checkpoints = example_module("tensorflow/nlp/bert", "bert_checkpoint")
    tune = example_module("tensorflow/nlp/bert", "tune_squad")
    checkpoints.convert(DATA / "minilm_l6_squad", tmp_path / "model")
    articles = json.loads((DATA / "squad" / "dev-slice-v1.1.json").read_text())
    articles["data"] = articles["data"][:1]
    articles["data"][0]["paragraphs"] = articles["data"][0]["paragraphs"][:1]
    (tmp_path / "dev-v1.1.json").write_text(json.dumps(articles))
    place = ["--input_model", str(tmp_path / "model"), "--dataset_location", str(tmp_path)]
    flags = tune.parse_flags([*place, "--max_seq_length", "192"])
    data = tune.SQuAD(flags.label_file, flags.vocab_file, 192)
    writer = tune.FeatureWriter(str(tmp_path / "eval.tf_record"))
    writer.write(data.features)
    graph = tune.load_graph(flags)
    with tune.v1.Session(graph=graph) as session:
        fed = {"input_file:0": writer.filename, "batch_size:0": 100}
        session.run("MakeIterator", fed)
        starts, ends = session.run(["unstack:0", "unstack:1"])
    config = transformers.BertConfig.from_pretrained(DATA / "minilm_l6_squad")
    net = transformers.BertForQuestionAnswering(config).eval()
    state = load_file(DATA / "minilm_l6_squad" / "model.safetensors")
    base = load_file(DATA / "minilm_l6_bert" / "model.safetensors")
    state |= {f"bert.{k}": v for k, v in base.items() if k.startswith("embeddings.")}
    net.load_state_dict({k: v.float() for k, v in state.items()}, strict=False)
    columns = ("input_ids", "input_mask", "segment_ids")
    ids, mask, types = (torch.tensor([getattr(f, c) for f in data.features]) for c in columns)
    with torch.no_grad():
        found = net(input_ids=ids, attention_mask=mask, token_type_ids=types)
    np.testing.assert_allclose(starts, found.start_logits.numpy(), atol=2e-3)
    np.testing.assert_allclose(ends, found.end_logits.numpy(), atol=2e-3)


@needs_data
@pytest.mark.slow
def test_a_real_bert_is_repaired_without_labels(tmp_path: Path) -> None:
    """Outlier channels set apart and smoothed: a fraction of the error, with every op in INT8."""
    from lpot.backends.tensorflow import TensorflowBackend
    from lpot.core.backend import ModelSpec
    from lpot.core.ptq.distance import distance
    from lpot.core.space import restrict

    checkpoints = example_module("tensorflow/nlp/bert", "bert_checkpoint")
    tune = example_module("tensorflow/nlp/bert", "tune_squad")
    checkpoints.convert(DATA / "minilm_l6_squad", tmp_path / "model")
    place = ["--input_model", str(tmp_path / "model"), "--dataset_location", str(DATA / "squad")]
    label = ["--label_file", str(DATA / "squad" / "dev-slice-v1.1.json")]
    flags = tune.parse_flags([*place, *label, "--max_seq_length", "128"])
    data = tune.SQuAD(flags.label_file, flags.vocab_file, 128)
    writer = tune.FeatureWriter(str(tmp_path / "eval.tf_record"))
    writer.write(data.features[:16])
    backend = TensorflowBackend()
    outputs = ("IteratorGetNext:3", "unstack:0", "unstack:1")
    spec = ModelSpec(inputs=("input_file", "batch_size"), outputs=outputs)
    model = backend.load(tune.load_graph(flags), spec)
    fed = (writer.filename, 8)
    seen = backend.observe(model, [fed], (16,))[16]
    usual = restrict(backend.inspect(model), ()).default()
    truth = backend.run(model, fed)

    def error(recipe: Any) -> float:
        built = backend.build(model, recipe, seen)
        assert set(built.precisions.values()) == {"int8"}
        return distance(truth, backend.run(built, fed))

    assert min(map(error, backend.advise(model, usual, seen))) < 0.5 * error(usual)
