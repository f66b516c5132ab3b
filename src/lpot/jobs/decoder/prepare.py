"""What a request for `approach: weight_only` becomes before it is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from lpot.backends import detect, export_decoder, get_backend, is_decoder, why_no_decoder
from lpot.config.schema import Config
from lpot.core.batch import Inputs, as_array, split
from lpot.core.errors import ConfigError, DataError, UnsupportedModel
from lpot.core.files.workspace import default_folder
from lpot.core.loader import length_of
from lpot.core.model import Model
from lpot.core.progress import Listener
from lpot.jobs.decoder.inputs import IDS, MASK, PLACES, fixed_rows
from lpot.jobs.decoder.tokens import TokenWindows, positions_in, windows_of
from lpot.jobs.settings import change_config, with_name
from lpot.jobs.tune.evaluation import plain
from lpot.jobs.tune.request import Request

FP32_FOLDER, OUT_FOLDER, MODEL = "fp32", "decoder", "model.onnx"
USUAL = ("auto", "basic")  # strategies that nobody asked for by name
SAMPLES = 64  # windows that rounding is fitted to, unless more are asked for
LENGTH = "quantization.weight_only.prompt_length"
METRIC, LAST_WORD = "perplexity", "last_word"


def prepared(request: Request) -> Request:
    """The request with the decoder written as ONNX and text cut into windows.

    With text alone the bar is the perplexity on windows that had no part in the calibration.
    """
    config = with_name(request.config, request.model)
    model, folder = request.model, folder_of(request.model)
    lacking = "" if is_decoder(model) else why_no_decoder(model)
    if lacking:
        raise UnsupportedModel(f"{model}: {lacking}")
    place = _workspace(request, config) / FP32_FOLDER
    if not is_decoder(model) and is_module(model):
        request = as_onnx(request, place)
        model = request.model
    elif is_decoder(model):
        request.listener.phase("writing the decoder as ONNX")
        model = export_decoder(model, place)
        folder = folder or place  # a tokenizer that is missing is missed where the user looks
        request = replace(request, backend=get_backend("onnx"))  # whatever it was written in
        config = _with_windows_that_fit(config, place, request.listener)
    section = config.quantization.weight_only
    texts = (
        (request.calib, section.calibration_text, "calibration_text"),
        (request.eval_loader, section.evaluation_text, "evaluation_text"),
        (request.held_out, None, "held_out_text"),
    )
    given = ((_given(*text), text[2]) for text in texts)
    if is_decoder(request.model):
        given = ((joined(source), key) for source, key in given)
    calib, held, unseen = (
        windows_of(source, section.prompt_length, folder, f"the {key.replace('_', ' ')}")
        for source, key in given
    )
    found = replace(request, config=config, model=model)
    if calib is not None:
        found = replace(found, calib=calib)
    if held is not None:
        found = replace(found, eval_loader=held)
    if unseen is not None:
        found = replace(found, held_out=unseen)
    return _scored(found, calib, held)


def _with_windows_that_fit(config: Config, place: Path, listener: Listener) -> Config:
    """Windows no longer than the decoder's positions; a length that was asked for is refused."""
    length = config.quantization.weight_only.prompt_length
    positions = positions_in(place)
    if positions is None or length <= positions:
        return config
    if "prompt_length" in config.quantization.weight_only.model_fields_set:
        raise ConfigError(
            f"given {length}, but the model has {positions} positions: give {positions} or less",
            LENGTH,
        )
    listener.note(f"the model has {positions} positions: windows of text are that long")
    return change_config(config, {LENGTH: positions})


def _given(by_code: Any, by_file: str | None, key: str) -> Any:
    """What the program gives, else the file that the configuration names."""
    if by_code is not None or by_file is None:
        return by_code
    if not Path(by_file).is_file():
        raise ConfigError(f"given {by_file!r}, no such file", f"quantization.weight_only.{key}")
    return Path(by_file)


def _scored(request: Request, calib: TokenWindows | None, held: TokenWindows | None) -> Request:
    """The same with windows to measure on, and perplexity as the metric where none is named."""
    section = request.config.evaluation.accuracy
    named = request.metric is not None or section.metric is not None or section.multi_metrics
    if request.eval_func is not None or section.dataloader is not None:
        return request
    if held is None and request.eval_loader is None and calib is not None and len(calib.ids) == 1:
        request.listener.note(
            "the calibration text is a single window: none is left to measure the perplexity on. "
            "Give more text, or an evaluation text"
        )
    if held is None and request.eval_loader is None and calib is not None and len(calib.ids) > 1:
        kept = min(len(calib.ids) // 2, SAMPLES)
        calib, held = calib.part(slice(0, kept)), calib.part(slice(kept, None))
        request.listener.note(
            f"no evaluation text was given: perplexity is measured on the {len(held.ids)} windows "
            f"of the calibration text that are not used for calibration"
        )
        request = replace(request, calib=calib, eval_loader=held)
    if held is not None and _asks(request, LAST_WORD):
        request = replace(request, eval_loader=held.asking_last_words())
        if isinstance(request.held_out, TokenWindows):
            request = replace(request, held_out=request.held_out.asking_last_words())
    if held is not None and not named:
        request = replace(request, metric=METRIC)
    return _with_lower_better(request) if _asks(request, METRIC) else request


def _with_lower_better(request: Request) -> Request:
    """Of a perplexity, whatever the bar is given as: `lpot.Goal` says higher unless told."""
    if not request.config.tuning.accuracy_criterion.higher_is_better:
        return request
    changes = {"tuning.accuracy_criterion.higher_is_better": False}
    return replace(request, config=change_config(request.config, changes))


def _asks(request: Request, metric: str) -> bool:
    section = request.config.evaluation.accuracy.metric
    return request.metric == metric or (section is not None and metric in plain(section))


def folder_of(model: Any) -> Path | None:
    if not isinstance(model, str | Path):
        return None
    return Path(model) if Path(model).is_dir() else Path(model).parent


def _workspace(request: Request, config: Config) -> Path:
    given = request.workspace or config.tuning.workspace.path
    return Path(given) if given else default_folder("onnx", config.model.name)


def bound(request: Request, config: Config, model: Model) -> Request:
    """The request with its windows given the model's own inputs, those to calibrate on spread."""
    for loader in (request.calib, request.eval_loader):
        if loader is not None and isinstance(loader, str):
            raise ConfigError("a text was given for a model without a tokenizer", "calib")
    if (rows := fixed_rows(model.inputs) or 1) > 1:
        raise DataError(
            f"the model takes batches of just {rows} rows: export it with its batch left open, or "
            "of one row"
        )
    for windows in (request.calib, request.eval_loader, request.held_out):
        if isinstance(windows, TokenWindows):
            _check_reading(model, windows.bind(model.inputs))
    model.close()  # what comes next needs the memory
    loader = request.calib
    if not isinstance(loader, TokenWindows):
        return request
    most = max(config.quantization.calibration.sampling_size, default=SAMPLES)
    step = max(1, len(loader.ids) // most)
    return replace(request, calib=loader.part(slice(0, most * step, step)))


def _check_reading(model: Model, windows: TokenWindows) -> None:
    """Can the model read the window with the largest token? A mistake is told before all work."""
    ids = windows.ids
    if not ids.size:
        return
    if ids.min() < 0:
        raise DataError(f"token {ids.min()} was given: tokens are numbered from 0")
    at = int(ids.max(axis=1).argmax())
    ((inputs, _),) = windows.part(slice(at, at + 1))
    try:
        model.backend.run(model, inputs)
    except DataError as error:
        raise DataError(
            f"the model can't read a window of {ids.shape[1]} tokens up to number {ids.max()}: "
            "was the text tokenized for another model, or is the window longer than the model's "
            f"positions (quantization.weight_only.prompt_length)? {str(error).rpartition(': ')[2]}"
        ) from error


def strategy_name(request: Request, config: Config) -> str:
    """The search that mixes widths, unless another one was asked for by name."""
    name = config.tuning.strategy.name
    return "mixed_bits" if request.strategy is None and name in USUAL else name


# -- A torch module whose weights are to be stored in few bits: as ONNX, which has the kernels.


TOLD = (
    "the module was exported to ONNX ({path}), whose runtime multiplies weights in few bits: "
    "`evaluate` gets an ONNX model, and so do you"
)


def is_module(source: Any) -> bool:
    return not isinstance(source, str | Path) and detect(source) == "pytorch"


def as_onnx(request: Request, folder: Path) -> Request:
    """The same request for the module as an ONNX file in this folder."""
    batch, request = _first_batch(request)
    path = folder / "model.onnx"
    request.listener.phase("exporting the module to ONNX")
    get_backend("pytorch").load(request.model).export(path, batch)
    request.listener.note(TOLD.format(path=path))
    return replace(request, model=path, backend=get_backend("onnx"))


def _first_batch(request: Request) -> tuple[Inputs, Request]:
    """One batch to run the module with; nothing is taken from a loader that can be read once."""
    if request.calib is None:
        raise DataError(
            "a torch module is exported to ONNX for `weight_only`, which runs it once: give calib, "
            "batches of its inputs"
        )
    batches = iter(request.calib)
    raw = next(batches, None)
    if raw is None:
        raise DataError("the calibration loader yields no batches")
    if batches is request.calib:
        request = replace(request, calib=chain([raw], batches))
    return split(raw, None).inputs, request


# -- Batches of tokens as data loaders and tokenizers give them, joined to one text.


TEXT = "text"
MOST = 1 << 14  # items of a loader that does not tell how many it has
# What may stand beside the tokens of a batch; other inputs make it one for a loader.
BESIDE = frozenset({IDS, MASK, PLACES, "labels", "token_type_ids", "special_tokens_mask"})


def joined(source: Any) -> Any:
    """The texts or tokens of a loader, for a decoder to read: a list of texts, windows where all
    are equally long, else one row without padding. Anything else is returned as it is.

    >>> joined([{"input_ids": [[5, 6, 0]], "attention_mask": [[1, 1, 0]]}, {"input_ids": [7]}])
    array([5, 6, 7])
    """
    if isinstance(source, Mapping):  # what a tokenizer returns
        return source if _rows(source) is None else joined([source])
    if isinstance(source, str | bytes) or hasattr(source, "shape"):
        return source
    if isinstance(source, Iterator):  # it can be read once: what is of no use here goes back to it
        first = list(islice(source, 1))
        if not first or not _is_read(first[0]):
            return chain(first, source)
        source = [*first, *islice(source, MOST - 1)]
    texts: list[str] = []
    rows: list[np.ndarray] = []
    for item in _items(source):
        if (text := _text(item)) is not None:
            texts.append(text)
        elif (found := _rows(item)) is not None:
            rows += found
        else:
            return source
    if texts and not rows:
        return texts
    if texts or not rows:
        return source
    if len({len(row) for row in rows}) == 1:
        return np.stack(rows)
    return np.concatenate(rows)


def _items(source: Any) -> Iterable[Any]:
    """A dataset without an iterator of its own need not end with an IndexError, nor a loader."""
    count = length_of(source)
    if isinstance(source, Iterable):
        return islice(source, MOST if count is None else count)
    return (source[at] for at in range(count or 0)) if hasattr(source, "__getitem__") else ()


def _is_read(item: Any) -> bool:
    return _text(item) is not None or _rows(item) is not None


def _text(item: Any) -> str | None:
    found = item.get(TEXT) if isinstance(item, Mapping) else item
    return found if isinstance(found, str) else None


def _rows(item: Any) -> list[np.ndarray] | None:
    """The rows of tokens of one batch, without padding; None where it is something else."""
    mask = None
    if isinstance(item, Mapping):
        if IDS not in item or set(item) - BESIDE:
            return None
        item, mask = item[IDS], item.get(MASK)
    elif isinstance(item, tuple | list) and len(item) == 1 and hasattr(item[0], "shape"):
        (item,) = item  # of a TensorDataset
    if isinstance(item, str | bytes):
        return None
    try:
        ids = np.atleast_2d(as_array(item))
        kept = np.ones(ids.shape, bool) if mask is None else np.atleast_2d(as_array(mask)) != 0
    except (TypeError, ValueError):
        return None
    if ids.dtype.kind not in "iu" or ids.ndim != 2 or kept.shape != ids.shape:
        return None
    return [row[keep] for row, keep in zip(ids, kept, strict=True)]
