"""What all components of the original share: steps before, in and after, and hooks for loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lpot.core.errors import ConfigError, a_kind, did_you_mean

SCOPES = (
    "pre_epoch_begin",
    "on_epoch_begin",
    "on_batch_begin",
    "on_post_grad",
    "on_batch_end",
    "on_epoch_end",
    "post_epoch_end",
)


class Hooked:
    """Functions by scope: a training loop calls the methods, which call what was registered.

    >>> hooked = Hooked()
    >>> hooked.register_hook("on_epoch_begin", lambda epoch: print("epoch", epoch))
    >>> hooked.on_epoch_begin(3)
    epoch 3
    """

    def __init__(self) -> None:
        self.hooks: dict[str, list[Callable[..., Any]]] = {scope: [] for scope in SCOPES}

    def register_hook(
        self, scope: str, hook: Callable[..., Any], input_args: Any = None, input_kwargs: Any = None
    ) -> None:
        """Call `hook` in this scope, with these arguments instead of the loop's where given."""
        if scope not in SCOPES:
            hint = did_you_mean(str(scope), SCOPES)
            raise ConfigError(
                f"given {scope!r}, expected one of {', '.join(SCOPES)}{hint}", "scope"
            )
        if not callable(hook):
            raise ConfigError(f"given {a_kind(hook)}, expected a function", "hook")
        if input_args is None and input_kwargs is None:
            self._of(scope).append(hook)
            return
        args, kwargs = tuple(input_args or ()), dict(input_kwargs or {})
        self._of(scope).append(lambda *_: hook(*args, **kwargs))

    def _of(self, scope: str) -> list[Callable[..., Any]]:
        """A subclass of the user's may not have called __init__."""
        if "hooks" not in vars(self):
            Hooked.__init__(self)
        return self.hooks[scope]

    def tell(self, scope: str, *args: Any) -> None:
        for hook in self._of(scope):
            hook(*args)

    def pre_epoch_begin(self) -> None:
        self.tell("pre_epoch_begin")

    def on_epoch_begin(self, epoch: int) -> None:
        self.tell("on_epoch_begin", epoch)

    def on_batch_begin(self, batch: int = 0) -> None:
        self.tell("on_batch_begin", batch)

    def on_post_grad(self) -> None:
        self.tell("on_post_grad")

    def on_batch_end(self) -> None:
        self.tell("on_batch_end")

    def on_epoch_end(self) -> None:
        self.tell("on_epoch_end")

    def post_epoch_end(self) -> None:
        self.tell("post_epoch_end")
