"""The cosines and sines of rotary positions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lpot.backends.onnx.decoder.shape import DecoderShape

LONGEST = 32768  # positions that are tabled at most: each costs a few hundred bytes


def rotary_tables(shape: DecoderShape) -> tuple[np.ndarray, np.ndarray]:
    """[positions, rotary / 2] each."""
    places = np.arange(0, shape.rotary, 2, dtype=np.float64)
    frequencies = 1.0 / shape.theta ** (places / shape.rotary)
    told = shape.rope_scaling or {}
    kind = told.get("rope_type", told.get("type", "default"))
    if kind == "linear":
        frequencies = frequencies / float(told["factor"])
    elif kind == "llama3":
        frequencies = _llama3(frequencies, told)
    angles = np.outer(np.arange(min(shape.positions, LONGEST)), frequencies)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _llama3(frequencies: np.ndarray, told: Mapping[str, Any]) -> np.ndarray:
    """Long waves are stretched, short ones stay, those between are mixed (Llama 3.1)."""
    factor = float(told["factor"])
    low, high = float(told["low_freq_factor"]), float(told["high_freq_factor"])
    original = float(told["original_max_position_embeddings"])
    waves = 2 * math.pi / frequencies
    share = (original / waves - low) / (high - low)
    mixed = (1 - share) * frequencies / factor + share * frequencies
    mixed = np.where(waves > original / low, frequencies / factor, mixed)
    return np.where(waves < original / high, frequencies, mixed)
