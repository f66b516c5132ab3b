"""Decoders in the hands of other tools, each as something that reads tokens behind a cache.

`peers(fp32, folder, source)` yields a name and a maker for each tool that is installed. Makers are
called one after the other, so that one model is held beside FP32 at a time.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import QuantType, matmul_nbits_quantizer, quantize_dynamic

from lpot.backends.onnx.decoder.in_place import Cache, InPlace


class Decoder(Protocol):
    size: int  # bytes of its file, or of its tensors where it has none

    def logits(self, ids: np.ndarray) -> np.ndarray: ...

    def run(self, ids: np.ndarray, past: int) -> Callable[[], Any]:
        """A call that reads the tokens behind so many positions in the cache."""


def opened(path: Path, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feeds(caches: dict[str, tuple[int, int]], ids: np.ndarray, past: int) -> dict[str, np.ndarray]:
    """Of each cache, heads and size of a head are given."""
    rows, count = ids.shape
    found = {"input_ids": ids, "attention_mask": np.ones((rows, past + count), np.int64)}
    for name, (heads, size) in caches.items():
        found[name] = np.zeros((rows, heads, past, size), np.float32)
    return found


def file_size(path: Path) -> int:
    return sum(
        item.stat().st_size for item in path.parent.glob(f"{path.name}*") if item.suffix != ".json"
    )


class OnnxRuntime:
    def __init__(self, path: Path, threads: int) -> None:
        self.session = opened(path, threads)
        self.size = file_size(path)
        self.caches = {
            value.name: (value.shape[1], value.shape[3])
            for value in self.session.get_inputs()
            if value.name.startswith("past")
        }
        self.places = tuple(
            Cache(name, name.replace("past_key_values", "present"), *sizes)
            for name, sizes in self.caches.items()
        )

    def logits(self, ids: np.ndarray) -> np.ndarray:
        (found,) = self.session.run(["logits"], feeds(self.caches, ids, 0))
        return np.asarray(found)

    def run(self, ids: np.ndarray, past: int) -> Callable[[], Any]:
        """With the cache in place, as generators run it."""
        rows, tokens = ids.shape
        cache = InPlace(self.session, self.places, rows, past + tokens)
        cache.bind(feeds({}, ids, past), ids.shape, past)
        return cache.run

    def run_in_pieces(self, ids: np.ndarray, piece: int) -> Callable[[], Any]:
        """A prompt, each piece behind those before it."""
        cache = InPlace(self.session, self.places, *ids.shape)

        def run() -> None:
            for at in range(0, ids.shape[1], piece):
                part = ids[:, at : at + piece]
                cache.bind(feeds({}, part, at), part.shape, at)
                cache.run()

        return run


class OpenVino:
    """NNCF's weight compression of the same ONNX file, run by OpenVINO."""

    def __init__(self, path: Path, threads: int, mode: str, folder: Path) -> None:
        import nncf
        import openvino as ov

        settings = {} if mode.startswith("INT8") else {"group_size": 64, "ratio": 1.0}
        # Of OpenVINO's own form of this graph NNCF says that it has types it does not know.
        model = nncf.compress_weights(
            onnx.load(path), mode=getattr(nncf.CompressWeightsMode, mode), **settings
        )
        stored = folder / f"{mode}.onnx"
        onnx.save(model, str(stored))
        self.size = file_size(stored)
        self.model = ov.Core().compile_model(
            stored, "CPU", {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        )
        self.caches = {
            value.any_name: (
                value.partial_shape[1].get_length(),
                value.partial_shape[3].get_length(),
            )
            for value in self.model.inputs
            if value.any_name.startswith("past")
        }

    def logits(self, ids: np.ndarray) -> np.ndarray:
        request = self.model.create_infer_request()
        return np.asarray(request.infer(feeds(self.caches, ids, 0))["logits"])

    def run(self, ids: np.ndarray, past: int) -> Callable[[], Any]:
        given = feeds(self.caches, ids, past)
        request = self.model.create_infer_request()  # its outputs can't change their shape
        return lambda: request.infer(given, share_inputs=True, share_outputs=True)


class TorchAo:
    """The transformers module with torchao's linears, not compiled."""

    def __init__(self, source: Path, threads: int, word: str) -> None:
        import torch
        from torchao import quantization
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(threads)
        self.torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
        # Its int4 kernels need CUDA or XPU; on CPUs 4 bits are stored as whole bytes.
        settings: dict[str, Any] = {}
        if word.startswith("Intx"):
            groups = quantization.granularity.PerGroup(64)
            settings = {"weight_dtype": torch.int4, "granularity": groups}
        quantization.quantize_(self.model, getattr(quantization, word)(**settings))
        self.size = sum(map(_stored_bytes, self.model.state_dict().values()))

    def logits(self, ids: np.ndarray) -> np.ndarray:
        with self.torch.inference_mode():
            found: np.ndarray = self.model(self.torch.from_numpy(ids)).logits.numpy()
        return found

    def run(self, ids: np.ndarray, past: int) -> Callable[[], Any]:
        import copy

        given = self.torch.from_numpy(ids)
        cache = None
        if past:
            with self.torch.inference_mode():
                earlier = self.torch.ones((len(ids), past), dtype=self.torch.int64)
                cache = self.model(earlier, use_cache=True).past_key_values

        def once() -> Any:  # the cache grows when it is used: each call gets one of its own
            with self.torch.inference_mode():
                return self.model(given, past_key_values=copy.deepcopy(cache), use_cache=True)

        return once


def _stored_bytes(tensor: Any) -> int:
    names = getattr(tensor, "tensor_data_names", None) or getattr(
        type(tensor), "tensor_data_names", None
    )
    if not names and hasattr(tensor, "__tensor_flatten__"):
        names = tensor.__tensor_flatten__()[0]
    if not names:
        return int(tensor.numel() * tensor.element_size())
    return sum(_stored_bytes(getattr(tensor, name)) for name in names)


def nbits(source: Path, folder: Path, level: int | None) -> Path:
    """ONNX Runtime's default: 4 bits, blocks of 128, symmetric, the level left out."""
    quantizer = matmul_nbits_quantizer.MatMulNBitsQuantizer(
        onnx.load(source), block_size=128, is_symmetric=True, accuracy_level=level
    )
    quantizer.process()
    path = folder / f"nbits{level}.onnx"
    quantizer.model.save_model_to_file(str(path), use_external_data_format=False)
    return path


def dynamic(source: Path, folder: Path) -> Path:
    path = folder / "dynamic.onnx"
    # Shapes behind the runtime's own attention are not known to it; without the hint it gives up.
    options = {"DefaultTensorType": onnx.TensorProto.FLOAT}
    quantize_dynamic(
        str(source), str(path), per_channel=True, weight_type=QuantType.QInt8, extra_options=options
    )
    return path


def peers(
    fp32: Path, folder: Path, source: Path | None, threads: int
) -> Iterator[tuple[str, Callable[[], Decoder]]]:
    """`source` is the transformers folder that fp32 was made from."""
    yield "ORT MatMulNBitsQuantizer", lambda: OnnxRuntime(nbits(fp32, folder, None), threads)
    yield "… with accuracy_level=4", lambda: OnnxRuntime(nbits(fp32, folder, 4), threads)
    yield "ORT quantize_dynamic", lambda: OnnxRuntime(dynamic(fp32, folder), threads)
    if _is_installed("nncf", "openvino"):
        for mode in ("INT4_SYM", "INT8_ASYM"):
            yield (
                f"OpenVINO, NNCF {mode}",
                lambda mode=mode: OpenVino(fp32, threads, mode, folder),  # type: ignore[misc]
            )
    if source is not None and _is_installed("torchao", "transformers"):
        for word in (
            "Int8WeightOnlyConfig",
            "IntxWeightOnlyConfig",
            "Int8DynamicActivationInt8WeightConfig",
        ):
            yield (
                f"torchao {word}",
                lambda word=word: TorchAo(source, threads, word),  # type: ignore[misc]
            )


def _is_installed(*packages: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in packages)
