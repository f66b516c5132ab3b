"""The cosines and sines of rotary positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lpot.backends.onnx.decoder.shape import DecoderShape, Rope

LONGEST = 32768  # positions that are tabled at most: each costs a few hundred bytes
ORIGINAL = "original_max_position_embeddings"
Told = Mapping[str, Any]
Scaled = tuple[np.ndarray, float]  # frequencies, and the amplitude of cosines and sines


def rotary_tables(shape: DecoderShape, rope: Rope) -> tuple[np.ndarray, np.ndarray]:
    """[positions, rotary / 2] each."""
    places = np.arange(0, shape.rotary, 2, dtype=np.float64)
    frequencies = 1.0 / rope.theta ** (places / shape.rotary)
    scaled, amplitude = KINDS[rope.kind](frequencies, rope.told or {}, rope.theta)
    angles = np.outer(np.arange(min(shape.positions, LONGEST)), scaled)
    cos, sin = (amplitude * wave(angles) for wave in (np.cos, np.sin))
    return cos.astype(np.float32), sin.astype(np.float32)


def _plain(frequencies: np.ndarray, told: Told, theta: float) -> Scaled:
    """Dynamic ones, too, are these up to `max_position_embeddings`, where our table ends."""
    return frequencies, 1.0


def _linear(frequencies: np.ndarray, told: Told, theta: float) -> Scaled:
    return frequencies / float(told["factor"]), 1.0


def _llama3(frequencies: np.ndarray, told: Told, theta: float) -> Scaled:
    """Long waves are stretched, short ones stay, those between are mixed (Llama 3.1)."""
    factor = float(told["factor"])
    low, high = float(told["low_freq_factor"]), float(told["high_freq_factor"])
    original = float(told[ORIGINAL])
    waves = 2 * math.pi / frequencies
    share = (original / waves - low) / (high - low)
    mixed = (1 - share) * frequencies / factor + share * frequencies
    mixed = np.where(waves > original / low, frequencies / factor, mixed)
    return np.where(waves < original / high, frequencies, mixed), 1.0


def _yarn(frequencies: np.ndarray, told: Told, theta: float) -> Scaled:
    """Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2024: the
    same idea, with a ramp between two numbers of turns, and larger amplitudes."""
    original, size = float(told[ORIGINAL]), 2 * len(frequencies)
    factor = float(told["factor"])

    def dimension(turns: float) -> float:
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(told.get("beta_fast") or 32), dimension(told.get("beta_slow") or 1)
    if told.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    high += 0.001 if high == low else 0.0
    share = np.clip((np.arange(len(frequencies)) - low) / (high - low), 0, 1)
    amplitude: Any = told.get("attention_factor")
    if amplitude is None:
        one, other = float(told.get("mscale") or 0), float(told.get("mscale_all_dim") or 0)
        both = one and other
        amplitude = _gain(factor, one) / _gain(factor, other) if both else _gain(factor)
    return share * frequencies / factor + (1 - share) * frequencies, float(amplitude)


def _gain(factor: float, scale: float = 1.0) -> float:
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _longrope(frequencies: np.ndarray, told: Told, theta: float) -> Scaled:
    """Ding et al., "LongRoPE", 2024: a factor for each frequency; those of short texts."""
    original, amplitude = float(told[ORIGINAL]), told.get("attention_factor")
    factor = float(told["factor"])
    if amplitude is None:
        amplitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return frequencies / np.asarray(told["short_factor"], np.float64), float(amplitude)


KINDS: Mapping[str, Callable[[np.ndarray, Told, float], Scaled]] = {
    "default": _plain,
    "dynamic": _plain,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
