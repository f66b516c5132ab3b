"""From yaml steps or a user's object to one postprocess."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from lpot.core.batch import as_array
from lpot.core.errors import ConfigError
from lpot.data.postprocess.boxes import DetectionBoxes
from lpot.data.postprocess.label import LabelShift, Sample
from lpot.data.postprocess.squad import SquadV1
from lpot.data.registry import Registry
from lpot.data.transforms import TRANSFORMS, options_of

# -- Outputs beyond the last real sample, left out.


class Collect:
    """Keeps the outputs of the first `length` samples of a pass and drops the rest.

    For data that was padded to whole batches; put it before SquadV1, which itself waits until
    all windows of a question have arrived.

    >>> import numpy as np
    >>> Collect(3)((np.zeros((2, 5)), [7, 8]))[1], Collect(1)((np.zeros((2, 5)), [7, 8]))[1]
    ([7, 8], [7])
    """

    def __init__(self, length: int = 10833) -> None:
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ConfigError(f"length is {length!r}, expected a number of samples")
        self.length = length
        self.reset()

    def reset(self) -> None:
        """A new evaluation begins."""
        self._seen = 0

    def __call__(self, sample: Sample) -> Sample:
        outputs, labels = sample
        if outputs is None:
            return sample
        several = isinstance(outputs, list | tuple)
        arrays = [as_array(one) for one in (outputs if several else [outputs])]
        count = len(arrays[0])
        room = max(0, self.length - self._seen)
        self._seen += count
        if count <= room:
            return sample
        if not room:
            return None, None
        kept = [array[:room] for array in arrays]
        return (kept if several else kept[0]), _first(labels, room, count)


def _first(labels: Any, room: int, count: int) -> Any:
    """The labels of the samples kept, where there is one for each."""
    sized = hasattr(labels, "__getitem__") and hasattr(labels, "__len__")
    return labels[:room] if sized and len(labels) == count else labels


Step = Callable[[Sample], Any]

POSTPROCESSES = Registry(
    "postprocess",
    {
        "Collect": Collect,
        "DetectionBoxes": DetectionBoxes,
        "LabelShift": LabelShift,
        "SquadV1": SquadV1,
        "SquadV1ModelZoo": SquadV1,
    },
)


@runtime_checkable
class PostprocessRecord(Protocol):
    """A class that is still to be made, as `lpot.experimental.common.Postprocess` holds it."""

    postprocess_cls: type[Any]
    kwargs: Mapping[str, Any]


class Chain:
    """Steps one after the other; `reset` tells those that hold something that a new pass begins."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)

    def __call__(self, sample: Sample) -> Any:
        for step in self.steps:
            sample = step(sample)
        return sample

    @property
    def each_batch_alone(self) -> bool:
        """Does no step remember earlier batches? Of a user's own that is not known."""
        return all(getattr(step, "each_batch_alone", False) for step in self.steps)

    def reset(self) -> None:
        for step in self.steps:
            forget = getattr(step, "reset", None)
            if callable(forget):
                forget()


def as_postprocess(given: Any, path: str = "postprocess.transform") -> Chain:
    """A chain from what a user gave: yaml steps, a function, a class, a record of one, a list."""
    if isinstance(given, Mapping):
        return Chain([_named(name, value, f"{path}.{name}") for name, value in given.items()])
    if isinstance(given, Chain):
        return given
    if isinstance(given, list | tuple):
        return Chain([step for one in given for step in as_postprocess(one, path).steps])
    if isinstance(given, PostprocessRecord):
        given = given.postprocess_cls(**given.kwargs)
    elif isinstance(given, type):
        given = given()
    if not callable(given):
        raise ConfigError(
            f"{given!r:.80} can't be used as a postprocess: expected names with their options, or "
            "something to call with (predictions, labels)",
            path=path,
        )
    return Chain([given])


def _named(name: str, value: Any, path: str) -> Step:
    # A user's own is registered among the transforms, as the original has it.
    known = TRANSFORMS if name in TRANSFORMS and name not in POSTPROCESSES else POSTPROCESSES
    made: Step = known.make(name, options_of(known.find(name, path), value), path)
    return made
