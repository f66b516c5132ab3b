"""Training a smaller Keras model after a larger one: soft outputs and intermediate layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lpot.backends.tensorflow.pruning.measure import Values
from lpot.backends.tensorflow.pruning.walk import run
from lpot.backends.tensorflow.pruning.wiring import Wiring, residuals, stages
from lpot.backends.tensorflow.runtime import tf
from lpot.core.compress.labels import fitted
from lpot.core.compress.schedule import warm_cosine
from lpot.core.compress.settings import Distill
from lpot.core.compress.training_data import batches_in
from lpot.core.errors import TrainingError
from lpot.core.progress import tracked

# -- How far a student's outputs are from its teacher's, and from labels.


LEAST = 1e-7  # of a probability whose logarithm is taken


@dataclass(frozen=True)
class Scores:
    """What an output means, told by what the teacher gave for a batch: scores by class, their
    probabilities (Keras classifiers end in a softmax), shares (of a sigmoid), or other values."""

    kind: Literal["scores", "probabilities", "shares", "values"]

    @classmethod
    def of(cls, output: np.ndarray) -> Scores:
        """
        >>> Scores.of(np.array([[0.25, 0.75]])).kind, Scores.of(np.array([[0.5, 0.75]])).kind
        ('probabilities', 'shares')
        >>> Scores.of(np.array([[2.0, -1.0]])).kind, Scores.of(np.array([[2.0]])).kind
        ('scores', 'values')
        """
        if output.dtype.kind != "f" or not output.size:
            return cls("values")
        within = bool(output.min() >= 0 and output.max() <= 1 + 1e-3)
        several = output.ndim > 1 and output.shape[-1] > 1
        if several and within and np.allclose(output.sum(-1), 1, atol=1e-3):
            return cls("probabilities")
        if within:
            return cls("shares")
        return cls("scores" if several and output.ndim == 2 else "values")

    def _scores(self, output: Any) -> Any:
        output = tf.cast(output, tf.float32)
        if self.kind not in ("probabilities", "shares"):
            return output
        found = tf.math.log(tf.maximum(output, LEAST))
        if self.kind == "shares":
            found -= tf.math.log(tf.maximum(1 - output, LEAST))
        return found

    def apart(self, given: Any, wanted: Any, temperature: float) -> Any:
        """Of scores by class the divergence of softened probabilities, of other outputs the
        error."""
        if self.kind in ("values", "shares"):
            return relative_error(given, wanted)
        softened, target = (
            tf.nn.log_softmax(self._scores(one) / temperature) for one in (given, wanted)
        )
        apart = tf.reduce_sum(tf.exp(target) * (target - softened), -1)
        return temperature**2 * tf.reduce_mean(apart)

    def cross_entropy(self, given: Any, labels: Any) -> Any:
        """With class numbers, or with a value for each output."""
        if labels.dtype.is_integer:
            scores = self._scores(given)
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
        if self.kind == "shares":
            return tf.reduce_mean(tf.keras.losses.binary_crossentropy(labels, given))
        if given.shape[-1] == 1:
            return tf.reduce_mean(
                tf.nn.sigmoid_cross_entropy_with_logits(labels, tf.cast(given, tf.float32))
            )
        return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, self._scores(given)))


def relative_error(given: Any, wanted: Any) -> Any:
    given, wanted = tf.cast(given, tf.float32), tf.cast(wanted, tf.float32)
    error = tf.reduce_mean(tf.square(given - wanted))
    return error / tf.maximum(tf.reduce_mean(tf.square(wanted)), 1e-12)


LAYERS = 4  # intermediate outputs that are compared
CLIP = 5.0  # of the gradient's norm
MOMENTUM = 0.9  # of the norms' statistics, at most: a few hundred steps are all they have
PLAIN = 0.85  # of the epochs; after them pictures are as they are

Read = Callable[[Any], tuple[Values, Any]]  # a loader's batch → the model's inputs, and labels


def distill(
    student: Any, teacher: Any, loader: Iterable[Any], read: Read, settings: Distill
) -> None:
    """Train the student in place; its teacher's values stay as they are."""
    student.trainable = True
    norms = _quick_norms(Wiring(student))
    steps = settings.epochs * batches_in(loader)
    draw = np.random.default_rng(settings.seed)
    trainer: _Trainer | None = None
    step = 0
    for epoch in tracked(range(settings.epochs)):
        mixes = settings.mixup and epoch < PLAIN * settings.epochs
        for raw in loader:
            values, labels = read(raw)
            trainer = trainer or _Trainer(student, teacher, values, settings)
            inputs = _mixed(values, draw) if mixes else values
            trainer.step(
                inputs,
                labels if inputs is values else None,
                settings.learning_rate * warm_cosine(step, steps),
            )
            step += 1
    for norm, momentum in norms.items():
        norm.momentum = momentum


class _Trainer:
    """The student, its teacher, and what of them is compared."""

    def __init__(self, student: Any, teacher: Any, values: Values, settings: Distill) -> None:
        self.student, self.teacher, self.settings = student, teacher, settings
        self.names = watched_layers(Wiring(student), Wiring(teacher))
        self.scores = [Scores.of(np.asarray(one)) for one in run(teacher, values)]
        self.optimizer = tf.keras.optimizers.AdamW(
            settings.learning_rate, weight_decay=0.01, epsilon=1e-8
        )
        self.optimizer.build(student.trainable_variables)
        self._gradients = tf.function(self._both, reduce_retracing=True, autograph=False)

    def step(self, values: Values, labels: Any, rate: float) -> None:
        truth = None
        if labels is not None and self.settings.labels > 0:
            truth = tf.constant(fitted(labels, self._shape_of(values), -1))
        loss, gradients = self._gradients(list(values), truth)
        if not math.isfinite(float(loss)):
            raise TrainingError(
                f"the distillation loss became {float(loss)}: lower the learning rate"
            )
        self.optimizer.learning_rate = rate
        variables = self.student.trainable_variables
        # What has no part in the loss has no gradient, and stays as it is.
        known = [pair for pair in zip(gradients, variables, strict=True) if pair[0] is not None]
        self.optimizer.apply_gradients(known)

    def _shape_of(self, values: Values) -> tuple[int, ...]:
        """Of the first output, which says what its labels look like."""
        shape = tuple(self.student.outputs[0].shape[1:])
        if None in shape:
            return tuple(run(self.teacher, values)[0].shape)
        return (int(values[0].shape[0]), *shape)

    def _both(self, values: Sequence[Any], labels: Any) -> tuple[Any, list[Any]]:
        """The loss of one batch, and its gradients as they are applied."""
        large: dict[str, Any] = dict.fromkeys(self.names)
        wanted = run(self.teacher, values, seen=large)
        variables = [each.value for each in self.student.trainable_variables]
        with tf.GradientTape() as tape:
            small: dict[str, Any] = dict.fromkeys(self.names)
            given = run(self.student, values, training=True, seen=small)
            loss = self._loss(given, wanted, small, large, labels)
        found = tape.gradient(loss, variables)
        clipped = iter(tf.clip_by_global_norm([one for one in found if one is not None], CLIP)[0])
        return loss, [None if one is None else next(clipped) for one in found]

    def _loss(
        self,
        given: Sequence[Any],
        wanted: Sequence[Any],
        small: Mapping[str, Any],
        large: Mapping[str, Any],
        labels: Any,
    ) -> Any:
        settings = self.settings
        # Where the width of a layer's output was pruned there is nothing to compare with.
        alike = [n for n in self.names if small[n].output.shape[1:] == large[n].output.shape[1:]]
        terms = []
        # Without the last layer among them, nothing but the outputs reaches those behind.
        whole = settings.features > 0 and alike != [] and alike[-1] == self.names[-1]
        if settings.logits or not (labels is not None or whole):
            soft = [
                scores.apart(one, two, settings.temperature)
                for scores, one, two in zip(self.scores, given, wanted, strict=True)
                if one.dtype.is_floating
            ]
            terms.append((settings.logits or 1.0) * tf.add_n(soft))
        for name in alike if settings.features else []:
            error = relative_error(small[name].output, large[name].output)
            terms.append(settings.features / len(alike) * error)
        if labels is not None:
            terms.append(settings.labels * self.scores[0].cross_entropy(given[0], labels))
        return tf.add_n(terms)


def watched_layers(small: Wiring, large: Wiring) -> list[str]:
    """Ends of residual blocks that both have, evenly spread: those whose outputs are compared; in
    a net without them, poolings."""
    ends = residuals(large)
    # Before blocks that were removed it is the last one's output that counts; before the first that
    # is left, nothing could give it.
    gone = [name not in small.steps for name in ends]
    found = [
        end
        for place, end in enumerate(ends.values())
        if not all(gone[: place + 1])
        and not any(gone[place + 1 : place + 2])
        and end in small.steps
    ]
    found = found or [name for name in stages(large) if name in small.steps]
    alone = [name for name in found if name not in large.twice]
    places = {(index + 1) * len(alone) // LAYERS - 1 for index in range(LAYERS)}
    return [alone[place] for place in sorted(places) if place >= 0]


def _quick_norms(wiring: Wiring) -> dict[Any, float]:
    """Norms whose statistics follow quickly enough, and the momenta that they had."""
    kind = tf.keras.layers.BatchNormalization
    norms = [step.op for step in wiring.steps.values() if isinstance(step.op, kind)]
    found = {norm: norm.momentum for norm in norms}
    for norm, momentum in found.items():
        norm.momentum = min(momentum, MOMENTUM)
    return found


def _mixed(values: Values, draw: np.random.Generator) -> Values:
    """Pictures blended with others of the batch, with parts of others put in, or as they are, each
    as often; anything else as it is.

    Zhang et al., "mixup: Beyond Empirical Risk Minimization" (2018); Yun et al., "CutMix" (2019).
    """
    value, way = values[0], int(draw.integers(3))
    if len(values) != 1 or value.shape.rank != 4 or not value.dtype.is_floating or way == 0:
        return values
    share = draw.random((int(value.shape[0]), 1, 1, 1)) if way == 1 else _window(value, draw)
    weight = tf.constant(share, value.dtype)
    return [weight * value + (1 - weight) * value[::-1]]


def _window(pictures: Any, draw: np.random.Generator) -> np.ndarray:
    """0 in a part of random size and place, 1 around it."""
    high, wide = (int(size) for size in pictures.shape[1:3])
    side = float(draw.random()) ** 0.5
    rows, columns = max(1, int(side * high)), max(1, int(side * wide))
    top = int(draw.integers(high - rows + 1))
    left = int(draw.integers(wide - columns + 1))
    found = np.ones((1, high, wide, 1))
    found[:, top : top + rows, left : left + columns] = 0.0
    return found
