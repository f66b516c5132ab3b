"""What can be known of a model's ops without labels, for strategies: found when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

from lpot.core.backend import Differentiable, Observations
from lpot.core.errors import LpotError
from lpot.core.model import Model
from lpot.core.ptq.sensitivity import errors, unshifted
from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import StrategyContext
from lpot.jobs.runtime.starts import starts
from lpot.jobs.tune.advice import advised
from lpot.jobs.tune.job import Job

Verb = Callable[[Model, Recipe, Observations], dict[OpKey, float]]


def context(insight: Insight) -> StrategyContext:
    """Everything but the baseline, which is not known yet."""
    config = insight.job.config.tuning
    executor = config.executor
    return StrategyContext(
        workers=1 if executor.name == "serial" else executor.workers,
        seed=config.random_seed,
        starts=partial(starts, insight.job),
        ranking=cache(insight.ranking),
        unshifted=cache(insight.unshifted),
        options=config.strategy.options,
        rest=insight.rest,
        curvature=cache(insight.curvature),
        gains=cache(insight.gains),
        tradeoffs=insight.job.tradeoffs,
    )


class Insight:
    """Asks the backend; whatever it can't tell is left empty, and said.

    It belongs to one search, and keeps what the report will tell: the space with the advice in it,
    and each op's sensitivity once a strategy has asked for it.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.space = job.space
        self.sensitivity: dict[OpKey, float] = {}

    def prefer(self, space: TuningSpace) -> TuningSpace:
        """The space with the free choices first that bring the outputs nearer to FP32."""
        self.space = advised(self.job, space)
        return self.space

    def ranking(self) -> dict[OpKey, float]:
        """Sensitivity by op, from calibration data alone."""
        phase = "ranking ops by their sensitivity"
        self.sensitivity = self._ask("rank", self.job.backend.rank, phase)
        return self.sensitivity

    def unshifted(self) -> dict[OpKey, float]:
        """Sensitivity to what labels of classes can see, where that may be something else."""
        phase = "comparing the outputs less what their scores have in common"
        return self._ask("unshifted", partial(unshifted, self.job.backend), phase)

    def gains(self) -> dict[OpKey, float]:
        """Seconds that each op saves in low precision; negative where it loses."""
        return self._ask("gains", self.job.backend.gains, "measuring what each op gains")

    def curvature(self) -> dict[OpKey, float]:
        backend = self.job.backend
        if not isinstance(backend, Differentiable):
            return {}
        return self._ask("curvature", backend.curvature, "computing the curvature of the loss")

    def rest(self, recipe: Recipe) -> Mapping[OpKey, float]:
        """The error that remains when one more op of the recipe is kept in float, op by op."""
        return self.job.findings.numbers("rest", recipe, lambda: self._find_rest(recipe))

    def _find_rest(self, recipe: Recipe) -> dict[OpKey, float]:
        job = self.job
        observations = job.observe(recipe.samples)
        if observations is None or not observations.probe:
            return {}
        batches = int(job.config.tuning.strategy.confidence_batches)
        probe = observations.probe[:batches]
        job.listener.phase("ranking the ops still in low precision")
        leaders = (key for key in recipe.low_ops if key not in self.space.followers)
        one_back = {key: self.space.with_float(recipe, [key]) for key in leaders}
        able = {key: other for key, other in one_back.items() if other != recipe}
        return errors(job.backend, job.model, able, observations, probe)

    def _ask(self, name: str, verb: Verb, phase: str) -> dict[OpKey, float]:
        recipe = self.space.default()
        return self.job.findings.numbers(
            name, recipe, lambda: self._find(name, verb, phase, recipe)
        )

    def _find(self, name: str, verb: Verb, phase: str, recipe: Recipe) -> dict[OpKey, float]:
        job = self.job
        observations = job.observe(recipe.samples)
        if observations is None:
            return {}
        job.listener.phase(phase)
        try:
            return verb(job.model, recipe, observations)
        except LpotError as error:
            job.add_note(f"{name}: {error}; the search continues without it")
            return {}
