"""A transformers decoder, folder or object, as a folder for onnxruntime and its genai."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lpot.backends.onnx.decoder.families import shape_of
from lpot.backends.onnx.decoder.names import Weights
from lpot.backends.onnx.decoder.rotary import LONGEST
from lpot.backends.onnx.decoder.shape import DecoderShape
from lpot.backends.onnx.decoder.write import write_decoder
from lpot.backends.onnx.save import write
from lpot.core.batch import as_array
from lpot.core.errors import UnsupportedModel, WorkspaceError
from lpot.core.files.draft import write_bytes, write_text
from lpot.core.files.publish import drafting
from lpot.data.safetensors_folder import FolderTensors

# What a config raises that names sizes other than those of the tensors.
DAMAGE = (KeyError, IndexError, TypeError, ValueError, ArithmeticError, AttributeError)
MODEL, STAMP = "model.onnx", "source.json"
VERSION = 4  # of the graphs written here: a newer one is written again
MERGE = (
    "merge it into its base model (PEFT's `merge_and_unload()`) and save that with "
    "`save_pretrained(folder)`"
)
# What lies beside a decoder and is of use without its weights.
BESIDE = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)


def is_decoder(source: Any) -> bool:
    """Is it a transformers model: a folder with config.json and weights, or an object that can
    generate?"""
    if isinstance(source, str | Path):
        folder = Path(source)
        return (folder / "config.json").is_file() and not any(folder.glob("*.onnx"))
    known = any(cls.__module__.startswith("transformers.") for cls in type(source).__mro__)
    return known and callable(getattr(source, "generate", None))


def why_no_decoder(source: Any) -> str:
    """What a folder or file lacks to be one, where it was most likely meant as one; else empty."""
    if not isinstance(source, str | Path):
        return ""
    place = Path(source)
    if place.suffix == ".gguf" or (place.is_dir() and any(place.glob("*.gguf"))):
        return (
            "GGUF holds weights that are already quantized; give the folder of the FP32 or BF16 "
            "model (`save_pretrained`), which transformers makes of a GGUF with "
            "`from_pretrained(folder, gguf_file=…)`"
        )
    if not place.exists():
        return (
            "no such file or folder; download a model from a hub first, and save it with "
            "`save_pretrained(folder)`"
        )
    if (place / "adapter_config.json").is_file():
        return f"the folder holds an adapter, not a whole model; {MERGE}"
    weights = any(place.glob("*.safetensors")) or (place / "pytorch_model.bin").is_file()
    if place.is_dir() and weights and not (place / "config.json").is_file():
        return (
            "there is no config.json beside the weights: save both with `save_pretrained(folder)`"
        )
    if place.is_dir() and not any(place.glob("*.onnx")):
        return "the folder holds no model: neither config.json and .safetensors nor an .onnx file"
    return ""


def export_decoder(source: Any, folder: Path) -> Path:
    """`folder/model.onnx` with its data beside it, the tokenizer, and genai's settings."""
    stamp = _stamp(source)
    if stamp and (folder / MODEL).is_file() and _read(folder / STAMP) == stamp:
        return folder / MODEL  # an earlier run has written it
    config, stored = _parts(source)
    shape, tensors = shape_of(config), NotedTensors(stored)
    (folder / STAMP).unlink(missing_ok=True)
    try:
        graph = write_decoder(Weights(shape, tensors))
    except DAMAGE as error:
        raise UnsupportedModel(
            f"{_told(source)}: its config.json and its weights do not match "
            f"({type(error).__name__}: {error})"
        ) from error
    if tensors.unread:
        raise UnsupportedModel(
            f"{_told(source)}: it has the weight {tensors.unread[0]!r}, for which a decoder of "
            f"type {shape.family!r} has no place: is it a classifier or a variant? Export it to "
            "ONNX yourself and give that file"
        )
    try:
        with drafting(folder / MODEL) as draft:
            # Never into a file that is there: another run may have it mapped into its memory.
            write(graph, draft / MODEL, limit=0)
            for piece in sorted(draft.iterdir(), key=lambda piece: piece.name == MODEL):
                piece.replace(folder / piece.name)
        if isinstance(source, str | Path):
            copy_beside(Path(source), folder)
        else:
            write_text(folder / "config.json", json.dumps(config, indent=1, default=str) + "\n")
            _copy_known(config, folder)
        write_text(folder / "genai_config.json", json.dumps(genai_config(shape, config), indent=1))
        write_text(folder / STAMP, stamp)
    except OSError as error:
        raise WorkspaceError(
            f"{folder}: can't write the decoder ({error.strerror or error})"
        ) from error
    return folder / MODEL


def _stamp(source: Any) -> str:
    """What tells a folder's files from others; empty for an object, which is written each time."""
    if not isinstance(source, str | Path):
        return ""
    files = [*sorted(Path(source).glob("*.safetensors")), Path(source) / "config.json"]
    facts = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.is_file()]
    return json.dumps([str(Path(source).resolve()), VERSION, facts])


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""


def copy_beside(source: Path, target: Path) -> None:
    for name in (*BESIDE, "genai_config.json"):
        if (source / name).is_file() and source.resolve() != target.resolve():
            write_bytes(target / name, (source / name).read_bytes())


def _copy_known(config: Mapping[str, Any], folder: Path) -> None:
    """An object remembers the folder that it was loaded from: its tokenizer lies there."""
    origin = str(config.get("_name_or_path") or "")
    if origin and Path(origin).is_dir():
        for name in BESIDE[1:]:
            if (Path(origin) / name).is_file():
                write_bytes(folder / name, (Path(origin) / name).read_bytes())


def _parts(source: Any) -> tuple[dict[str, Any], Mapping[str, np.ndarray]]:
    found = _object_parts(source) if not isinstance(source, str | Path) else folder_parts(source)
    config, tensors = found
    what = _told(source)
    if config.get("quantization_config"):
        raise UnsupportedModel(f"{what}: the model is already quantized; give the FP32 one")
    if adapter := next((name for name in tensors if ".lora_" in name), None):
        raise UnsupportedModel(f"{what}: it has an adapter ({adapter}) beside its weights; {MERGE}")
    return config, tensors


def _told(source: Any) -> str:
    return str(source) if isinstance(source, str | Path) else type(source).__name__


def _object_parts(source: Any) -> tuple[dict[str, Any], Mapping[str, np.ndarray]]:
    return dict(source.config.to_dict()), ObjectTensors(source.state_dict())


def folder_parts(source: str | Path) -> tuple[dict[str, Any], Mapping[str, np.ndarray]]:
    place = Path(source) / "config.json"
    try:
        config = json.loads(place.read_text("utf-8"))
        if not isinstance(config, dict):
            raise ValueError("expected a mapping")
    except (OSError, ValueError, RecursionError) as error:
        raise UnsupportedModel(f"{place}: can't be read ({error})") from error
    return config, FolderTensors(Path(source))


def genai_config(shape: DecoderShape, config: Mapping[str, Any]) -> dict[str, Any]:
    """What onnxruntime-genai asks for beside a model."""
    end = config.get("eos_token_id")
    first_end = end[0] if isinstance(end, list) and end else end
    pad = config.get("pad_token_id")
    positions = min(shape.positions, LONGEST) if shape.rotary else shape.positions
    decoder = {
        "session_options": {"provider_options": []},
        "filename": MODEL,
        "head_size": shape.stored_head,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }
    model = {
        "type": shape.family if shape.family in GENAI_TYPES else "llama",
        "bos_token_id": config.get("bos_token_id") or 0,
        "eos_token_id": end if end is not None else 0,
        "pad_token_id": pad if pad is not None else (first_end or 0),
        "context_length": positions,
        "vocab_size": shape.vocabulary,
        "decoder": decoder,
    }
    search = {
        "do_sample": False,
        "early_stopping": True,
        "max_length": positions,
        "min_length": 0,
        "num_beams": 1,
        "num_return_sequences": 1,
        "past_present_share_buffer": False,
        "repetition_penalty": 1.0,
        "temperature": 1.0,
        "top_k": 1,
        "top_p": 1.0,
    }
    return {"model": model, "search": search}


# Types that genai treats as decoders of one file with keys and values apart, which "gpt2" is not;
# for others any of these will do.
GENAI_TYPES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "phi",
    "phi3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "granite",
    "smollm3",
)


# -- The tensors of a transformers object, and note of what was asked for of any.


_BUFFER = re.compile(r"\binv_freq$|\bmasked_bias$|\b(attn|attention)\.bias$")


class ObjectTensors(Mapping[str, np.ndarray]):
    """The state dict of a module as float32 arrays, made when asked for."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state

    def __getitem__(self, name: str) -> np.ndarray:
        return np.asarray(as_array(self._state[name]), np.float32)

    def __contains__(self, name: object) -> bool:
        return name in self._state

    def __iter__(self) -> Iterator[str]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)


class NotedTensors(Mapping[str, np.ndarray]):
    """The same, with note of what was asked for."""

    def __init__(self, tensors: Mapping[str, np.ndarray]) -> None:
        self._tensors = tensors
        self._asked: set[str] = set()

    def __getitem__(self, name: str) -> np.ndarray:
        found = self._tensors[name]
        self._asked.add(name)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    @property
    def unread(self) -> list[str]:
        """Weights that nobody asked for; buffers that old versions stored are none."""
        return [name for name in self if name not in self._asked and not _BUFFER.search(name)]
