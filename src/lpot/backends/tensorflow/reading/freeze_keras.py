"""Keras models, as objects and as files, traced to one frozen graph."""

from __future__ import annotations

import logging
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from lpot.backends.tensorflow.reading.freeze import Frozen, concrete
from lpot.backends.tensorflow.reading.freeze_function import TRACING, cause, safe, traced
from lpot.backends.tensorflow.run import first_line
from lpot.backends.tensorflow.runtime import tf
from lpot.backends.tensorflow.structure.nodes import node_name
from lpot.core.backend import ModelSpec
from lpot.core.errors import UnsupportedModel
from lpot.core.files.untrusted import check_archive

logger = logging.getLogger(__name__)

# What Keras raises for files that are damaged, or ask for more than there is.
KERAS_DAMAGE = (
    ValueError,
    TypeError,
    OSError,
    LookupError,
    AttributeError,
    RuntimeError,
    NotImplementedError,
    AssertionError,
    MemoryError,
    RecursionError,
    EOFError,
    ImportError,
    OverflowError,
    zipfile.BadZipFile,
    zlib.error,
    tf.errors.OpError,
)


def read_keras(path: Path) -> Any:
    """A .keras or .h5 file. Python code inside (Lambda layers) is refused, not run."""
    import keras

    try:
        check_archive(path)
        check_hdf5(path)
        return keras.saving.load_model(path, compile=False, safe_mode=True)
    except KERAS_DAMAGE as error:
        text = str(error)
        if "safe_mode" in text or "Lambda" in text or "unsafe" in text.lower():
            raise UnsupportedModel(
                f"{path}: the file holds Python code (a Lambda layer), which is not run from a "
                "file. If you trust it, load it yourself with keras.saving.load_model(..., "
                "safe_mode=False) and give the model object"
            ) from error
        raise UnsupportedModel(
            f"{path}: not a readable Keras model ({first_line(error)}){_hint(path, text)}"
        ) from error


def _hint(path: Path, text: str) -> str:
    version = _keras_of(path)
    if version.startswith(("1.", "2.")):
        return (
            f". It was saved by Keras {version}, and this is Keras 3: load it with tf_keras (pip "
            "install tf_keras; tf_keras.models.load_model(...)) and give the model object, or the "
            "folder that its save(..., save_format='tf') writes"
        )
    if "No model config" in text:
        return ". It holds weights only: load them into the model and give that"
    if "could not be deserialized" in text or "Could not locate class" in text:
        return (
            ". If it has custom layers, register them "
            "(keras.saving.register_keras_serializable) or give the loaded model itself"
        )
    return ""


def _keras_of(path: Path) -> str:
    """The version of Keras that wrote a file, where an .h5 file says so."""
    if path.suffix.lower() == ".keras" or zipfile.is_zipfile(path):
        return ""
    import h5py

    with suppress(OSError), h5py.File(path, "r") as file:
        return str(file.attrs.get("keras_version", ""))
    return ""


def keras_models(model: Any, spec: ModelSpec) -> Iterator[Frozen]:
    """The model frozen for what it says that it takes; then for the first batch, if there is one.

    Of layers that unroll their loops, sizes left free make another net.
    """

    def call(*inputs: Any, **named: Any) -> Any:
        if _takes_training(model):
            named["training"] = False
        return model(*inputs, **named)

    yield _named(model, concrete(_traced(model, call, spec), "keras", call))
    for any_batch in (True, False) if spec.sample is not None else ():
        function = traced(call, model.call, spec, _what(model), (any_batch,))
        yield _named(model, concrete(function, "keras", call))


def _what(model: Any) -> str:
    return f"the Keras model {model.name!r}"


def _named(model: Any, frozen: Frozen) -> Frozen:
    keys = list(getattr(model, "output_names", ()))
    if len(keys) != len(frozen.outputs) or len(set(keys)) != len(keys):
        return frozen
    signature = {
        "inputs": {node_name(name): name for name in frozen.inputs},
        "outputs": dict(zip(keys, frozen.outputs, strict=True)),
    }
    return replace(frozen, signature=signature)


def _traced(model: Any, call: Callable[..., Any], spec: ModelSpec) -> Any:
    """The model as a function of any batch size, where it does not insist on one."""
    asked, what = _signature(model), _what(model)
    if asked is None or (not getattr(model, "inputs", None) and spec.sample is not None):
        if spec.sample is None:
            raise UnsupportedModel(
                f"{what} was never called, so its inputs are unknown: call it once on a batch, "
                "build it with keras.Input, or give calibration data"
            )
        try:
            return traced(call, model.call, spec, what)
        except UnsupportedModel:
            if asked is None:
                raise
            # The batch is laid out in another way than what the model was once called with.
    if isinstance(model, tf.keras.Sequential) or not getattr(model, "inputs", None):
        # The sizes are those of the batch it was first called on, not a wish of its maker.
        free = tf.nest.map_structure(_any_batch, asked)
        try:
            return tf.function(call).get_concrete_function(free)
        except TRACING as error:
            logger.info("%s is traced for one batch size: %s", model.name, cause(error))
    try:
        return tf.function(call).get_concrete_function(asked)
    except TRACING as error:
        if spec.sample is not None:  # sizes left free may be what it can't be traced with
            return traced(call, model.call, spec, what)
        raise UnsupportedModel(
            f"{what} can't be traced with inputs {asked}: {cause(error)}. Give calibration data, "
            "or tf.function(model).get_concrete_function(tf.TensorSpec(…))"
        ) from error


def _takes_training(model: Any) -> bool:
    return bool(getattr(model, "_call_has_training_arg", True))


def _signature(model: Any) -> Any:
    """What the model is called with: one spec, or a list or dict of them; None if unknown."""
    if getattr(model, "inputs", None):
        nest = model.inputs[0] if isinstance(model, tf.keras.Sequential) else model.input
        if isinstance(nest, list | tuple) and len(nest) == 1:
            nest = nest[0]
        return tf.nest.map_structure(
            lambda one: tf.TensorSpec(one.shape, one.dtype, safe(one.name)), nest
        )
    # A subclassed model knows no more than the shapes it was built with.
    known = (model.get_build_config() or {}).get("input_shape")
    return _specs_of(known) if known else None


def _specs_of(shape: Any, name: str = "inputs") -> Any:
    if isinstance(shape, Mapping):
        return {key: _specs_of(value, str(key)) for key, value in shape.items()}
    if all(size is None or isinstance(size, int) for size in shape):
        return tf.TensorSpec(shape, tf.float32, safe(name))
    return [_specs_of(value, f"{name}_{index}") for index, value in enumerate(shape)]


def _any_batch(spec: tf.TensorSpec) -> tf.TensorSpec:
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype, spec.name)


# -- HDF5 files, which are read in another process before they are read in this one.


PROBE = Path(__file__).with_name("hdf5_probe.py")
SECONDS = 10  # of the CPU, for a small file
BYTES = 10e6  # more that are read in a second
BUSY = 60  # times as long, on a machine that has a lot to do


def check_hdf5(path: Path) -> None:
    """Refuse a file that the HDF5 library does not come to an end with, or that leads out of it."""
    seconds = int(SECONDS + path.stat().st_size / BYTES)
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(PROBE), str(path), str(seconds)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=BUSY * seconds,
            stdin=subprocess.DEVNULL,
        )
        code = done.returncode
    except subprocess.TimeoutExpired:
        code = -1
    if code == 1:
        told = done.stderr.strip().splitlines()[-1]  # ours, or that of a traceback
        raise UnsupportedModel(f"{path}: not a readable Keras model ({told})")
    if code:
        raise UnsupportedModel(
            f"{path}: damaged, the HDF5 library crashes or hangs on it: restore the file"
        )
