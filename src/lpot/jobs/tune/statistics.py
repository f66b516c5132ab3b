"""What calibration saw: the data are read once, when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lpot.core.backend import Backend, Observations
from lpot.core.calibration import Calibration
from lpot.core.model import Model
from lpot.core.progress import Listener, counted
from lpot.core.store import save_observations
from lpot.jobs.many.pool import Observed


@dataclass(frozen=True, eq=False, kw_only=True)
class Statistics:
    """Observations by number of samples; None where there are no calibration data."""

    backend: Backend
    model: Model
    calibration: Calibration | None
    sizes: tuple[int, ...]
    place: Path  # where they are kept, for `recover`
    sync: Callable[[], None]  # to where the workspace really is
    listener: Listener
    note: Callable[[str], None]
    share: Callable[[Callable[[], Observed]], Observed] = lambda make: make()  # `jobs/many/pool.py`
    given: Mapping[int, Observations] | None = None  # by an earlier run

    def __call__(self, samples: int) -> Observations | None:
        known = self.given if self.given is not None else self._observed
        return None if known is None else known[samples]

    @cached_property
    def _observed(self) -> Mapping[int, Observations] | None:
        if self.calibration is None:
            return None
        calibration = self.calibration
        observed = self.share(lambda: self._calibrate(calibration))
        for text in calibration.notes:
            self.note(text)
        self._store(observed)
        return observed

    def _calibrate(self, calibration: Calibration) -> Observed:
        """One pass over the data."""
        steps = -(-max(self.sizes) // calibration.batch_size) or calibration.length
        self.listener.phase("calibrating", steps)
        batches = counted(calibration.batches(self.sizes), self.listener)
        observed = self.backend.observe(self.model, batches, self.sizes)
        self.model.close()
        return observed

    def _store(self, observed: Mapping[int, Observations]) -> None:
        try:
            save_observations(self.place, observed)
            self.sync()
        except OSError as error:
            self.note(
                f"warning: {self.place} can't be written ({error.strerror}): "
                "the tuning continues, but `recover` will not find its statistics"
            )
