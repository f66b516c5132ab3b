"""Cuts that save alike, compared by what a short training makes of each."""

from __future__ import annotations

from collections.abc import Callable

from lpot.core.model import Model
from lpot.jobs.compress.sensitivity import Plan, Sensitivity

SHARE = 30  # the short training is a thirtieth of the long one
CLOSE = 1.25  # times the least error: what is further off is not trained
MOST = 5


def planned(
    sensitivity: Sensitivity, ratio: float, train: Callable[[Model], Model] | None = None
) -> Plan:
    """The best cuts that save this share of the latency.

    A layer that stands for a block is fitted as well as it can be, while blocks and channels that
    are left have more to learn: equal errors after the fit are not equal after training.
    """
    found = sensitivity.cheapest(ratio)
    least = sensitivity.together(found[0][0]) if train and len(found) > 1 else 0.0
    close = [pair for pair in found if sensitivity.together(pair[0]) <= CLOSE * least]
    if train is None or len(close) < 2:
        return sensitivity.plan(*found[0])
    # Of many small cuts each was one more guess: the sets with the fewest are compared.
    few = sorted(close, key=lambda pair: len(pair[0]))[:MOST]
    errors = []
    for number, (cuts, _) in enumerate(few, start=1):
        sensitivity.bench.listener.phase(
            f"comparing cuts after a short training of each, {number} of {len(few)}"
        )
        errors.append(sensitivity.low_error(train(sensitivity.fitted(cuts))))
    return sensitivity.plan(*few[errors.index(min(errors))])
