"""The object behind the `Pruning` doors: what the original's scripts set, call and hook into."""

from __future__ import annotations

from typing import Any

from lpot.core.errors import ConfigError
from lpot.core.model import Model
from lpot.core.progress import Listener
from lpot.core.results.result import Result
from lpot.jobs.component.hooks import Hooked
from lpot.jobs.component.records import as_loader, as_model, as_native, terminal
from lpot.jobs.compress.weights import PruneResult, WeightPruning
from lpot.jobs.settings import Conf, read_config
from lpot.jobs.tune.quantize import Request, quantize


class WeightPruner(Hooked):
    """Zeros by the yaml's pruners; or channels removed, where it speaks of `structured`."""

    def __init__(self, conf_fname_or_obj: Conf = None) -> None:
        super().__init__()
        self.config = read_config(conf_fname_or_obj)
        self.result: PruneResult | Result | None = None
        self.listener: Listener = terminal()
        self._run: WeightPruning | None = None

    def run(
        self,
        model: Any,
        train: Any = None,
        loop: Any = None,
        eval_loader: Any = None,
        eval_func: Any = None,
        metric: Any = None,
        postprocess: Any = None,
    ) -> Model:
        if model is None:
            raise ConfigError("no model was given: set `model`, or pass it to the call", "model")
        pruning = self.config.pruning
        found: PruneResult | Result
        try:
            if pruning is not None and pruning.approach.structured is not None:
                found = self._compress(model, train, eval_loader, eval_func, metric, postprocess)
            else:
                self._run = WeightPruning(
                    config=self.config,
                    native=as_native(model),
                    loop=loop,
                    train=as_loader(train),
                    eval_func=eval_func,
                    eval_loader=as_loader(eval_loader),
                    metric=metric,
                    postprocess=postprocess,
                    listener=self.listener,
                    hooks=self,
                )
                found = self._run()
        finally:
            self._run = None
            self.listener.close()
        self.result = found
        made = found.model
        assert made is not None
        return made

    def _compress(
        self, model: Any, train: Any, eval_loader: Any, eval_func: Any, *how: Any
    ) -> Result:
        metric, postprocess = how
        return quantize(
            Request(
                config=self.config,
                model=as_model(model),
                calib=as_loader(train),
                train=as_loader(train),
                eval_func=eval_func,
                eval_loader=as_loader(eval_loader),
                metric=metric,
                postprocess=postprocess,
                listener=self.listener,
            )
        )

    def adopt(self, run: WeightPruning | None) -> None:
        """The hooks are for this run from now on."""
        self._run = run

    @property
    def _running(self) -> WeightPruning:
        if self._run is None:
            raise ConfigError(
                "the hooks are for pruning_func, while the pruning runs: call the component first"
            )
        return self._run

    def on_epoch_begin(self, epoch: int) -> None:
        self._running.on_epoch_begin(epoch)
        super().on_epoch_begin(epoch)

    def on_batch_begin(self, batch: int = 0) -> None:
        self._running.on_batch_begin(batch)
        super().on_batch_begin(batch)

    def on_post_grad(self) -> None:
        self._running.on_post_grad()
        super().on_post_grad()

    def on_batch_end(self) -> None:
        self._running.on_batch_end()
        super().on_batch_end()

    def on_epoch_end(self) -> None:
        self._running.on_epoch_end()
        super().on_epoch_end()
