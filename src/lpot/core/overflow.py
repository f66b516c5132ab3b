"""Models made for CPUs with VNNI, opened on one without: told with what was measured."""

from __future__ import annotations

from collections.abc import Callable

from lpot.core.recipe import OpConfig, Recipe

# Rounding the output to 8 bits stays below 1 % of the exact sum; an overflow halves it.
TOLERANCE = 0.02


def overflow_of(recipe: Recipe | None, worst_error: Callable[[str], float]) -> str:
    """What a model made under this recipe suffers on this CPU; empty if nothing.

    `worst_error` gives, for a kind of op, how far the largest possible sum of full 8-bit products
    is off here, relative to the truth: a backend's self-test.
    """
    full: dict[str, int] = {}
    for key, config in (recipe.ops if recipe is not None else {}).items():
        if _uses_all_bits(config):
            full[key.kind] = full.get(key.kind, 0) + 1
    errors = {kind: worst_error(kind) for kind in full}
    wrong = {kind: error for kind, error in errors.items() if error > TOLERANCE}
    if not wrong:
        return ""
    ops = " and ".join(f"{full[kind]} {kind}" for kind in wrong)
    return (
        f"{ops} op(s) use all 8 bits, for a CPU with VNNI; this CPU's kernels overflow "
        f"with them: measured here, the worst case loses {max(wrong.values()):.0%} of the result. "
        "Tune it again here, or with `target: avx2`, which is correct on every CPU"
    )


def _uses_all_bits(config: OpConfig) -> bool:
    """Sums overflow when neither side leaves a bit free."""
    if config.is_float or config.weight is None:
        return False
    return config.weight.bits == 8 and config.activation.bits == 8
