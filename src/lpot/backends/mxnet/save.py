"""Writing a model in MXNet's own two files, so that reading them gives the same outputs."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lpot.backends.mxnet.load import SYMBOL, find_files, prefix_of, read_files
from lpot.backends.mxnet.model import MxnetModel
from lpot.backends.mxnet.network import Network, check
from lpot.backends.mxnet.run import Runner
from lpot.backends.mxnet.runtime import MXNetError, first_line, mx
from lpot.core.backend import ModelSpec
from lpot.core.errors import HistoryError, SaveError, UnsupportedModel, WorkspaceError
from lpot.core.files.card import compare_card, read_card, recipe_of, sha256
from lpot.core.files.draft import beside
from lpot.core.files.publish import drafting, publish

if TYPE_CHECKING:
    from lpot.backends.mxnet import MxnetBackend

logger = logging.getLogger(__name__)

PARAMS = "-0000.params"


def save(model: MxnetModel, path: Path) -> Path:
    """`prefix-symbol.json` and `prefix-0000.params`, the card beside; the path of the first.

    `path` is the prefix, or the symbol's file itself.
    """
    if path.is_dir():
        path = path / model.backend.best_name
    prefix = prefix_of(path)
    symbol = prefix.with_name(prefix.name + SYMBOL)
    try:
        with drafting(prefix) as folder:
            drafts = write(model.network, folder / prefix.name)
            _verify(model, *drafts)
            ends = {"inputs": list(model.input_names), "outputs": list(model.output_names)}
            model.card = {**model.card, "ends": ends, "params_sha256": sha256(drafts[1])}
            # MXNet has one name for the parameters, and the symbol that is there still needs the
            # old ones: they are kept under another until the new symbol has taken its place.
            with _kept(symbol, prefix.with_name(prefix.name + PARAMS)):
                publish(model, folder, symbol, first=[drafts[1].name])
    except OSError as error:
        raise WorkspaceError(
            f"{prefix}: can't write the model ({error.strerror or error})"
        ) from error
    return symbol


@contextlib.contextmanager
def _kept(symbol: Path, params: Path) -> Iterator[None]:
    """The parameters of the symbol that is there, under a name that is not replaced."""
    before, draft = _before(params), beside(params)
    if params.is_file() and not _are_of(symbol, before):
        draft.unlink(missing_ok=True)
        try:
            os.link(params, draft)
        except OSError:  # a disk without links
            shutil.copyfile(params, draft)
        draft.replace(before)
    yield
    before.unlink(missing_ok=True)


def _are_of(symbol: Path, before: Path) -> bool:
    """Is this what a process that was killed had kept for the symbol that is still there?"""
    if not before.is_file():
        return False
    try:
        return read_card(symbol).get("params_sha256") == sha256(before)
    except HistoryError:
        return False


def _before(params: Path) -> Path:
    return params.with_name(f"{params.name}.before")


def write(network: Network, prefix: Path) -> tuple[Path, Path]:
    symbol = prefix.with_name(prefix.name + SYMBOL)
    params = prefix.with_name(prefix.name + PARAMS)
    arrays = {f"arg:{name}": value for name, value in network.args.items()}
    arrays |= {f"aux:{name}": value for name, value in network.auxs.items()}
    symbol.write_text(network.symbol.tojson(), "utf-8")
    try:
        mx.nd.save(str(params), arrays)
    except MXNetError as error:  # a full disk comes as one of MXNet's own errors
        raise WorkspaceError(f"{params}: can't be written ({first_line(error)})") from error
    return symbol, params


def _verify(model: MxnetModel, symbol: Path, params: Path) -> None:
    """Load what was written and compare outputs, while the original is still in memory."""
    if model.probe is None:
        return
    expected = model.run(model.probe)
    spec = ModelSpec(inputs=model.input_names)
    again = Runner(check(*read_files(symbol, params), spec, str(symbol)))
    for name, one, other in zip(model.output_names, expected, again(model.probe), strict=True):
        if not np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
            raise SaveError(
                f"{symbol.name}: the saved model gives a different {name!r} from the one in "
                "memory; it was not kept. Please report this with the model"
            )


def restore(backend: MxnetBackend, path: Path) -> MxnetModel:
    symbol, params = find_files(path)
    card = read_card(symbol)
    compare_card(card, symbol, backend.versions())
    digest = card.get("params_sha256")
    if digest is not None and sha256(params) != digest:
        params = _before(params)  # of a process that was killed while it replaced them
    if digest is not None and not (params.is_file() and sha256(params) == digest):
        raise UnsupportedModel(
            f"{params}: not the parameters that {symbol.name} was saved with (their hash differs)"
        )
    ends = card.get("ends") or {}
    spec = ModelSpec(inputs=tuple(ends.get("inputs", ())))
    network = check(*read_files(symbol, params), spec, str(symbol))
    model = MxnetModel(backend, network, recipe=recipe_of(card, symbol))
    model.met = card.get("met")
    if trouble := backend.overflow(model, model.recipe):
        logger.warning("%s: %s", symbol, trouble)
    return model
