"""Whether an evaluation is fine enough to tell a loss of the size that is allowed."""

from __future__ import annotations

from lpot.core.goal import Goal
from lpot.core.trial import Score


def noise_warning(goal: Goal, accuracies: list[float], baseline: float) -> str:
    """About repeated evaluations of FP32 that differ; empty if they agree well enough."""
    spread, allowed = max(accuracies) - min(accuracies), abs(baseline - goal.bar(baseline))
    if spread <= allowed / 2:
        return ""
    return (
        f"warning: {len(accuracies)} evaluations of FP32 differ by {spread:.4g}, more than "
        f"half of the allowed loss of {allowed:.4g}: the evaluation is too noisy to judge by; "
        "evaluate more samples, fix its seed, or allow a larger loss"
    )


def grain_warning(goal: Goal, baseline: Score, grain: float | None) -> str:
    """About samples so few that one of them decides; `grain` is what one can change at most."""
    allowed = abs(baseline.accuracy - goal.bar(baseline.accuracy))
    if grain is None or not baseline.samples or grain / baseline.samples <= allowed:
        return ""
    return (
        f"warning: each of the {baseline.samples} evaluated samples is worth up to "
        f"{grain / baseline.samples:.4g}, more than the allowed loss of {allowed:.4g}: a single "
        "answer decides; evaluate more samples, or allow a larger loss"
    )
