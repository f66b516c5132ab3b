"""`approach: weight_only`: the usual job with formats of few bits, phases and perplexity."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from lpot.backends import copy_beside, export_decoder, get_backend, is_decoder
from lpot.config.schema import Config
from lpot.core.batch import Inputs
from lpot.core.calibration import Calibration
from lpot.core.card import write_text
from lpot.core.errors import ConfigError, LpotError
from lpot.core.result import Result
from lpot.core.strategy import Policy, StrategyContext, Tradeoffs
from lpot.core.workspace import default_folder
from lpot.jobs.decoder.phases import PhaseLook, compare_phases, token_case, told
from lpot.jobs.decoder.tokens import TokenWindows, is_cache, windows_of
from lpot.jobs.settings import change_config, with_name
from lpot.jobs.tune.quantize import Job, Request
from lpot.strategy import get_strategy

FP32_FOLDER, OUT_FOLDER, MODEL = "fp32", "decoder", "model.onnx"
USUAL = ("auto", "basic")  # strategies that nobody asked for by name
SAMPLES = 16  # windows that GPTQ is calibrated on, unless more are asked for
METRIC = "perplexity"


def wants_weight_only(config: Config) -> bool:
    return config.quantization.approach == "weight_only"


def prepared(request: Request) -> Request:
    """The request with the decoder written as ONNX and text cut into windows.

    With text alone the bar is the perplexity on windows that had no part in the calibration.
    """
    if not wants_weight_only(request.config):
        return request
    config = with_name(request.config, request.model)
    model, folder = request.model, _folder_of(request.model)
    if is_decoder(model):
        place = _workspace(request, config) / FP32_FOLDER
        request.listener.phase("writing the decoder as ONNX")
        model, folder = export_decoder(model, place), place
        request = replace(request, backend=get_backend("onnx"))  # whatever it was written in
    section = config.quantization.weight_only
    texts = (
        (request.calib, section.calibration_text, "calibration_text"),
        (request.eval_loader, section.evaluation_text, "evaluation_text"),
    )
    calib, held = (
        windows_of(_given(*text), section.prompt_length, folder, f"the {text[2].replace('_', ' ')}")
        for text in texts
    )
    found = replace(request, config=config, model=model)
    if calib is not None:
        found = replace(found, calib=calib)
    if held is not None:
        found = replace(found, eval_loader=held)
    return _scored(found, calib, held)


def _given(by_code: Any, by_file: str | None, key: str) -> Any:
    """What the program gives, else the file that the configuration names."""
    if by_code is not None or by_file is None:
        return by_code
    if not Path(by_file).is_file():
        raise ConfigError(f"given {by_file!r}, no such file", f"quantization.weight_only.{key}")
    return Path(by_file)


def _scored(request: Request, calib: TokenWindows | None, held: TokenWindows | None) -> Request:
    """The same with windows to measure on, and perplexity as the metric where none is named."""
    section = request.config.evaluation.accuracy
    named = request.metric is not None or section.metric is not None or section.multi_metrics
    if request.eval_func is not None or section.dataloader is not None:
        return request
    if held is None and request.eval_loader is None and calib is not None and len(calib.ids) > 1:
        kept = min(len(calib.ids) // 2, SAMPLES)
        calib, held = calib.part(slice(0, kept)), calib.part(slice(kept, None))
        request.listener.note(
            f"no evaluation text was given: perplexity is measured on the {len(held.ids)} windows "
            f"of the calibration text that are not calibrated on"
        )
        request = replace(request, calib=calib, eval_loader=held)
    if held is None or named:
        return request
    changes = {"tuning.accuracy_criterion.higher_is_better": False}
    criterion = request.config.tuning.accuracy_criterion
    if "higher_is_better" not in criterion.model_fields_set:
        request = replace(request, config=change_config(request.config, changes))
    return replace(request, metric=METRIC)


def _folder_of(model: Any) -> Path | None:
    if not isinstance(model, str | Path):
        return None
    return Path(model) if Path(model).is_dir() else Path(model).parent


def _workspace(request: Request, config: Config) -> Path:
    given = request.workspace or config.tuning.workspace.path
    return Path(given) if given else default_folder("onnx", config.model.name)


class DecoderJob(Job):
    """A job whose choices are formats of weights. It also serves graphs that are no decoders."""

    def __init__(self, request: Request) -> None:
        for loader in (request.calib, request.eval_loader):
            if loader is not None and isinstance(loader, str):
                raise ConfigError("a text was given for a model without a tokenizer", "calib")
        super().__init__(request)
        folder = self.workspace.folder / f"weights-{self.fingerprint['model'][:8]}"
        data = self.fingerprint["data"][:8] or "none"
        keep: Any = getattr(self.backend, "keep_in", None)
        if keep is not None:
            keep(folder / data)
        if isinstance(request.eval_loader, TokenWindows):
            request.eval_loader.bind(self.model.inputs)

    def _calibration(self) -> Calibration | None:
        loader = self.request.calib
        if isinstance(loader, TokenWindows):
            most = max(self.config.quantization.calibration.sampling_size, default=SAMPLES)
            step = max(1, len(loader.ids) // most)
            spread = loader.part(slice(0, most * step, step))
            self.request = replace(self.request, calib=spread.bind(self.model.inputs))
        return super()._calibration()

    def _policy(self) -> Policy:
        name = self.config.tuning.strategy.name
        if self.request.strategy is None and name in USUAL:
            return get_strategy("mixed_bits", self.config.quantization.quant_level)
        return super()._policy()

    @property
    def is_cached(self) -> bool:
        """Has the model a KV cache, so that its phases can be told apart?"""
        return any(is_cache(spec) for spec in self.model.inputs or ())

    @cached_property
    def measure(self) -> Any:
        if not self.is_cached:
            return super().measure
        section = self.config.quantization.weight_only
        timed = self.request.measure_speed and "performance" in self.objectives.words
        specs = tuple(self.model.inputs or ())
        return PhaseLook(specs, self.model, section.prompt, section.prompt_length, timed)

    @property
    def timing_inputs(self) -> Inputs | None:
        """A token behind a cache: what a user waits for again and again."""
        if not self.is_cached:
            return super().timing_inputs
        length = self.config.quantization.weight_only.prompt_length
        return token_case(length).inputs(tuple(self.model.inputs or ()))

    def strategy_context(self) -> StrategyContext:
        return replace(super().strategy_context(), tradeoffs=self.tradeoffs)

    def tradeoffs(self) -> Tradeoffs:
        """Harm, time and bytes of each format of each op."""
        recipe = self.space.default()
        observations = self.observe(recipe.samples)
        ask: Any = getattr(self.backend, "tradeoffs", None)
        if observations is None or not observations.probe or ask is None:
            return {}
        self.listener.phase("rounding weights, and asking each what it does to the answer")
        try:
            found: Tradeoffs = ask(self.model, self.space.choices, observations)
            return found
        except LpotError as error:
            self.add_note(f"tradeoffs: {error}; ops are taken without them")
            return {}

    def package(self, result: Result) -> None:
        """The folder for plain onnxruntime and genai, and both phases in every batch size."""
        if result.path is None or not self.is_cached:
            return
        folder = self.workspace.folder / OUT_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        source = _folder_of(self.request.model)
        if source is not None:
            copy_beside(source, folder)
        shutil.copyfile(result.path, folder / MODEL)
        self.add_note(f"{folder}: the model with tokenizer and genai_config.json")
        if not self.request.measure_speed or result.interrupted or result.met is False:
            return
        self.listener.phase("timing prompts and tokens, batch 1 and 4")
        length = self.config.quantization.weight_only.prompt_length
        found = compare_phases(self.model, result.model, length)
        write_text(self.workspace.folder / "phases.json", json.dumps(found, indent=1) + "\n")
        self.add_note(told(found))
