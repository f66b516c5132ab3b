"""16-bit floating point first; then the fewest of the most sensitive ops back to FP32."""

from __future__ import annotations

from lpot.core.errors import ConfigError
from lpot.core.recipe import FP32, OpConfig, OpKey
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, policy
from lpot.strategy.fewest import fewest_float, most_of_fewest

HALVES = ("bf16", "fp16")


class _Floats(TuningSpace):
    """A space of floats: the way back is the widest of them."""

    def float_config(self, key: OpKey) -> OpConfig | None:
        return FP32 if FP32 in self.choices[key] else None


def check(space: TuningSpace) -> None:
    """Refuse a space without 16-bit floats."""
    if not any(map(_has_half, space.choices.values())):
        raise ConfigError(
            "no op of this model can run in bf16 or fp16 here: 16-bit floats are offered where the "
            "CPU has instructions for them; use basic, which quantizes to INT8",
            path="tuning.strategy.name",
        )


@policy(most=most_of_fewest, check=check)
def auto_mixed_precision(space: TuningSpace, context: StrategyContext) -> Proposals:
    """`basic` on the 16-bit and 32-bit floats of the space; no integers."""
    check(space)
    floats = {
        key: tuple(option for option in options if option.is_float) or (FP32,)
        for key, options in space.choices.items()
    }
    still = frozenset(key for key, options in floats.items() if not _has_half(options))
    yield from fewest_float(_Floats(floats, space.samples, still, repairs=space.repairs), context)


def _has_half(options: tuple[OpConfig, ...]) -> bool:
    return any(option.precision in HALVES for option in options)
