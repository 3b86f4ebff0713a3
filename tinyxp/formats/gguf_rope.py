"""Rotary scaling in GGUF: llama.cpp's keys, and the table of factors that it writes for Llama 3."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tinyxp.config import Config, RopeScaling
from tinyxp.errors import UnsupportedModelError
from tinyxp.formats.fields import Fields
from tinyxp.rope import rope_frequencies


def shortest_decimal(value: float) -> float:
    """Return the number with the fewest decimals that rounds to the float32 ``value``."""
    return float(str(np.float32(value)))


def read_scaling(fields: Fields) -> RopeScaling | None:
    """Read the keys below ``rope.``; UnsupportedModelError for a type other than none and linear."""
    fields.get("rope.scaling.finetuned")
    fields.get("rope.scaling.original_context_length")
    kind = fields.get("rope.scaling.type", "linear" if "rope.scale_linear" in fields else "none")
    older = fields.number("rope.scale_linear", 1.0)
    if kind not in ("none", "linear"):
        fields.reject("rope.scaling.type", "known are 'none' and 'linear'")
    factor = shortest_decimal(fields.number("rope.scaling.factor", older))
    return None if kind == "none" or factor == 1.0 else RopeScaling(rope_type="linear", factor=factor)


def scaling_from_factors(config: Config, factors: np.ndarray, original: int) -> RopeScaling | None:
    """Return the scaling whose frequencies are the plain ones over ``factors``: Llama 3's form, or linear.

    Llama 3 keeps a share of each plain frequency, keep = (1/f - 1/F) / (1 - 1/F), where f is its factor and F
    the largest. The share is linear in the number of turns that the frequency makes in ``original``
    positions, from 0 at low_freq_factor turns to 1 at high_freq_factor. Raises UnsupportedModelError if no
    scaling of that form gives the factors.
    """
    plain = np.asarray(rope_frequencies(config))
    other_form = UnsupportedModelError("rope_freqs.weight is not of Llama 3's form")
    if factors.shape != plain.shape or not np.all(np.isfinite(factors)) or not np.all(factors >= 1.0):
        raise other_form
    factors = factors.astype(np.float64)
    largest = shortest_decimal(float(factors.max()))
    if np.all(factors == factors[0]):
        return None if largest == 1.0 else RopeScaling(rope_type="linear", factor=largest)
    turns = original * plain / (2.0 * math.pi)
    keep = (1.0 / factors - 1.0 / largest) / (1.0 - 1.0 / largest)
    for low, high in _guess_bounds(turns, keep):
        scaling = RopeScaling(
            rope_type="llama3",
            factor=largest,
            low_freq_factor=low,
            high_freq_factor=high,
            original_max_seq_len=original,
        )
        scaled = rope_frequencies(replace(config, rope_scaling=scaling))
        if np.allclose(plain / scaled, factors, rtol=1e-6, atol=0.0):
            return scaling
    raise other_form


def _guess_bounds(turns: np.ndarray, keep: np.ndarray) -> Iterator[tuple[float, float]]:
    """Yield pairs of low_freq_factor and high_freq_factor: Llama 3's own, then those of the line's slope."""
    yield 1.0, 4.0
    [between] = np.nonzero((keep > 1e-5) & (keep < 1.0 - 1e-5))  # the ends carry rounding
    if len(between) < 2:
        return
    first, last = between[0], between[-1]
    width = (turns[first] - turns[last]) / (keep[first] - keep[last])
    low = turns[first] - keep[first] * width
    for digits in (3, 15):
        bounds = (float(round(low, digits)), float(round(low + width, digits)))
        if 0.0 < bounds[0] < bounds[1]:
            yield bounds
