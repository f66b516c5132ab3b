"""From yaml steps or a user's object to one postprocess."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from lpot.core.errors import ConfigError
from lpot.data.postprocess.boxes import DetectionBoxes
from lpot.data.postprocess.collect import Collect
from lpot.data.postprocess.label import LabelShift, Sample
from lpot.data.postprocess.squad import SquadV1
from lpot.data.registry import Registry
from lpot.data.transforms import TRANSFORMS, options_of

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
