"""What was last made of a tensor: query, key and value read one, so it is done once."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch


class Latest(threading.local):
    """Remembers one result, for as long as its source lives and is not changed."""

    _source: weakref.ReferenceType[torch.Tensor] | None = None
    _stamp: tuple[Any, ...] = ()
    _made: torch.Tensor | None = None
    _held: Any = None
    _readers: tuple[object, ...] = ()

    def get(
        self,
        x: torch.Tensor,
        how: object,
        make: Callable[[], torch.Tensor],
        held: Any = None,
        reader: object = None,
    ) -> torch.Tensor:
        """`how` says what is made of x, by content; `held` is kept alive as long as the result.

        Tensors of inference mode do not count their changes: there a result is given to each
        `reader` once, for one that comes again may have changed the tensor in between.
        """
        blind = x.is_inference()
        if blind and reader is None:
            return make()
        stamp = (None if blind else x._version, how)
        known = self._source is not None and self._source() is x and self._stamp == stamp
        if not known or (blind and any(one is reader for one in self._readers)):
            self._made, self._held, self._readers = make(), held, ()
            self._source, self._stamp = weakref.ref(x), stamp
        if blind:
            self._readers += (reader,)
        assert self._made is not None
        return self._made
