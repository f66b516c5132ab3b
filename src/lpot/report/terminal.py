"""Progress for people: plain lines."""

from __future__ import annotations

from lpot.core.progress import Listener


class TerminalListener(Listener):
    pass
