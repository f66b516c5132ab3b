"""Run in a process of its own: some cases of the zoo, a line of JSON for each step.

python -m zoo.tensorflow_child tune OUT NAME...     tune, save, and keep inputs and outputs
python -m zoo.tensorflow_child check OUT            stock TensorFlow alone, on what was saved
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np


def say(**facts: Any) -> None:
    print(f"ZOO {json.dumps(facts)}", flush=True)


def tune(out: Path, names: list[str]) -> None:
    import lpot
    from lpot.core.errors import LpotError
    from zoo.tensorflow_nets import cases

    known = cases()
    for name in names:
        say(name=name, step="begin")
        place = out / "".join(c if c.isalnum() else "_" for c in name)
        try:
            model, data, *more = known[name]()
            options = more[0] if more else {}
            result = lpot.tune(
                model, data, workspace=place / "work", measure_speed=False, **options
            )
            if hasattr(data, "reset"):
                data.reset()  # it keeps its place
            keep(place, result, next(iter(data)))
        except LpotError as error:
            say(name=name, step="refused", word=str(error), kind=type(error).__name__)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            say(name=name, step="failed", word=text, where=traceback.format_exc()[-1500:])
        else:
            found = result.precisions
            say(name=name, step="tuned", int8=found.get("int8", 0), fp32=found.get("fp32", 0))


def keep(place: Path, result: Any, first: Any) -> None:
    """The frozen graph with a batch and what it gave, for the process that checks it."""
    from lpot.backends.tensorflow.run import feed
    from lpot.core.batch import split

    model = result.model
    graph = model.save(place / "m.pb")
    feeds = feed(model.inputs, split(first, model.input_names).inputs)
    outputs = model.backend.run(model, feeds)
    facts = {"graph": str(graph), "feeds": list(feeds), "fetches": model.output_tensor_names}
    arrays = {f"in{i}": _plain(value) for i, value in enumerate(feeds.values())}
    arrays |= {f"out{i}": _plain(value) for i, value in enumerate(outputs)}
    np.savez(place / "arrays.npz", **arrays)
    (place / "facts.json").write_text(json.dumps(facts), "utf-8")


def _plain(value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.name == "bfloat16":  # no type of NumPy's own: a file would forget it
        return array.astype(np.float32)
    if array.dtype.kind != "O":
        return array
    texts = [item.decode() if isinstance(item, bytes) else item for item in array.reshape(-1)]
    return np.array(texts, str).reshape(array.shape)


def check(out: Path) -> None:
    """TensorFlow as it comes, without lpot: the saved graph gives the same, bit by bit."""
    import tensorflow as tf

    assert "lpot" not in sys.modules
    v1 = tf.compat.v1
    for place in sorted(path.parent for path in out.glob("*/facts.json")):
        facts = json.loads((place / "facts.json").read_text("utf-8"))
        arrays = np.load(place / "arrays.npz")
        graph_def = v1.GraphDef.FromString(Path(facts["graph"]).read_bytes())
        with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
            tf.graph_util.import_graph_def(graph_def, name="")
            feeds = {name: arrays[f"in{i}"] for i, name in enumerate(facts["feeds"])}
            found = session.run(facts["fetches"], feeds)
        pairs = [(_plain(one), arrays[f"out{i}"]) for i, one in enumerate(found)]
        same = all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)
        say(name=place.name, step="checked", same=same)


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    tune(Path(where), rest) if what == "tune" else check(Path(where))
