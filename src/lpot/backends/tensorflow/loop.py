"""A training loop for Keras models, made from the `train` section of pruning or distillation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from lpot.backends.tensorflow.prune import handed_out
from lpot.backends.tensorflow.resume import KerasTraining
from lpot.backends.tensorflow.runtime import tf
from lpot.core.batch import Inputs, split
from lpot.core.compress.labels import fitted
from lpot.core.compress.resume import TrainingFile
from lpot.core.compress.schedule import learning_rate_factor
from lpot.core.compress.trainers import (
    CRITERIONS,
    OPTIMIZERS,
    Named,
    check_alike,
    check_learns,
    check_loss,
)
from lpot.core.errors import ConfigError, DataError, UnsupportedModel, a_kind, first_line
from lpot.core.progress import tracked

TEACHES = "KnowledgeDistillationLoss"


def hooked_loop(
    section: Mapping[str, Any],
    loader: Iterable[Any],
    hooks: Any,
    teacher: Any = None,
    file: TrainingFile | None = None,
) -> Callable[[Any], None]:
    """Batch by batch, with the original's hooks around them; `file` keeps the training.

    Where the loss knows a teacher and none is given, that is the model as it was before.
    """
    if teacher is not None and not isinstance(teacher, tf.keras.Model):
        raise UnsupportedModel(f"the teacher is {a_kind(teacher)}: give a Keras model")
    provide()
    ((name, options),) = section["optimizer"].items()
    kind, given = OPTIMIZERS.make("tensorflow", name, options, tf.keras.optimizers.Optimizer)
    factor = learning_rate_factor(section, loader)
    loss, how = _criterion(section)

    def train(model: Any) -> None:
        check_learns(bool(model.trainable_variables), "model.trainable = True")
        optimizer = _made(name, kind, given, "optimizer")
        criterion = _made(loss, how[0], how[1], "criterion")
        if loss == TEACHES:
            criterion.teacher_model = copied(model) if teacher is None else teacher
        rate = float(optimizer.learning_rate)
        training = KerasTraining(model, optimizer)
        first = section.get("start_epoch", 0)
        first = first if file is None else file.begin(first, training)
        hooks.pre_epoch_begin()
        for epoch in tracked(range(first, section["end_epoch"])):
            hooks.on_epoch_begin(epoch)
            for number, raw in enumerate(islice(loader, section.get("iteration"))):
                hooks.on_batch_begin(number)
                if factor is not None:
                    optimizer.learning_rate = rate * factor(epoch, number)
                found, gradients = _gradients(model, criterion, raw)
                check_loss(found, epoch, number)
                with handed_out(model, gradients):
                    hooks.on_post_grad()
                pairs = ((gradients[id(each)], each) for each in model.trainable_variables)
                optimizer.apply_gradients(pairs)
                hooks.on_batch_end()
            hooks.on_epoch_end()
            if file is not None:
                file.ended(epoch, training, last=epoch + 1 == section["end_epoch"])
        hooks.post_epoch_end()

    return train


def _criterion(section: Mapping[str, Any]) -> tuple[str, tuple[Any, dict[str, Any]]]:
    ((name, options),) = section["criterion"].items()
    return name, CRITERIONS.make("tensorflow", name, options, tf.keras.losses.Loss)


def _made(name: str, kind: Any, given: Mapping[str, Any], what: str) -> Any:
    try:
        return kind(**given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} does not accept its options: {error}", what) from error


def _gradients(model: Any, criterion: Any, raw: Any) -> tuple[float, dict[int, Any]]:
    """The loss of one batch, and its gradients by variable."""
    batch = split(raw, None)
    labels = batch.labels
    if isinstance(criterion, KnowledgeDistillationLoss):
        criterion.teacher_model_forward(called(criterion.teacher_model, batch.inputs, False))
    elif labels is None:
        raise DataError("the training data has no labels: it must yield (inputs, labels)")
    with tf.GradientTape() as tape:
        output = called(model, batch.inputs, True)
        if not isinstance(criterion, KnowledgeDistillationLoss):  # which may need none
            labels = fitted(labels, output.shape, -1)
        loss = tf.reduce_mean(criterion(labels, output))
    variables = model.trainable_variables
    found = tape.gradient(loss, variables)
    return float(loss), {id(each): one for each, one in zip(variables, found, strict=True)}


def called(model: Any, inputs: Inputs, training: bool) -> Any:
    """The first of the model's outputs."""
    if isinstance(inputs, Mapping):
        output = model(dict(inputs), training=training)
    else:
        output = model(inputs[0] if len(inputs) == 1 else list(inputs), training=training)
    while isinstance(output, Mapping | list | tuple):
        output = next(iter(output.values() if isinstance(output, Mapping) else output))
    return output


def copied(model: Any) -> Any:
    try:
        twin = tf.keras.models.clone_model(model)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise ConfigError(
            f"Keras can't copy {model.name!r}, which is to be its own teacher: train by "
            f"CrossEntropyLoss, or distill from a second copy of it ({first_line(error)})",
            f"criterion.{TEACHES}",
        ) from error
    twin.set_weights(model.get_weights())
    return twin


def _scores(output: Any) -> Any:
    """Logarithms of probabilities, of models that end in a softmax and those that give scores."""
    sums = np.asarray(tf.reduce_sum(output, -1))
    if np.allclose(sums, 1, atol=1e-3) and float(tf.reduce_min(output)) >= 0:
        return tf.math.log(tf.maximum(output, 1e-7))
    return tf.nn.log_softmax(output)


class CrossEntropyLoss:
    """Of class numbers."""

    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = reduction

    def __call__(self, labels: Any, output: Any) -> Any:
        labels = fitted(labels, output.shape, -1)
        if labels.dtype.kind == "f":
            losses = tf.nn.softmax_cross_entropy_with_logits(labels, _scores(output))
        else:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, _scores(output))
        return tf.reduce_sum(losses) if self.reduction == "sum" else tf.reduce_mean(losses)


class KnowledgeDistillationLoss:
    """Labels and the teacher's softened outputs, weighed: Hinton, Vinyals and Dean (2015)."""

    def __init__(
        self,
        temperature: float = 1.0,
        loss_types: Any = ("CE", "KL"),
        loss_weights: Any = (0.5, 0.5),
    ) -> None:
        self.temperature = temperature
        self.by_label, self.by_teacher = loss_weights
        self.teacher_model: Any = None
        self._wanted: Any = None

    def teacher_model_forward(self, output: Any) -> None:
        self._wanted = self._softened(output)

    def teach(self, inputs: Any, output: Any = None) -> None:
        """What the teacher gives for a batch; its output where that is known already."""
        if output is None:
            together = isinstance(inputs, Mapping | list | tuple)
            output = called(self.teacher_model, inputs if together else (inputs,), False)
        self.teacher_model_forward(output)

    def blended(self, output: Any, loss: Any) -> Any:
        """The student's own loss, and its distance from the teacher."""
        return self.by_label * loss + self.by_teacher * self._apart(output)

    def _softened(self, output: Any) -> Any:
        return tf.nn.log_softmax(_scores(output) / self.temperature)

    def __call__(self, labels: Any, output: Any) -> Any:
        found = self.by_teacher * self._apart(output)
        if self.by_label and labels is not None:
            found += self.by_label * CrossEntropyLoss()(labels, output)
        return found

    def _apart(self, output: Any) -> Any:
        wanted = self._wanted
        check_alike(output.shape, wanted.shape)
        apart = tf.reduce_sum(tf.exp(wanted) * (wanted - self._softened(output)), -1)
        return self.temperature**2 * tf.reduce_mean(apart)


def provide() -> None:
    """TensorFlow is imported when it is needed, and its names with it."""
    if "SGD" in OPTIMIZERS.names("tensorflow"):
        return
    kinds = tf.keras.optimizers
    OPTIMIZERS.provide(
        "tensorflow",
        {"SGD": Named(kinds.SGD), "Adam": Named(kinds.Adam), "AdamW": Named(kinds.AdamW)},
    )
    CRITERIONS.provide(
        "tensorflow",
        {
            "CrossEntropyLoss": Named(CrossEntropyLoss),
            TEACHES: Named(KnowledgeDistillationLoss),
        },
    )
