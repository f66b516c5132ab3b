"""A BERT of two small layers that marks the words between alpha and omega, and its questions."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np

EXAMPLES = Path(__file__).parents[2] / "examples"
WIDTH, LAYERS, WIDE, LENGTH = 32, 2, 64, 32
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *(f"word{n}" for n in range(20)), "alpha", "omega", "where"]
WINDOW = ["--max_seq_length", str(LENGTH), "--max_query_length", "4", "--doc_stride", "16"]


def example_module(folder: str, name: str) -> ModuleType:
    """A script of examples/, with its neighbours importable while it is loaded."""
    place = str(EXAMPLES / folder)
    known = sys.modules.get(name)
    if known is not None and Path(known.__file__ or "").parent != Path(place):
        del sys.modules[name]  # another example has a script of this name
    sys.path.insert(0, place)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(place)


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """By the names of the public BERT code: noise, but for the two words that the head looks at."""
    random = np.random.default_rng(seed)

    def noise(*shape: int) -> np.ndarray:
        return (0.05 * random.normal(size=shape)).astype(np.float32)

    found = {
        "bert/embeddings/word_embeddings": 4 * noise(len(VOCABULARY), WIDTH),
        "bert/embeddings/token_type_embeddings": noise(2, WIDTH),
        "bert/embeddings/position_embeddings": noise(64, WIDTH),
        "cls/squad/output_weights": noise(2, WIDTH),
        "cls/squad/output_bias": noise(2),
        "bert/pooler/dense/kernel": noise(WIDTH, WIDTH),  # in every checkpoint, not in this graph
    }
    for at, word in enumerate(("alpha", "omega")):
        found["bert/embeddings/word_embeddings"][VOCABULARY.index(word), at] = 4.0
        found["cls/squad/output_weights"][at, at] = 8.0
    scopes = ["bert/embeddings"]
    for number in range(LAYERS):
        root = f"bert/encoder/layer_{number}"
        shapes = {f"attention/self/{name}": (WIDTH, WIDTH) for name in ("query", "key", "value")}
        shapes |= {"attention/output/dense": (WIDTH, WIDTH), "intermediate/dense": (WIDTH, WIDE)}
        shapes["output/dense"] = (WIDE, WIDTH)
        for name, shape in shapes.items():
            found[f"{root}/{name}/kernel"] = noise(*shape)
            found[f"{root}/{name}/bias"] = noise(shape[1])
        scopes += [f"{root}/attention/output", f"{root}/output"]
    for scope in scopes:
        found[f"{scope}/LayerNorm/beta"] = noise(WIDTH)
        found[f"{scope}/LayerNorm/gamma"] = 1 + noise(WIDTH)
    return found


def write_model(folder: Path) -> Path:
    """A folder as `prepare_model.sh` leaves it."""
    checkpoint = example_module("tensorflow/nlp/bert", "bert_checkpoint")
    checkpoint.write(folder / "model.ckpt", weights())
    config = {
        "vocab_size": len(VOCABULARY),
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "intermediate_size": WIDE,
        "hidden_act": "gelu",
        "max_position_embeddings": 64,
        "type_vocab_size": 2,
        "hidden_dropout_prob": 0.1,
    }
    (folder / "bert_config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return folder


def write_questions(path: Path, count: int = 12) -> Path:
    """A SQuAD file; the answer is what stands from alpha to omega."""
    random = np.random.default_rng(5)
    paragraphs = []
    for number in range(count):
        words = [f"word{n}" for n in random.integers(0, 20, 12)]
        at = int(random.integers(0, 8))
        answer = f"alpha {words[at]} omega"
        words[at] = answer
        question = {"id": f"q{number}", "question": "where word1", "answers": [{"text": answer}]}
        paragraphs.append({"context": " ".join(words), "qas": [question]})
    content = {"version": "1.1", "data": [{"title": "words", "paragraphs": paragraphs}]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path
