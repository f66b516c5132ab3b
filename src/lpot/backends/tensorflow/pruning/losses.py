"""How far a student's outputs are from its teacher's, and from labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lpot.backends.tensorflow.runtime import tf

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
