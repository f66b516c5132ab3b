"""Door: `lpot.experimental.Component`, the base of everything that a Scheduler runs."""

from __future__ import annotations

from typing import Any

from lpot.jobs.component.component import Component as _Component


class Component(_Component):
    """Set `model`, and override `execute`; `register_hook(scope, function)` adds hooks."""

    model: Any = None


__all__ = ["Component"]
