"""Opens models that another process saved and tells what they do here.

python visit.py FRAMEWORK FOLDER
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np

from avx2.nets import INTEGER, MIXED, TARGETS, net, reopened
from lpot.core.cpu import this_cpu


class Ears(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


def visit(framework: str, folder: Path) -> dict[str, Any]:
    """Outputs go to files; the kind of this CPU and the warnings come back."""
    ears = Ears()
    logging.getLogger("lpot").addHandler(ears)
    warnings: dict[str, list[str]] = {}
    for name in (INTEGER, MIXED):
        _, batches = net(framework, name)
        for target in TARGETS:
            ears.heard.clear()
            (card,) = folder.glob(f"{name}-{target}/*.card.json")
            path = card.with_name(card.name.removesuffix(".card.json"))
            model = reopened(framework, name, path)
            outputs = [out for batch in batches for out in model.backend.run(model, batch)]
            np.savez(folder / f"{name}-{target}.out.npz", *outputs)
            warnings[f"{name}-{target}"] = list(ears.heard)
    return {"kind": this_cpu().kind, "warnings": warnings}


if __name__ == "__main__":
    print(json.dumps(visit(sys.argv[1], Path(sys.argv[2]))))
