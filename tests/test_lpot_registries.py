"""The original's lists of what can be named, and strategies of one's own that count batches."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from lpot.adaptor.adaptor import FRAMEWORKS
from lpot.algorithm import ALGORITHMS
from lpot.config import load
from lpot.core.errors import ConfigError, NotAvailableYet
from lpot.core.recipe import OpConfig, OpKey, TensorConfig
from lpot.core.space import TuningSpace
from lpot.objective import OBJECTIVES
from lpot.pruners import PATTERNS, PRUNERS
from lpot.pruners.pattern import pattern_registry
from lpot.pruners.pruner import pruner_registry
from lpot.strategy.user_class import TuneStrategy, recipe_of, strategy_of
from lpot.utils import utility
from lpot.utils.utility import singleton


def test_each_name_of_a_list_can_be_written_in_a_yaml() -> None:
    assert {"pytorch", "tensorflow", "onnxrt_qlinearops"} <= set(FRAMEWORKS)
    for name in FRAMEWORKS:
        assert load({"model": {"framework": name}}).model.framework
    for name in OBJECTIVES:
        assert load({"tuning": {"objective": name}})
    for name in ALGORITHMS:
        assert load({"quantization": {"recipes": {name: True}}})
    for name in PRUNERS:
        pruner = {"prune_type": name, "parameters": {"pattern": PATTERNS[0]}}
        assert load({"pruning": {"approach": {"weight_compression": {"pruners": [pruner]}}}})


def test_what_can_t_be_registered_says_the_way_round() -> None:
    with pytest.raises(NotAvailableYet, match="pattern_lock"):
        pruner_registry(object)
    with pytest.raises(NotAvailableYet, match="tile_pattern_4x8"):
        pattern_registry("mine")


def test_a_singleton_is_made_once() -> None:
    made = singleton(dict)
    assert made(a=1) is made(b=2) == {"a": 1}


FLOAT = OpConfig(TensorConfig("fp32"), None, "float")
SPACE = TuningSpace({OpKey("op", "Conv"): (FLOAT,)}, (50, 200))


@pytest.mark.parametrize(("given", "samples"), [(1, 50), (150, 200), (200, 200), (3.0, 50)])
def test_batches_of_calibration_become_the_nearest_number_of_samples(
    given: float, samples: int
) -> None:
    assert recipe_of(SPACE, {"calib_iteration": given, "op": {}}).samples == samples


@pytest.mark.parametrize("wish", [None, {"calib_iteration": "many"}])
def test_a_wish_that_is_none_is_told(wish: Any) -> None:
    with pytest.raises(ConfigError, match="next_tune_cfg"):
        recipe_of(SPACE, wish)


class SilentTuneStrategy(TuneStrategy):
    def next_tune_cfg(self) -> Any:
        return None


def test_a_strategy_that_does_not_yield_is_told() -> None:
    bare: Any = type("Context", (), {"seed": 0, "baseline": 1.0, "latency": None})()
    with pytest.raises(ConfigError, match="let it yield"):
        next(strategy_of(SilentTuneStrategy)(SPACE, bare))


def test_inner_modules_of_the_original_say_where_to_look() -> None:
    for name in ("lpot.adaptor.pytorch", "lpot.model.torch_model", "lpot.ux"):
        with pytest.raises(ModuleNotFoundError, match=r"docs/migration\.md says what replaces it"):
            importlib.import_module(name)
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from lpot.experimental import nothing")


@pytest.mark.parametrize("name", sorted(utility.INNER))
def test_inner_functions_name_what_replaces_them(name: str) -> None:
    with pytest.raises(ImportError, match=rf"{name} was an inner function of LPOT 1\.x: .{{10}}"):
        getattr(utility, name)
    assert not hasattr(utility, "neither")


def test_elapsed_time_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    @utility.dump_elapsed_time("Pass pruning")
    def double(x: int) -> int:
        return 2 * x

    with caplog.at_level("INFO"):
        assert double(4) == 8
    assert re.search(r"Pass pruning elapsed time: \d+\.\d\d ms", caplog.text)
