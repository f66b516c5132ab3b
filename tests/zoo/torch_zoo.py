"""All architectures of the PyTorch zoo by name, and what is tried with each.

    python tests/zoo/torch_zoo.py tune|reload FOLDER NAME...

is a child process: it writes one line of JSON per step to standard output, so that a crash is
seen and known to be of the architecture named last.
"""

from __future__ import annotations

import copy
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from torch import nn

from zoo import (
    torch_batches,
    torch_families,
    torch_odd,
    torch_own,
    torch_packages,
    torch_strange,
    torch_transformers,
)
from zoo.torch_rounding import rounding_noise
from zoo.torch_settled import settled
from zoo.torch_transformers_more import MORE

BATCHES = 3
DRAWS = 4  # of the noise: for outputs of a few numbers one draw is off by up to 7 dB
HERE = {
    "own": torch_own.NETS,
    "odd": torch_odd.NETS,
    "batch": torch_batches.NETS,
    "strange": torch_strange.NETS,
    "family": torch_families.NETS,
}
TRANSFORMERS = {**torch_transformers.ENTRIES, **MORE}


def names() -> list[str]:
    """What can be tried here."""
    found = [f"{home}/{name}" for home, nets in HERE.items() for name in nets]
    found += [f"transformers/{name}" for name in TRANSFORMERS]
    if torch_packages.torchvision() is not None:
        found += [f"torchvision/{name}" for name in torch_packages.TORCHVISION]
    if torch_packages.timm() is not None:
        found += [f"timm/{name}" for name in torch_packages.TIMM]
    return found


def make(name: str) -> tuple[Any, Callable[[], Any]]:
    """A module or program, always the same, and what draws one of its batches."""
    torch.manual_seed(0)
    home, _, rest = name.partition("/")
    if home in HERE:
        maker, data = HERE[home][rest]
        return maker(), data
    if home == "transformers":
        entry = TRANSFORMERS[rest]
        return entry.make(), entry.data
    draw = _pictures(rest) if home == "torchvision" else _square(torch_packages.TIMM[rest])
    made = torch_packages.make_timm if home == "timm" else torch_packages.make_torchvision
    return made(rest), draw


def _square(side: int) -> Callable[[], Any]:
    return lambda: torch.randn(2, 3, side, side)


def _pictures(name: str) -> Callable[[], Any]:
    side = torch_packages.TORCHVISION[name]
    if name.startswith("video"):
        return lambda: torch.randn(1, 3, 4, side, side)
    if name.startswith("detection"):
        return lambda: [torch.rand(3, side, side), torch.rand(3, side, side)]
    return _square(side)


def tune(name: str, folder: Path) -> dict[str, Any]:
    """One tuning as a newcomer would do it, and what came of it."""
    import lpot
    from lpot.backends.torch.run import run
    from lpot.core.batch import Reader
    from lpot.core.errors import LpotError

    module, draw = make(name)
    module = settled(module, draw)
    torch.manual_seed(1)
    data = [draw() for _ in range(BATCHES)]
    began = time.perf_counter()
    try:
        result = lpot.tune(module, calib=data, workspace=folder, measure_speed=False)
    except LpotError as error:
        return {"word": "refused", "why": str(error), "good": _is_clear(str(error))}
    handle: Any = result.model
    reader = Reader(None, handle.tries())
    batches = [reader(batch).inputs for batch in data]
    exactly = module.eval() if isinstance(module, nn.Module) else copy.deepcopy(module.module())
    outputs = [_seeded(run, handle.native, batches[0])]
    # At once: a hook that is a closure goes on writing to the original, whoever copies it.
    twin = _seeded(run, copy.deepcopy(handle.native), batches[0])
    outputs += [_seeded(run, handle.native, inputs) for inputs in batches[1:]]
    exact = [_seeded(run, exactly, inputs) for inputs in batches]
    np.savez(folder / "expected.npz", *outputs[0])
    found = handle.precisions.values()
    return {
        "word": "tuned",
        "int8": sum(precision == "int8" for precision in found),
        "total": len(found),
        "sqnr": _sqnr(exact, outputs),
        "rounding": _rounding(exactly, batches, exact),
        "copies": all(map(_same, outputs[0], twin)),
        "seconds": round(time.perf_counter() - began, 2),
        "saved": str(result.path),
    }


def reload(name: str, folder: Path) -> dict[str, Any]:
    """The saved model in this process, into fresh weights: the same outputs?"""
    import lpot
    from lpot.backends.torch.run import run
    from lpot.core.batch import Reader

    module, draw = make(name)
    torch.manual_seed(1)
    batch = draw()
    model: Any = lpot.load(folder / "checkpoint", module=module)
    inputs = Reader(None, model.tries())(batch).inputs
    found = _seeded(run, model.native, inputs)
    with np.load(folder / "expected.npz") as kept:
        expected = [kept[f"arr_{number}"] for number in range(len(kept.files))]
    return {"same": len(expected) == len(found) and all(map(_same, expected, found))}


def _seeded(
    run: Callable[..., list[np.ndarray]], native: nn.Module, inputs: Any, draw: int = 0
) -> Any:
    """Some architectures draw random numbers when they run."""
    torch.manual_seed(2 + draw)
    return run(native, inputs)


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))


Outputs = list[list[np.ndarray]]  # of each batch


def _sqnr(exact: Outputs, low: Outputs) -> float | None:
    """Of the first output, in dB; the noise of all batches counts, for one alone says little."""
    from lpot.core.numerics.rounding import sqnr

    if not exact[0] or any(a[0].shape != b[0].shape for a, b in zip(exact, low, strict=True)):
        return None
    if not all(np.abs(outputs[0]).max(initial=0) for outputs in exact):
        return None
    noise = [10 ** (-sqnr(a[0], b[0]) / 10) for a, b in zip(exact, low, strict=True)]
    return round(float(-10 * np.log10(np.mean(noise))), 1) if any(noise) else np.inf


def _rounding(module: nn.Module, batches: list[Any], exact: Outputs) -> float | None:
    """What 8 bits allow, in dB; None where noise can't be put into the net."""
    from lpot.backends.torch.run import run
    from lpot.core.errors import LpotError

    found: Outputs = []
    try:
        for draw in range(DRAWS):
            torch.manual_seed(draw)
            with rounding_noise(module) as noisy:
                found += [
                    _seeded(run, noisy, inputs, len(found) + d) for d, inputs in enumerate(batches)
                ]
    except (LpotError, RuntimeError, TypeError, AttributeError):
        return None
    return _sqnr(DRAWS * exact, found)


def _is_clear(text: str) -> bool:
    return "\n" not in text and 20 < len(text) < 600


def main(step: str, folder: Path, chosen: list[str]) -> None:
    warnings.filterwarnings("ignore")
    torch_packages.torchvision()  # before transformers, which imports it and might stumble
    for name in chosen:
        print(json.dumps({"name": name}), flush=True)
        place = folder / name.replace("/", "_").replace(" ", "-")
        place.mkdir(parents=True, exist_ok=True)
        try:
            told = {"tune": tune, "reload": reload}[step](name, place)
        except Exception as error:  # whatever it is: a row of the table, not the end of the zoo
            told = {"word": "failed", "why": f"{type(error).__name__}: {error}"}
        print(json.dumps({"name": name, **told}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "names":
        print(json.dumps(names()))
    else:
        main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
