"""A tuned decoder in GPTQ's files, which transformers and vLLM read: safetensors and a config.

Products of 2, 4 or 8 bits are written as qweight, qzeros, scales and g_idx; `dynamic` names those
with other bits than most, and those that stay in float: the INT8 of products that round their
inputs while running has no place in these files. The head stays in float, too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto

from lpot.backends.onnx.decoder.export import copy_beside, folder_parts
from lpot.backends.onnx.decoder.families import shape_of
from lpot.backends.onnx.decoder.names import Weights
from lpot.backends.onnx.decoder.shape import DecoderShape
from lpot.backends.onnx.graph import Graph, attribute
from lpot.backends.onnx.load import load_graph
from lpot.core.errors import UnsupportedModel, WorkspaceError
from lpot.core.files.card import write_text
from lpot.core.files.publish import drafting
from lpot.core.weight_only.grid import PER_CHANNEL, Format, Rounded
from lpot.core.weight_only.pack import pack_gptq, unpack_matmul_nbits
from lpot.data.gptq_folder import FILE, LESS, PARTS, GptqFolder

PACKED = ("gpt2", "phi3", "gpt_neox")  # families that keep q, k, v in one weight


@dataclass(frozen=True, eq=False)
class Product:
    """One product of the ONNX model, under the name that transformers gives its module."""

    module: str
    rounded: Rounded


def write_gptq(model: Path, source: Path, out: Path) -> Path:
    """The files of GPTQ in `out`, from the tuned model.onnx and the folder it was made from."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    config, stored = folder_parts(source)
    weights = Weights(shape_of(config), stored)
    if weights.shape.family in PACKED:
        raise UnsupportedModel(
            f"decoders of type {weights.shape.family!r} keep several products in one weight, "
            "which the GPTQ format does not support: use the ONNX model"
        )
    if weights.shape.head_dim != weights.shape.stored_head:
        raise UnsupportedModel(
            f"heads of {weights.shape.head_dim} are filled up in the ONNX model, which the GPTQ "
            "format has no place for: use the ONNX model"
        )
    graph, _ = load_graph(model)
    products = list(_products(graph, weights))
    if not products:
        raise UnsupportedModel(
            f"{model}: none of its products is quantized to few bits "
            "(of a decoder with two formats, give the best_model.onnx beside it)"
        )
    kind = checkpoint_format(products)
    done = {f"{product.module}.weight" for product in products}
    tensors = {name: weights.tensors[name] for name in weights.tensors if name not in done}
    for product in products:
        packed = pack_gptq(product.rounded, LESS[kind])
        tensors |= {f"{product.module}.{part}": np.asarray(packed[part]) for part in PARTS}
    out.mkdir(parents=True, exist_ok=True)
    whole = {k: np.ascontiguousarray(v) for k, v in tensors.items()}
    try:
        with drafting(out / FILE) as draft:
            save_file(whole, draft / FILE, {"format": "pt"})
            (draft / FILE).replace(out / FILE)
    except (OSError, SafetensorError) as error:  # a full disk
        raise WorkspaceError(f"{out / FILE}: can't be written ({error})") from error
    copy_beside(source, out)
    config["quantization_config"] = quantization_config(products, _floats(weights, products))
    write_text(out / "config.json", json.dumps(config, indent=1) + "\n")
    return out


def checkpoint_format(products: list[Product]) -> str:
    """Zero points less one, as most readers know them; as they are where one is the code 0, for
    readers do not agree on what 0 less one is."""
    zeros = [p.rounded.zeros for p in products if p.rounded.zeros is not None]
    return "gptq" if all(each.all() for each in zeros) else "gptq_v2"


def quantization_config(products: list[Product], floats: Sequence[str]) -> dict[str, Any]:
    """Bits and groups of most modules; `dynamic` has those of the others, and what is in float."""
    kinds = {p.module: (p.rounded.format.bits, p.rounded.format.group_size or -1) for p in products}
    (bits, size), _ = Counter(kinds.values()).most_common(1)[0]
    others: dict[str, dict[str, int]] = {
        f"+:^{re.escape(module)}$": {"bits": kind[0], "group_size": kind[1]}
        for module, kind in kinds.items()
        if kind != (bits, size)
    }
    others |= {f"-:^{re.escape(module)}$": {} for module in floats}
    return {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": size,
        "desc_act": False,
        "sym": all(product.rounded.format.symmetric for product in products),
        "lm_head": False,
        "checkpoint_format": checkpoint_format(products),
        "dynamic": others,
    }


def _floats(weights: Weights, products: list[Product]) -> list[str]:
    """The products of all layers that are in no product of few bits."""
    shape = weights.shape
    words = ["q", "k", "v", "o", *(["gate"] if shape.gated else []), "up", "down"]
    every = [weights.module(word, at) for at in range(shape.layers) for word in words]
    few = {product.module for product in products}
    return [module for module in every if module not in few]


def read_gptq(folder: Path) -> dict[str, np.ndarray]:
    """The weights that GPTQ's files stand for, by the names of the FP32 model."""
    stored = GptqFolder(folder)
    rounded = {f"{name}.weight": stored.rounded(name).values() for name in stored.modules}
    return {**dict(stored.floats()), **rounded}


def _products(graph: Graph, weights: Weights) -> Iterator[Product]:
    """Every MatMulNBits of a layer; the head stays as it is in these files, and so does what AWQ
    scales the inputs of."""
    scaled = {node.output[0] for node in graph.nodes if node.name.endswith("/scaled_input:Mul")}
    for node in graph.nodes:
        if node.input and node.input[0] in scaled:
            continue
        if node.op_type == "MatMulNBits" and node.name.startswith("layers."):
            layer, _, word = node.name.split("/")  # such as layers.3/attn/o_proj
            parts = _parts(word.removesuffix("_proj"), _rounded(graph, node), weights.shape)
            for part, rounded in parts.items():
                yield Product(weights.module(part, int(layer.partition(".")[2])), rounded)


def _parts(word: str, rounded: Rounded, shape: DecoderShape) -> dict[str, Rounded]:
    """Queries, keys and values are one product in the graph and three in these files."""
    if word != "qkv":
        return {word: rounded}
    q, k, _ = shape.qkv_rows
    places = {"q": slice(0, q), "k": slice(q, q + k), "v": slice(q + k, None)}
    return {part: _cut(rounded, rows) for part, rows in places.items()}


def _cut(rounded: Rounded, rows: slice) -> Rounded:
    zeros = None if rounded.zeros is None else rounded.zeros[rows]
    return Rounded(rounded.format, rounded.codes[rows], rounded.scales[rows], zeros)


def _rounded(graph: Graph, node: NodeProto) -> Rounded:
    numbers = {word: int(attribute(node, word, 0)) for word in ("bits", "block_size", "K", "N")}
    arrays = [graph.weights[name] if name else None for name in node.input[1:4]]
    zeros = arrays[2] if len(arrays) > 2 else None
    whole = numbers["block_size"] > numbers["K"]
    fmt = Format(numbers["bits"], PER_CHANNEL if whole else numbers["block_size"], zeros is None)
    assert arrays[0] is not None and arrays[1] is not None
    scales = np.asarray(arrays[1], np.float32).reshape(numbers["N"], -1)
    rows = None if zeros is None else np.asarray(zeros, np.uint8).reshape(numbers["N"], -1)
    return unpack_matmul_nbits(np.asarray(arrays[0]), scales, rows, fmt, numbers["K"])
