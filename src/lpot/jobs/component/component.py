"""A step of the user's own, and several steps as one: what a Scheduler runs besides ours."""

from __future__ import annotations

from typing import Any, ClassVar

from lpot.config.rules import trains
from lpot.core.errors import ConfigError
from lpot.jobs.component.attributes import SetByAttributes
from lpot.jobs.component.hooks import Hooked
from lpot.jobs.component.pruner import WeightPruner
from lpot.jobs.component.quantizer import Quantizer
from lpot.jobs.component.records import as_loader, as_native
from lpot.jobs.compress.weights import PruneResult, WeightPruning
from lpot.jobs.settings import Conf, read_config


class Component(Hooked):
    """`pre_process`, `execute` and `post_process`, in that order; what `execute` returns counts."""

    model: Any = None
    train_func: Any = None

    def __init__(self, conf_fname_or_obj: Conf = None) -> None:
        super().__init__()
        self.config = read_config(conf_fname_or_obj)

    def pre_process(self) -> None:
        """Before the work."""

    def execute(self) -> Any:
        """The work: `train_func(model)` unless it is overridden. None stands for `model`."""
        if self.train_func is None:
            raise ConfigError(
                "nothing to do: override `execute`, or set `train_func`, a function of the model"
            )
        return self.train_func(as_native(self.model))

    def post_process(self) -> None:
        """After the work."""

    def __call__(self) -> Any:
        self.pre_process()
        found = self.execute()
        self.post_process()
        return self.model if found is None else found


class Combined(SetByAttributes, Hooked):
    """Quantization-aware training of a model that is pruned meanwhile: one training for both.

    What is set here goes before what the two have; the hooks are those of the pruner.
    """

    model: Any = None
    train_func: Any = None
    train_dataloader: Any = None
    calib_dataloader: Any = None
    eval_dataloader: Any = None
    eval_func: Any = None
    aliases: ClassVar[dict[str, str]] = {"q_func": "train_func", "pruning_func": "train_func"}

    def __init__(self, pruner: Any, quantizer: Any) -> None:
        Hooked.__init__(self)
        self.pruner, self.quantizer = pruner, quantizer
        self.result: Any = None
        self.pruned: PruneResult | None = None
        self._is_made = True

    @property
    def parts(self) -> tuple[Any, Any]:
        return self.pruner, self.quantizer

    def __call__(self) -> Any:
        quantizer = self.quantizer
        for name in ("model", "calib_dataloader", "eval_dataloader", "eval_func"):
            if getattr(self, name) is not None:
                setattr(quantizer, name, getattr(self, name))
        quantizer.q_func = self._train
        found = quantizer()
        self.result = quantizer.result
        return found

    def tell(self, scope: str, *args: Any) -> None:
        getattr(self.pruner, scope)(*args)
        super().tell(scope, *args)

    def _train(self, module: Any) -> None:
        pruner = self.pruner
        run = WeightPruning(
            config=pruner.config,
            native=module,
            loop=self.train_func or pruner.pruning_func or self.quantizer.train_func,
            train=as_loader(
                pruner.train_dataloader if self.train_dataloader is None else self.train_dataloader
            ),
            listener=pruner.listener,
            hooks=self,
            evaluates=False,
        )
        pruner.adopt(run)
        try:
            self.pruned = pruner.result = run()
        finally:
            pruner.adopt(None)


def combine(components: tuple[Any, ...]) -> Combined:
    """A pruner and a quantizer that trains, in any order."""
    pruners = [each for each in components if isinstance(each, WeightPruner)]
    quantizers = [each for each in components if isinstance(each, Quantizer)]
    if len(components) != 2 or len(pruners) != 1 or len(quantizers) != 1:
        given = ", ".join(type(each).__name__ for each in components) or "nothing"
        raise ConfigError(
            f"given {given}: combine takes one Pruning and one Quantization with `approach: "
            "quant_aware_training`; append other components one by one"
        )
    if not trains(quantizers[0].config, True):
        raise ConfigError(
            "combine trains once for both: set `approach: quant_aware_training`, or append the "
            "components one by one",
            "quantization.approach",
            quantizers[0].config.where("quantization.approach"),
        )
    return Combined(pruners[0], quantizers[0])
