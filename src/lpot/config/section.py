"""What every part of the configuration is made of: frozen, closed to unknown keys."""

# No deferred annotations: pydantic before 2.13 looks for their names in modules of subclasses.

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

from lpot.config.fields import Arguments, wrong
from lpot.config.frozen import FrozenDict
from lpot.config.scalar import show
from lpot.core.errors import did_you_mean


class Section(BaseModel):
    """A mapping with known keys. Written with nothing in it, it keeps all its defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_empty(cls, value: Any) -> Any:
        return {} if value is None else value


class OneOf(Section):
    """Exactly one name and its arguments; names that are not ours are kept for the user's own."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Arguments]

    what: ClassVar[str] = "thing"

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {str(value): {}}
        if isinstance(value, Mapping):
            for key, args in value.items():
                cls._check_name(str(key), args)
            return {str(key): {} if args is None else args for key, args in value.items()}
        return value

    @classmethod
    def _check_name(cls, name: str, args: Any) -> None:
        """One of the user's own has arguments by name: anything else may be a misspelling."""
        if name in cls.model_fields or isinstance(args, Mapping | None):
            return
        near = did_you_mean(name, cls.model_fields)
        if near:
            raise wrong(f"unknown {cls.what} {name!r}{near}", key=name)

    @model_validator(mode="after")
    def _exactly_one(self) -> "OneOf":
        count = len(self.model_fields_set)
        if count != 1:
            names = ", ".join(sorted(self.model_fields_set)) or show(None)
            raise wrong(f"given {names}, expected exactly one {self.what}")
        return self

    @property
    def name(self) -> str:
        return next(iter(self.model_fields_set))

    @property
    def args(self) -> FrozenDict:
        """What the user gave beside the name, ready to be passed on by keyword."""
        extra = self.model_extra or {}
        value = extra[self.name] if self.name in extra else getattr(self, self.name)
        if isinstance(value, Section):
            return FrozenDict(value.model_dump(exclude_unset=True))
        return FrozenDict(value or {})
