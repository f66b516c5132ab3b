"""`approach: weight_only`: the usual job with formats of few bits, phases and perplexity."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from lpot.backends import copy_beside
from lpot.core.batch import Inputs
from lpot.core.card import write_text
from lpot.core.errors import LpotError
from lpot.core.observations import Observations
from lpot.core.recipe import OpConfig, OpKey
from lpot.core.result import Result
from lpot.core.strategy import Tradeoffs
from lpot.jobs.decoder.phases import PhaseLook, compare_phases, token_case, told
from lpot.jobs.decoder.prepare import MODEL, OUT_FOLDER, folder_of
from lpot.jobs.decoder.tokens import is_cache
from lpot.jobs.tune.job import Job


@runtime_checkable
class Rounding(Protocol):
    """A backend that rounds weights alone, keeps them on disk and can tell what each does."""

    def keep_in(self, folder: Path) -> None: ...

    def tradeoffs(
        self,
        model: Any,
        choices: Mapping[OpKey, Sequence[OpConfig]],
        observations: Observations,
    ) -> Tradeoffs: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class DecoderJob(Job):
    """A job whose choices are formats of weights. It also serves graphs that are no decoders."""

    def __post_init__(self) -> None:
        folder = self.workspace.folder / f"weights-{self.fingerprint['model'][:8]}"
        data = self.fingerprint["data"][:8] or "none"
        if isinstance(self.backend, Rounding):
            self.backend.keep_in(folder / data)

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
        return PhaseLook(self.model, section.prompt, section.prompt_length, timed)

    @property
    def timing_inputs(self) -> Inputs | None:
        """A token behind a cache: what a user waits for again and again."""
        if not self.is_cached:
            return super().timing_inputs
        length = self.config.quantization.weight_only.prompt_length
        return token_case(length).inputs(tuple(self.model.inputs or ()))

    def tradeoffs(self) -> Tradeoffs:
        """Error, time and bytes of each format of each op."""
        recipe = self.space.default()
        observations = self.observe(recipe.samples)
        if observations is None or not observations.probe:
            return {}
        if not isinstance(self.backend, Rounding):
            return {}
        self.listener.phase("rounding weights, and asking each what it does to the answer")
        try:
            return self.backend.tradeoffs(self.model, self.space.choices, observations)
        except LpotError as error:
            self.add_note(f"tradeoffs: {error}; ops are taken without them")
            return {}

    def package(self, result: Result) -> None:
        """The folder for plain onnxruntime and genai, and both phases in every batch size."""
        if result.path is None or not self.is_cached:
            return
        folder = self.workspace.folder / OUT_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        source = folder_of(self.request.model)
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
