"""Calibration loaders of every kind, and of no kind."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lpot
import onnx_models
from lpot.core.errors import CalibrationError, ConfigError, DataError, EvaluationError

X = np.random.default_rng(0).standard_normal((12, 8)).astype(np.float32)
BATCHES = [X[0:4], X[4:8], X[8:12]]


def digest(result: lpot.Result) -> bytes:
    assert result.path is not None
    return result.path.read_bytes()


class Sized:
    """What the tutorials write: `batch_size` and `__iter__`."""

    batch_size = 4

    def __iter__(self) -> Iterator[Any]:
        return ((batch, np.zeros(4)) for batch in BATCHES)


class Bare:
    """No length, no batch_size, no labels."""

    def __iter__(self) -> Iterator[Any]:
        return ([batch] for batch in BATCHES)


class Indexed:
    """Old sequence protocol: `__getitem__` alone, IndexError at the end."""

    def __getitem__(self, index: int) -> Any:
        return BATCHES[index]


class Measured(Indexed):
    """`__getitem__` never ends, `__len__` says when."""

    def __getitem__(self, index: int) -> Any:
        return BATCHES[index % 3]

    def __len__(self) -> int:
        return 3


class Circular:
    """A length, and an iterator that goes round for ever."""

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Any]:
        return itertools.cycle(BATCHES)


class Reused:
    """One buffer, filled again for each batch; no length."""

    def __iter__(self) -> Iterator[Any]:
        buffer = np.empty((4, 8), np.float32)
        for batch in BATCHES:
            buffer[:] = batch
            yield buffer
        buffer[:] = np.nan


class Unsized(Bare):
    def __len__(self) -> int:
        raise TypeError("the length of this loader is not known")


class Strange:
    """A tensor as torch has it: `detach`, `cpu`, `numpy`, and a dtype numpy does not know."""

    dtype = "torch.bfloat16"

    def __init__(self, array: np.ndarray, exact: bool = False) -> None:
        self.array, self.exact = array, exact
        self.shape = array.shape

    def detach(self) -> Strange:
        return self

    cpu = clone = detach

    def float(self) -> Strange:
        return Strange(self.array, exact=True)

    def numpy(self) -> np.ndarray:
        if not self.exact:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array


KINDS: dict[str, Callable[[], Any]] = {
    "arrays": lambda: BATCHES,
    "one-item lists": lambda: [[batch] for batch in BATCHES],
    "one-item tuples": lambda: [(batch,) for batch in BATCHES],
    "(inputs, labels)": lambda: [(batch, np.zeros(4)) for batch in BATCHES],
    "[inputs, labels]": lambda: [[batch, [0, 1, 2, 3]] for batch in BATCHES],
    "([inputs], labels)": lambda: [([batch], np.zeros(4)) for batch in BATCHES],
    "dicts": lambda: [{"x": batch} for batch in BATCHES],
    "dicts with labels": lambda: [{"x": batch, "label": 1} for batch in BATCHES],
    "dicts with more than needed": lambda: [{"x": batch, "extra": 1} for batch in BATCHES],
    "(dict, labels)": lambda: [({"x": batch}, 1) for batch in BATCHES],
    "float64": lambda: [batch.astype(np.float64) for batch in BATCHES],
    "views with strides": lambda: [np.repeat(batch, 2, axis=1)[:, ::2] for batch in BATCHES],
    "nested lists": lambda: [(batch.tolist(),) for batch in BATCHES],
    "a stacked array": lambda: np.stack(BATCHES),
    "batches of one": lambda: [batch[i : i + 1] for batch in BATCHES for i in range(4)],
    "a short last batch": lambda: [X[0:5], X[5:10], X[10:12]],
    "an empty last batch": lambda: [*BATCHES, X[:0]],
    "a generator": lambda: (batch for batch in BATCHES),
    "an iterator": lambda: iter(BATCHES),
    "a function": lambda: lambda: iter(BATCHES),
    "batch_size and labels": Sized,
    "neither": Bare,
    "__getitem__ alone": Indexed,
    "__getitem__ and __len__": Measured,
    "a length and no end": Circular,
    "no length at all": Unsized,
    "one buffer": Reused,
    "bfloat16 tensors": lambda: [Strange(batch) for batch in BATCHES],
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("expected")
    result = lpot.tune(onnx_models.mlp(), BATCHES, workspace=folder, measure_speed=False)
    return digest(result)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_data_in_any_form_give_the_same_model(
    tune: Any, expected: bytes, kind: str
) -> None:
    result = tune(calib=KINDS[kind]())
    assert digest(result) == expected


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ([], "empty"),
        (iter(()), "empty.*exhausted"),
        (list, "empty"),
        ("data.npy", "is a str"),
        ({"x": X}, "is a dict"),
        (7, "is an int.*__iter__"),
        ([()], "empty batch"),
        ([X[0]], "batch dimension missing"),
        ([X[:, :7]], r"expects shape \[n, 8\], got \[12, 7\]"),
        ([X.astype(np.uint8)], "expects float32, got uint8.*scaling"),
        ([X.astype(np.int64)], "expects float32, got int64"),
        ([X.astype(str)], "expects float32, got str"),
        ([X.astype(complex)], "expects float32, got complex128"),
        ([None], "expects float32, got object|calibration"),
        ([(X, X, X)], "batch of 3 items, but the model has 1 input"),
        ([{"y": X}], r"missing \['x'\]"),
        ([([[1.0], [1.0, 2.0]],)], "not one array"),
        ([X[:0]], "first calibration batch is empty"),
    ],
)
def test_what_can_not_be_used_is_refused_before_any_evaluation(
    tune: Any, loader: Any, message: str
) -> None:
    calls = []
    with pytest.raises(CalibrationError, match=message):
        tune(calib=loader, evaluate=lambda model: calls.append(model) or 1.0)
    assert calls == []


def test_static_without_data_is_refused_and_dynamic_needs_none(tmp_path: Any) -> None:
    model = onnx_models.mlp()
    options: dict[str, Any] = {"workspace": tmp_path, "measure_speed": False}
    with pytest.raises(CalibrationError, match="static quantization needs calibration data"):
        lpot.tune(model, None, lambda model: 1.0, **options)
    assert lpot.tune(model, None, lambda model: 1.0, approach="dynamic", **options).met is True


@pytest.mark.parametrize("where", [0, 1, 2])
def test_nan_in_the_images_is_told_by_the_tensor(tune: Any, where: int) -> None:
    broken = [batch.copy() for batch in BATCHES]
    broken[where][2, 3] = np.nan
    with pytest.raises(CalibrationError, match=r"tensor 'x' holds NaN.*calibration data"):
        tune(calib=broken, evaluate=lambda model: 1.0)


def test_infinity_in_the_images_is_named_as_the_cause(tune: Any) -> None:
    wild = [batch.copy() for batch in BATCHES]
    wild[1][0, 0] = np.inf
    with pytest.raises(CalibrationError, match="begins with infinity in 'x'"):
        tune(calib=wild, evaluate=lambda model: 1.0)


def test_a_loader_that_fails_later_ends_the_run_with_its_own_error(tune: Any) -> None:
    def loader() -> Iterator[np.ndarray]:
        yield BATCHES[0]
        raise OSError("disk on fire")

    with pytest.raises(OSError, match="disk on fire"):
        tune(calib=loader(), evaluate=lambda model: 1.0)


def test_a_wrong_batch_later_on_ends_the_run_too(tune: Any) -> None:
    with pytest.raises(DataError, match=r"expects shape \[n, 8\], got \[4, 5\]"):
        tune(calib=[*BATCHES, np.zeros((4, 5), np.float32)], evaluate=lambda model: 1.0)


@pytest.mark.parametrize(
    "endless",
    [lambda: itertools.cycle(BATCHES), lambda: (X[i % 12 : i % 12 + 1] for i in itertools.count())],
)
def test_an_endless_loader_is_cut_and_it_is_said(tune: Any, endless: Callable[[], Any]) -> None:
    result = tune(calib=endless())
    assert any("did not end" in note and "100 are used" in note for note in result.notes)


def test_an_endless_loader_is_bounded_by_sampling_size(tune: Any) -> None:
    drawn = []

    def loader() -> Iterator[np.ndarray]:
        for batch in itertools.cycle(BATCHES):
            drawn.append(batch)
            yield batch

    result = tune(calib=loader(), sampling_size=10)
    assert len(drawn) <= 4
    assert not any("did not end" in note for note in result.notes)


def test_endless_empty_batches_end(tune: Any) -> None:
    empties = itertools.chain(BATCHES, itertools.repeat(X[:0]))
    assert digest(tune(calib=empties))


def test_more_samples_than_there_are_is_said(tune: Any) -> None:
    result = tune(calib=BATCHES, sampling_size=1000)
    assert any("sampling_size is 1000, but the loader has only 12" in note for note in result.notes)


@pytest.mark.parametrize("wrong", [0, -5])
def test_no_samples_at_all_is_refused(tune: Any, wrong: int) -> None:
    with pytest.raises(ConfigError, match="sampling_size"):
        tune(calib=BATCHES, sampling_size=wrong)


@pytest.mark.parametrize("sizes", ["4, 12", [4, 12], "4 12"])
def test_a_list_of_sizes_is_tried_one_after_the_other(tune: Any, sizes: Any) -> None:
    config = {"quantization": {"calibration": {"sampling_size": sizes}}}
    scores = iter([1.0, 0.5, 0.999])
    result = tune(calib=BATCHES, evaluate=lambda model: next(scores), config=config)
    assert [trial.recipe.samples for trial in result.trials] == [4, 12]
    assert result.recipe.samples == 12


def test_a_fixed_batch_leaves_out_the_short_last_one(tune: Any) -> None:
    model = onnx_models.cnn(batch=4)
    image = np.random.default_rng(0).standard_normal((10, 3, 8, 8)).astype(np.float32)
    result = tune(model, calib=[image[0:4], image[4:8], image[8:10]])
    assert any("1 calibration batch(es) were skipped" in note for note in result.notes)
    whole = tune(model, calib=[image[0:4], image[4:8]], new_run=True)
    assert digest(result) == digest(whole)


def test_a_fixed_batch_that_no_batch_fits_is_refused(tune: Any) -> None:
    image = np.zeros((3, 3, 8, 8), np.float32)
    with pytest.raises(CalibrationError, match=r"expects shape \[4, 3, 8, 8\], got \[3, 3, 8, 8\]"):
        tune(onnx_models.cnn(batch=4), calib=[image])


def two_inputs() -> list[tuple[np.ndarray, np.ndarray]]:
    return [(feed["ids"], feed["mask"]) for feed in onnx_models.feeds(onnx_models.transformer())]


TWO: dict[str, Callable[[Any, Any], Any]] = {
    "(ids, mask)": lambda ids, mask: (ids, mask),
    "(ids, mask, label)": lambda ids, mask: (ids, mask, 0),
    "((ids, mask), label)": lambda ids, mask: ((ids, mask), np.zeros(8)),
    "dict": lambda ids, mask: {"mask": mask, "ids": ids},
    "(dict, label)": lambda ids, mask: ({"mask": mask, "ids": ids}, 0),
    "int32 ids": lambda ids, mask: (ids.astype(np.int32), mask),
}


@pytest.mark.parametrize("form", TWO)
def test_batches_for_two_inputs(tune: Any, form: str) -> None:
    model = onnx_models.transformer()
    plain = tune(model, calib=two_inputs(), new_run=True)
    other = tune(model, calib=[TWO[form](*pair) for pair in two_inputs()], new_run=True)
    assert digest(other) == digest(plain)


def test_where_both_readings_fit_the_second_item_is_the_label_and_it_is_said(tune: Any) -> None:
    model = onnx_models.transformer()
    batches = [([ids, mask], np.zeros(8)) for ids, mask in two_inputs()]
    result = tune(model, calib=batches)
    assert any("taken as labels" in note for note in result.notes)


def test_too_few_items_for_two_inputs(tune: Any) -> None:
    model = onnx_models.transformer()
    with pytest.raises(CalibrationError, match=r"1 items, but the model has 2 input\(s\)"):
        tune(model, calib=[(ids,) for ids, _ in two_inputs()])
    with pytest.raises(CalibrationError, match="missing \\['mask'\\]"):
        tune(model, calib=[{"ids": ids} for ids, _ in two_inputs()])


def test_the_loader_is_read_once_after_a_first_look_however_many_trials(tune: Any) -> None:
    reads = []

    class Counted:
        def __iter__(self) -> Iterator[Any]:
            reads.append(1)
            return iter(BATCHES)

    scores = itertools.chain([1.0], itertools.repeat(0.5))
    result = tune(calib=Counted(), evaluate=lambda m: next(scores), strategy="random", max_trials=4)
    assert len(result.trials) == 4
    assert len(reads) == 2


def test_evaluation_errors_are_not_mistaken_for_calibration(tune: Any) -> None:
    with pytest.raises(EvaluationError):
        tune(calib=BATCHES, evaluate=lambda model: None)
