"""What the tests of pruning share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lpot.jobs.compress import sensitivity


@pytest.fixture(scope="module")
def gains_by_size() -> Iterator[None]:
    """What a cut gains is what it makes smaller: times of a tiny net on a busy machine say nothing,
    and no test may depend on them."""

    def gain(bench: Any, base: Any, small: Any, rounds: int = 1) -> float:
        bench.backend.run(small, bench.timed)
        return 1 - float(small.nbytes) / float(base.nbytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sensitivity, "_gain", gain)
        yield
