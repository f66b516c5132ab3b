"""MAE, MSE, RMSE, Loss, Pearson and Spearman against scikit-learn and scipy."""

from __future__ import annotations

import numpy as np
import pytest

from lpot.core.errors import EvaluationError
from lpot.metric import get_metric

sklearn_metrics = pytest.importorskip("sklearn.metrics")
stats = pytest.importorskip("scipy.stats")


def feed(metric, preds, labels, size=7):
    for at in range(0, len(labels), size):
        metric.update(preds[at : at + size], labels[at : at + size])
    return metric.result()


ORACLES = {
    "MAE": sklearn_metrics.mean_absolute_error,
    "MSE": sklearn_metrics.mean_squared_error,
    "RMSE": sklearn_metrics.root_mean_squared_error,
}


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 3), (50, 2, 4)])
def test_errors_equal_sklearn(name, shape):
    rng = np.random.default_rng(0)
    preds, labels = rng.normal(size=shape).astype(np.float32), rng.normal(size=shape)
    wanted = ORACLES[name](labels.reshape(-1), preds.reshape(-1).astype(np.float64))
    metric = get_metric(name)
    assert feed(metric, preds, labels) == pytest.approx(wanted, rel=1e-12)
    assert metric.seen == 50 and not metric.higher_is_better


@pytest.mark.parametrize("name", ORACLES)
def test_a_column_fits_a_row(name):
    preds, labels = np.arange(6.0)[:, None], np.arange(6.0) + 1
    assert feed(get_metric(name), preds, labels) == 1.0


def test_several_outputs_against_the_fp32_outputs():
    rng = np.random.default_rng(1)
    new = [rng.normal(size=(8, 3)), rng.normal(size=(8, 2, 5))]
    old = [rng.normal(size=(8, 3)), rng.normal(size=(8, 2, 5))]
    flat = [np.concatenate([part.reshape(-1) for part in both]) for both in (new, old)]
    metric = get_metric("MSE", compare_label=False)
    metric.update(new, old)
    assert metric.compare_label is False
    assert metric.result() == pytest.approx(np.mean((flat[0] - flat[1]) ** 2))
    assert metric.seen == 8 and metric.is_mean
    one = get_metric("MSE", compare_label=False)
    one.update([new[0]], [old[0]])
    assert one.seen == 8
    assert one.result() == pytest.approx(np.mean((new[0] - old[0]) ** 2))


def test_samples_of_several_sizes_are_no_mean_over_samples():
    metric = get_metric("MAE")
    metric.update([np.zeros(2), np.zeros(6)], [np.ones(2), np.full(6, 3.0)])
    assert metric.result() == pytest.approx((2 * 1 + 6 * 3) / 8)
    assert not metric.is_mean and metric.seen == 2


def test_error_faults():
    metric = get_metric("MSE")
    metric.update([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(EvaluationError, match="'MSE', sample 3: the prediction is infinite"):
        metric.update([1.0, np.inf], [1.0, 2.0])
    with pytest.raises(EvaluationError, match="sample 2: the label is NaN"):
        metric.update([1.0], [np.nan])
    with pytest.raises(EvaluationError, match=r"\(2, 3\).*\(2, 2\)"):
        metric.update(np.zeros((2, 3)), np.zeros((2, 2)))
    assert metric.result() == 0.0


def test_loss():
    metric = get_metric("Loss")
    metric.update(np.array([[1.0], [3.0]]), np.zeros(2))
    metric.update(np.float32(5.0), np.zeros(4))  # the mean of a batch of four
    assert metric.result() == pytest.approx((1 + 3 + 4 * 5) / 6)
    metric.reset()
    metric.update(np.array([[1.0, 1.0], [3.0, 1.0]]))
    assert metric.result() == 3.0
    with pytest.raises(EvaluationError, match="sample 2: the loss is NaN"):
        metric.update([np.nan], [0])


def test_correlations_equal_scipy():
    rng = np.random.default_rng(2)
    truth = rng.integers(0, 6, 300).astype(float)  # ties
    guess = truth + rng.normal(size=300) * 2 + 1e6  # far from zero: digits must not be lost
    assert feed(get_metric("Pearson"), guess[:, None], truth) == pytest.approx(
        stats.pearsonr(guess, truth).statistic, abs=1e-9
    )
    assert feed(get_metric("Spearman"), guess, truth) == pytest.approx(
        stats.spearmanr(guess, truth).statistic, abs=1e-12
    )


@pytest.mark.parametrize("name", ["Pearson", "Spearman"])
def test_correlation_of_a_constant_is_refused(name):
    metric = get_metric(name)
    metric.update(np.ones(5), np.arange(5))
    with pytest.raises(EvaluationError, match="not defined"):
        metric.result()
    with pytest.raises(EvaluationError, match="one number per sample"):
        metric.update(np.ones((5, 2)), np.arange(5))
    with pytest.raises(EvaluationError, match="sample 6: the prediction is infinite"):
        metric.update([0.0, np.inf], [0, 1])
