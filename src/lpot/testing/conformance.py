"""The promises of a backend. Subclass, give a `case`, and pytest runs them all.

class TestMine(BackendConformance):
    def case(self) -> Case:
        return Case(MyBackend(), my_model, batches, score)
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.backend import Backend, Observations, Traced
from lpot.core.batch import Batch, Inputs, as_array
from lpot.core.errors import LpotError
from lpot.core.loader import copied
from lpot.core.model import Model
from lpot.core.recipe import FP32, Recipe
from lpot.core.results.tensors import contrasts
from lpot.core.space import Capability, TuningSpace, restrict
from lpot.jobs.tune.api import tune


@dataclass(frozen=True, eq=False)
class Case:
    """One backend on one small model with at least two ops that can be low precision.

    `batches` are inputs only; `score` is an eval_func; `tolerance` bounds the relative output
    error of the all-INT8 model; `reopen` gives the arguments for `restore` in a fresh process.
    """

    backend: Backend[Any]
    source: Any
    batches: Sequence[Inputs]
    score: Callable[[Any], float]
    tolerance: float = 0.1
    reopen: str | None = None  # 'pkg.mod:function', called with the path; None: backend.restore

    @cached_property
    def model(self) -> Model:
        loaded: Model = self.backend.load(self.source)
        return loaded

    @cached_property
    def capability(self) -> Capability:
        return self.backend.inspect(self.model)

    @cached_property
    def space(self) -> TuningSpace:
        return restrict(self.capability, ())

    @cached_property
    def observations(self) -> Observations:
        return self.backend.observe(self.model, iter(self.batches), (0,))[0]

    def outputs(self, model: Model) -> list[np.ndarray]:
        found = [self.backend.run(model, inputs) for inputs in self.batches]
        return [np.asarray(output) for outputs in found for output in outputs]

    def build(self, recipe: Recipe) -> Model:
        built: Model = self.backend.build(self.model, recipe, self.observations)
        return built


class BackendConformance:
    """Named for what a user may rely on."""

    _given: Case

    def case(self) -> Case:
        raise NotImplementedError("give the backend, model and data to test")  # pragma: no cover

    @property
    def given(self) -> Case:
        """Made once a class: pytest makes an object a test."""
        cls = type(self)
        if "_given" not in vars(cls):
            cls._given = self.case()
        return cls._given

    def test_float_recipe_changes_nothing_bit_for_bit(self) -> None:
        case = self.given
        every = [key for key in case.space.choices if case.space.float_config(key) is not None]
        built = case.build(case.space.default().with_float(every, FP32))
        for one, other in zip(case.outputs(case.model), case.outputs(built), strict=True):
            np.testing.assert_array_equal(one, other)

    def test_build_leaves_the_source_untouched(self) -> None:
        case = self.given
        before = case.model.fingerprint(), [array.tobytes() for array in case.outputs(case.model)]
        case.outputs(case.build(case.space.default()))
        after = case.model.fingerprint(), [array.tobytes() for array in case.outputs(case.model)]
        assert before == after

    def test_build_is_deterministic(self) -> None:
        case = self.given
        one, other = (case.outputs(case.build(case.space.default())) for _ in range(2))
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)

    def test_low_precision_is_close_but_not_equal(self) -> None:
        case = self.given
        truth = case.outputs(case.model)
        low = case.outputs(case.build(case.space.default()))
        worst = max(
            float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-12))
            for a, b in zip(truth, low, strict=True)
        )
        assert 0 < worst < case.tolerance

    def test_each_op_can_fall_back_alone(self) -> None:
        case = self.given
        start = case.space.default()
        leaders = [key for key in case.space.choices if key not in case.space.followers]
        assert len(leaders) >= 2, "the case needs two ops that can be low precision"
        whole = case.outputs(case.build(start))
        for key in leaders:
            alone = case.outputs(case.build(case.space.with_float(start, [key])))
            assert any(not np.array_equal(a, b) for a, b in zip(whole, alone, strict=True)), (
                f"{key} in float gives what it gives in low precision"
            )

    def test_every_choice_can_be_built(self) -> None:
        case = self.given
        start = case.space.default()
        truth = case.outputs(case.model)
        for key, options in case.space.choices.items():
            for option in options:
                outputs = case.outputs(case.build(start.replace({key: option})))
                assert [o.shape for o in outputs] == [o.shape for o in truth]
                assert all(np.isfinite(output).all() for output in outputs)

    def test_inspect_gives_a_reason_for_every_float_op(self) -> None:
        for info in self.given.capability.ops.values():
            if info.can_be_low:
                assert info.choices[-1].is_float, f"{info.key} has no way back to float"
            else:
                assert info.reason, f"{info.key} stays float without a reason"

    def test_observe_gives_a_snapshot_per_size(self) -> None:
        case = self.given
        first = case.batches[0]
        values = first.values() if isinstance(first, dict) else first
        size = len(next(iter(values)))
        found = case.backend.observe(case.model, iter(case.batches), (size, 0))
        assert found[size].samples == size
        assert found[0].samples > size
        assert set(found[size].tensors) == set(found[0].tensors)

    def test_batches_that_are_kept_are_copies(self) -> None:
        """Loaders may write every batch into the same memory."""
        case = self.given
        first = case.batches[0]
        held: Any = copied(first)

        def reused() -> Iterator[Inputs]:
            yield held
            for value in Batch(held).values:
                value[...] = 0

        kept = case.backend.observe(case.model, reused(), (0,))[0].probe[0]
        truth, found = (case.backend.run(case.model, inputs) for inputs in (first, kept))
        assert all(map(np.array_equal, truth, found))

    def test_rank_is_finite_and_speaks_of_known_ops(self) -> None:
        case = self.given
        found = case.backend.rank(case.model, case.space.default(), case.observations)
        assert found
        assert set(found) <= set(case.space.choices)
        assert all(value >= 0 and np.isfinite(value) for value in found.values())
        assert any(found.values()), "no op does anything to the outputs"

    def test_gains_are_finite_and_speak_of_known_ops(self) -> None:
        case = self.given
        found = case.backend.gains(case.model, case.space.default(), case.observations)
        assert found
        assert set(found) <= set(case.space.choices)
        assert all(np.isfinite(value) for value in found.values())

    def test_advice_is_of_the_same_ops_and_can_be_built(self) -> None:
        case = self.given
        start = case.space.default()
        for recipe in case.backend.advise(case.model, start, case.observations):
            assert recipe != start
            assert set(recipe.ops) == set(start.ops)
            assert all(np.isfinite(output).all() for output in case.outputs(case.build(recipe)))

    def test_tensors_of_both_models_can_be_told_apart(self) -> None:
        case = self.given
        if not isinstance(case.backend, Traced):
            return
        keys = [key for key in case.space.choices if key not in case.space.followers]
        inputs = case.batches[0]
        low = case.build(case.space.default())
        truth = case.outputs(low)
        found = list(contrasts(case.backend.tensors(case.model, low, keys, inputs)))
        seen = {item.op for item in found if item.what == "output"}
        assert seen == set(keys)
        assert any(item.what == "weight" for item in found)
        # Far below: not the same op. Equal: not the low-precision one.
        assert all(5 < item.sqnr < 120 for item in found), [(i.op, i.sqnr) for i in found]
        for before, after in zip(truth, case.outputs(low), strict=True):
            np.testing.assert_array_equal(before, after)  # looking changes nothing
        back = case.build(case.space.default().with_float(case.space.choices, FP32))
        for item in contrasts(case.backend.tensors(case.model, back, keys, inputs)):
            assert item.sqnr > 80, item.op

    def test_saved_model_is_the_same_in_a_fresh_process(self, tmp_path: Path) -> None:
        case = self.given
        built = case.build(case.space.default())
        path = case.backend.save(built, tmp_path / case.backend.best_name)
        np.savez(tmp_path / "expected.npz", *case.outputs(built))
        self.check_in_fresh_process(case, path, tmp_path)

    def check_in_fresh_process(self, case: Case, path: Path, folder: Path) -> None:
        """Restore in a child and compare; override where the framework needs more than the path."""
        names = []
        for index, inputs in enumerate(case.batches):
            items = inputs.items() if isinstance(inputs, dict) else enumerate(inputs)
            file = folder / f"batch{index}.npz"
            arrays: dict[str, Any] = {str(name): np.asarray(value) for name, value in items}
            np.savez(file, **arrays)
            names.append(str(file))
        kind = "dict" if isinstance(case.batches[0], dict) else "tuple"
        opener = case.reopen or ""
        command = [sys.executable, "-c", _CHILD, case.backend.name, opener, str(path), kind]
        done = subprocess.run(
            [*command, str(folder / "expected.npz"), *names], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def test_tunes_end_to_end(self, tmp_path: Path) -> None:
        case = self.given
        result = tune(
            case.source,
            calib=list(case.batches),
            evaluate=case.score,
            goal=0.9,
            really=True,
            framework=case.backend,
            workspace=tmp_path / "workspace",
            measure_speed=False,
        )
        assert result.met is True
        assert result.evaluations >= 2
        assert result.path is not None
        assert result.path.exists()

    def test_a_batch_that_does_not_fit_is_refused_by_name(self) -> None:
        case = self.given
        try:
            case.backend.run(case.model, (np.zeros((1, 1, 1, 1, 1, 1), np.float32),) * 7)
        except LpotError as error:
            assert str(error)
        else:
            raise AssertionError("seven inputs of six dimensions were accepted")

    def test_integers_are_not_taken_for_floats(self) -> None:
        """Pixels that nobody has scaled are refused by every backend, or by none."""
        case = self.given
        values = [as_array(value) for value in Batch(case.batches[0]).values]
        if any(value.dtype.kind != "f" for value in values):
            return
        pixels = [np.zeros(value.shape, np.uint8) for value in values]
        by_name = isinstance(case.batches[0], Mapping)
        try:
            case.backend.run(
                case.model,
                dict(zip(case.batches[0], pixels, strict=True)) if by_name else tuple(pixels),
            )
        except LpotError as error:
            assert "uint8" in str(error)
        else:
            raise AssertionError("uint8 was accepted by a model of floats")


_CHILD = """
import importlib, sys
from pathlib import Path
import numpy as np
from lpot.backends import get_backend
name, opener, path, kind, expected, *batches = sys.argv[1:]
backend = get_backend(name)
if opener:
    module, _, function = opener.partition(":")
    model = getattr(importlib.import_module(module), function)(backend, Path(path))
else:
    model = backend.restore(Path(path))
found = []
for file in batches:
    with np.load(file) as arrays:
        inputs = dict(arrays)
    found += backend.run(model, inputs if kind == "dict" else tuple(inputs.values()))
with np.load(expected) as arrays:
    for one, other in zip(arrays.values(), found, strict=True):
        np.testing.assert_array_equal(one, np.asarray(other))
"""
