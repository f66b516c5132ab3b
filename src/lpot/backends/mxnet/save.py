"""Writing a model in MXNet's own two files, so that reading them gives the same outputs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lpot.backends.mxnet.load import SYMBOL, find_files, load, prefix_of, read_files
from lpot.backends.mxnet.model import MxnetModel
from lpot.backends.mxnet.network import Network, check
from lpot.backends.mxnet.run import Runner
from lpot.backends.mxnet.runtime import MXNetError, first_line, mx
from lpot.core.backend import ModelSpec
from lpot.core.card import compare_card, read_card, recipe_of, sha256, write_card
from lpot.core.errors import UnsupportedModel, WorkspaceError

if TYPE_CHECKING:
    from lpot.backends.mxnet import MxnetBackend

PARAMS = "-0000.params"


def save(model: MxnetModel, path: Path) -> Path:
    """`prefix-symbol.json` and `prefix-0000.params`, the card beside; the path of the first.

    `path` is the prefix, or the symbol's file itself.
    """
    if path.is_dir():
        path = path / model.backend.best_name
    prefix = prefix_of(path)
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".lpot-", dir=prefix.parent) as folder:
            drafts = write(model.network, Path(folder) / prefix.name)
            _verify(model, *drafts)
            digest = sha256(drafts[1])
            for draft in reversed(drafts):  # the parameters before the symbol that needs them
                draft.replace(prefix.parent / draft.name)
        symbol = prefix.with_name(prefix.name + SYMBOL)
        ends = {"inputs": list(model.input_names), "outputs": list(model.output_names)}
        model.card = {**model.card, "ends": ends, "params_sha256": digest}
        write_card(model, symbol)  # its folder is synced here, for all
    except OSError as error:
        raise WorkspaceError(
            f"{prefix}: can't write the model ({error.strerror or error})"
        ) from error
    return symbol


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
    for path in (symbol, params):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
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
            raise WorkspaceError(
                f"{symbol.name}: the saved model gives another {name!r} than the one in memory; "
                "it was not kept. Please report this with the model"
            )


def restore(backend: MxnetBackend, path: Path) -> MxnetModel:
    symbol, params = find_files(path)
    card = read_card(symbol)
    compare_card(card, symbol, backend.versions())
    digest = card.get("params_sha256")
    if digest is not None and sha256(params) != digest:
        raise UnsupportedModel(
            f"{params}: not the parameters that {symbol.name} was saved with (their hash differs)"
        )
    ends = card.get("ends", {})
    spec = ModelSpec(inputs=tuple(ends.get("inputs", ())))
    loaded = load(params, spec)
    model = MxnetModel(backend, loaded.network, recipe=recipe_of(card, symbol))
    model.met = card.get("met")
    return model
