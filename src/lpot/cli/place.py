"""Workspaces on the command line: folders, or URLs that fsspec knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lpot.core.errors import LpotError

if TYPE_CHECKING:  # generic from click 8.5 on
    PlaceType = click.ParamType[Any]
else:
    PlaceType = click.ParamType


class _Kept(PlaceType):
    """Where to keep a run: a folder or a URL, as given."""

    name = "path"

    def convert(self, value: Any, param: Any, ctx: Any) -> str | Path:
        return str(value) if "://" in str(value) else Path(value)


class _Read(PlaceType):
    """What to read: the path itself, or a copy of what lies at the URL now."""

    name = "path"

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        if "://" not in str(value):
            return Path(value)
        from lpot.jobs.storage.workspace import fetched

        try:
            return fetched(str(value))
        except LpotError as error:
            self.fail(str(error), param, ctx)


KEPT, READ = _Kept(), _Read()
