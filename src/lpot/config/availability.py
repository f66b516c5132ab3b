"""Which keys are not acted upon yet. A key or word that is not in LATER is.

Work that makes a key do something deletes its line here, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lpot.config.outline import ANY_NAME, Path, dotted
from lpot.config.scalar import show
from lpot.config.schema import Config
from lpot.config.section import Section
from lpot.core.errors import ConfigError, NotAvailableYet

_ALONE = "training runs on this machine only"
# key, or key=word → what to do instead
LATER: dict[str, str] = {
    "device=gpu": "models run on the CPU",
    "quantization.model_wise.activation.compute_dtype": "remove it",
    "quantization.op_wise.<name>.activation.compute_dtype": "remove it",
    "quantization.optype_wise.<name>.activation.compute_dtype": "remove it",
    "quantization.train.hostfile": _ALONE,
    "pruning.train.hostfile": _ALONE,
    "distillation.train.hostfile": _ALONE,
    "auto_distillation": "remove it",
    "nas": "remove it",
}
_SIGOPT = "the SigOpt service has ended"
_SHARED = "it has no effect: scales are shared wherever the kernels support it"
# The same for what will not come back.
GONE: dict[str, str] = {
    "quantization.train.frequency": "it has no effect",
    "pruning.train.frequency": "it has no effect: pruners have their own update_frequency",
    "distillation.train.frequency": "it has no effect",
    "model.framework=pytorch_ipex": "PyTorch itself serves the model, without Intel's extension",
    "model.framework=tensorflow_itex": "TensorFlow itself serves the model, without Intel's "
    "extension",
    "quantization.recipes.scale_propagation_max_pooling": _SHARED,
    "quantization.recipes.scale_propagation_concat": _SHARED,
    "tuning.strategy.name=sigopt": f"{_SIGOPT}: basic is used instead; bayesian and tpe are "
    "the closest alternatives",
    "tuning.strategy.sigopt_api_token": f"{_SIGOPT}: remove it",
    "tuning.strategy.sigopt_project_id": f"{_SIGOPT}: remove it",
    "tuning.strategy.sigopt_experiment_name": f"{_SIGOPT}: remove it",
}


def is_later(path: tuple[str, ...]) -> bool:
    """Whether a key of the schema, or a section around it, is not acted upon yet."""
    return any(dotted(path[:end]) in LATER for end in range(1, len(path) + 1))


def later_words(path: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a key that are not acted upon yet."""
    start = f"{dotted(path)}="
    return tuple(key.removeprefix(start) for key in LATER if key.startswith(start))


def unavailable(config: Config) -> list[str]:
    """One sentence for each key that was set, to something else than its default, in vain.

    >>> from lpot.config.load import load
    >>> unavailable(load({"nas": {"approach": "basic"}}))
    ['nas is not available yet; remove it']
    """
    return list(_sentences(config, config, (), ()))


OTHER_WORK = ("pruning", "distillation", "auto_distillation", "nas", "model_conversion")
_DOORS = {
    "pruning": "Pruning",
    "distillation": "Distillation",
    "model_conversion": "ModelConversion",
}


def check_work(config: Config) -> None:
    """A file that asks for other work alone must not be quantized in its place.

    >>> from lpot.config.load import load
    >>> check_work(load({"pruning": {}, "quantization": {}}))
    """
    given = config.model_fields_set
    asked = [name for name in OTHER_WORK if name in given]
    if not asked or given & {"quantization", "graph_optimization", "mixed_precision"}:
        return
    if config.pruning is not None and config.pruning.approach.structured is not None:
        return
    where, door = config.where(asked[0]), _DOORS.get(asked[0])
    if door is not None:
        raise ConfigError(
            f"the file asks for nothing else: run it with lpot.experimental.{door}(conf), or add a "
            "`quantization` section to quantize the model",
            asked[0],
            where,
        )
    raise NotAvailableYet(
        f"{where + ': ' if where else ''}{asked[0]}",
        "The file asks for nothing else; add a `quantization` section to quantize the model.",
    )


def _sentences(config: Config, section: Section, schema: Path, real: Path) -> Iterator[str]:
    fields = type(section).model_fields
    for name in (name for name in fields if name in section.model_fields_set):
        value = getattr(section, name)
        if value == fields[name].default:
            continue
        known, path = (*schema, name), (*real, name)
        names = (dotted(known), f"{dotted(known)}={value}")
        later = next((LATER[name] for name in names if name in LATER), None)
        gone = next((GONE[name] for name in names if name in GONE), None)
        if later is not None:
            yield _sentence(config, path, value, f" is not available yet; {later}")
        elif gone is not None:
            yield _sentence(config, path, value, f": {gone}")
        else:
            for below, here, entry in _entries(known, path, value):
                yield from _sentences(config, entry, below, here)


def _entries(schema: Path, real: Path, value: Any) -> Iterator[tuple[Path, Path, Section]]:
    """The sections that a value is or holds."""
    if isinstance(value, Section):
        yield schema, real, value
    elif isinstance(value, dict):
        for key, entry in value.items():
            if isinstance(entry, Section):
                yield (*schema, ANY_NAME), (*real, key), entry


def _sentence(config: Config, path: Path, value: Any, remark: str) -> str:
    name = dotted(path)
    secret = name.endswith("token")
    told = secret or isinstance(value, Section | dict | tuple)
    subject = name if told else f"{name}: {show(value)}"
    where = config.where(name)
    return f"{where + ': ' if where else ''}{subject}{remark}"
