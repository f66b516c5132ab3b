"""A console that shows foreign text as text: names come from models and files of strangers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# What would move the cursor, set the title, or turn the direction of what follows: of no width.
_CONTROLS = (*range(0x20), 0x7F, *range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_HALVES = range(0xD800, 0xE000)  # of characters, in names that are not UTF-8
_SHOWN = {
    **dict.fromkeys(set(_CONTROLS) - set(b"\n\t")),
    **dict.fromkeys(_HALVES, "\N{REPLACEMENT CHARACTER}"),
}


class SafeConsole(Console):
    """As rich's own, but only rich itself gives orders to the terminal.

    Nor does `:key:` in a name become a picture of one.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"emoji": False, **options})

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(text.translate(_SHOWN), style)

    def on_broken_pipe(self) -> None:
        """Nobody reads it any more: rich would end the program, and take its stdout away."""
        self.quiet = True
