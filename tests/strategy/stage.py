"""A stage for strategies: spaces made by hand, and trials fed by a rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.space import TuningSpace
from lpot.core.strategy import Strategy, StrategyContext
from lpot.core.trial import Score, State, Trial
from lpot.strategy import as_policy

INT8 = OpConfig(TensorConfig("uint8", "asym"), TensorConfig("int8", "sym"))
KL = OpConfig(TensorConfig("uint8", "asym", algorithm="kl"), TensorConfig("int8", "sym"))
BF16 = OpConfig(TensorConfig("bf16"), None, "float")


def op(number: int, kind: str = "Conv") -> OpKey:
    return OpKey(f"op{number:02}", kind)


def space(count: int, *options: OpConfig, samples: tuple[int, ...] = (0,)) -> TuningSpace:
    return TuningSpace({op(i): options or (INT8, FP32) for i in range(count)}, samples)


SETTLE = {"settle": True}


def bound(count: int) -> int:
    """Trials within 2 + log2(ops) evaluations, the baseline being one."""
    return 1 + math.ceil(math.log2(count))


def needs(guilty: set[int]) -> Callable[[Recipe], bool]:
    """The bar holds when these ops are in float."""
    names = {op(i).name for i in guilty}
    return lambda recipe: names <= {key.name for key in recipe.float_ops}


def sensitivity(count: int, guilty: set[int]) -> Callable[[], dict[OpKey, float]]:
    return lambda: {op(i): 1.0 if i in guilty else 1e-5 / (i + 1) for i in range(count)}


def drive(
    strategy: Strategy,
    where: TuningSpace,
    passes: Callable[[Recipe], bool],
    limit: int = 1000,
    score: Callable[[Recipe], float] | None = None,
    measured: float | None = None,
    **context: object,
) -> list[Recipe]:
    """Run a strategy to its end, or to `limit` recipes; what it proposed, in order."""
    return [
        trial.recipe for trial in trials(strategy, where, passes, limit, score, measured, **context)
    ]


def trials(
    strategy: Strategy,
    where: TuningSpace,
    passes: Callable[[Recipe], bool],
    limit: int = 1000,
    score: Callable[[Recipe], float] | None = None,
    measured: float | None = None,
    **context: object,
) -> list[Trial]:
    knowledge = StrategyContext(**{"baseline": 1.0, **context})  # type: ignore[arg-type]
    proposals = strategy(where, knowledge)
    seen: list[Trial] = []
    batch: Sequence[Recipe] | None = next(proposals, None)
    while batch and len(seen) < limit:
        fed = [
            _trial(len(seen) + n, recipe, passes, score, measured)
            for n, recipe in enumerate(batch, 1)
        ]
        seen += fed
        # As the loop does: a strategy that does not settle is stopped at its first success.
        goes_on = knowledge.budget or as_policy(strategy).goes_on(knowledge.options.get("settle"))
        if any(t.met for t in fed) and not goes_on:
            break
        try:
            batch = proposals.send(fed)
        except StopIteration:
            break
    return seen


def _trial(
    number: int,
    recipe: Recipe,
    passes: Callable[[Recipe], bool],
    score: Callable[[Recipe], float] | None,
    measured: float | None,
) -> Trial:
    met = passes(recipe)
    missed = 0.6 if score is None else score(recipe)
    return Trial(number, recipe, State.DONE, Score(1.0 if met else missed, latency=measured), met)


def best(seen: list[Recipe], passes: Callable[[Recipe], bool]) -> set[str]:
    """The float ops of the recipe with fewest of them among those that pass."""
    held = [recipe for recipe in seen if passes(recipe)]
    return {key.name for key in min(held, key=lambda r: len(r.float_ops)).float_ops}
