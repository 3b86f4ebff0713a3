"""Rotary positions: the frequencies of a config, and the angles of a pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tinyxp.config import Config, RopeScaling
from tinyxp.typing import Array, Namespace


def rotation(
    config: Config, positions: Array, dtype: Any, *, xp: Namespace, device: Any
) -> tuple[Array, Array] | None:
    """cos and sin of position times frequency; None if positions are learned.

    positions (b or 1, t) -> two arrays (b or 1, 1, t, hd/2), in float32 or in ``dtype`` if that is wider: in
    bfloat16 neighbouring positions would coincide (Su et al., 2021).
    """
    if config.position != "rope":
        return None
    precision = xp.result_type(dtype, xp.float32)
    frequencies = xp.asarray(rope_frequencies(config), dtype=precision, device=device)
    angles = xp.astype(positions, precision)[:, None, :, None] * frequencies
    return xp.cos(angles), xp.sin(angles)


def rope_frequencies(config: Config) -> list[float]:
    """theta^(-2i/hd) for i < hd/2, in radians per position, stretched as ``config.rope_scaling`` says."""
    frequencies = [config.rope_theta ** (-2.0 * i / config.head_dim) for i in range(config.head_dim // 2)]
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    return [SCALINGS[scaling.rope_type](frequency, scaling) for frequency in frequencies]


def scale_linear(frequency: float, scaling: RopeScaling) -> float:
    """frequency / factor (kaiokendev, 2023)."""
    return frequency / scaling.factor


def scale_llama3(frequency: float, scaling: RopeScaling) -> float:
    """Divide the frequencies of long wavelengths by factor, keep those of short ones (Llama 3.1, 2024)."""
    turns = scaling.original_max_seq_len * frequency / (2.0 * math.pi)  # within the original context
    keep = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    keep = min(max(keep, 0.0), 1.0)
    return keep * frequency + (1.0 - keep) * frequency / scaling.factor


SCALINGS: dict[str, Callable[[float, RopeScaling], float]] = {"linear": scale_linear, "llama3": scale_llama3}
