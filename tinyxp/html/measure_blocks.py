"""Numbers about the blocks in a forward pass, computed with the model's own functions.

The residual stream, the norms, the MLP units and the logit lens. Results are NumPy arrays in float64, of one
sequence, without the batch axis. s is the number of shown positions; other letters as in ``model.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tinyxp import ops
from tinyxp.cache import place
from tinyxp.config import MLPS
from tinyxp.html.forward_pass import ForwardPass
from tinyxp.inputs import check_inputs
from tinyxp.model import Context, head, normalize
from tinyxp.ops import Kernels
from tinyxp.typing import Array, Namespace

MAX_UNITS = 8
"""How many units of each MLP are shown: those with the largest results."""
TINY_EPS = 5e-324
"""The smallest positive float, which changes no sum of squares above 0."""
FACTORS = (1.0, 0.1, 0.01, 0.001, 0.0)
CURVE_POINTS = 641


def stream_points(run: ForwardPass) -> Iterator[tuple[str, str]]:
    """Yield each point of the residual stream, in order, with the norm that reads it."""
    layers = run.params.config.n_layers
    yield "embed", "blocks.0.attn_norm"
    for i in range(layers):
        yield f"blocks.{i}.attn_residual", f"blocks.{i}.mlp_norm"
        yield f"blocks.{i}.residual", f"blocks.{i + 1}.attn_norm" if i + 1 < layers else "final_norm"


def stream_lengths(run: ForwardPass) -> np.ndarray:
    """Return the Euclidean length of each token's vector at each point of the stream (2 L + 1, s)."""
    first = run.shown.start
    return np.stack([np.linalg.norm(run.point(name)[first:], axis=-1) for name, _ in stream_points(run)])


class ScaledNorm(NamedTuple):
    """What a norm makes of a vector times ``factor``."""

    factor: float
    power: float  # its mean square, or for layer norm its variance
    before: float  # its root mean square
    after: float  # the root mean square of the norm's output
    without_eps: float  # the same without eps; NaN for 0 / 0


class ShortestVector(NamedTuple):
    """The shortest vector of the residual stream, and the norm that reads it."""

    point: str
    norm: str
    position: int
    before: np.ndarray  # (d,)
    after: np.ndarray  # (d,)
    scaled: list[ScaledNorm]


def shortest_vector(run: ForwardPass) -> ShortestVector:
    """Find the shortest vector of the stream, and what its norm makes of it when it is scaled down to 0."""
    lengths = {name: np.linalg.norm(run.point(name), axis=-1) for name, _ in stream_points(run)}
    point, norm = min(stream_points(run), key=lambda pair: float(lengths[pair[0]].min()))
    position = int(lengths[point].argmin())
    vector = run.points[point][:, position : position + 1, :]
    scaled = [_scaled_norm(run, norm, vector, factor) for factor in FACTORS]
    return ShortestVector(point, norm, position, run.host(vector)[0], run.point(norm)[position], scaled)


def _scaled_norm(run: ForwardPass, norm: str, vector: Array, factor: float) -> ScaledNorm:
    x = vector * factor
    host = run.host(x)[0]
    power = float(host.var() if run.params.config.norm == "layer" else np.mean(host * host))
    without_eps = _rms(run.host(apply_norm(run, norm, x, TINY_EPS))) if power > 0.0 else math.nan
    return ScaledNorm(factor, power, _rms(host), _rms(run.host(apply_norm(run, norm, x))), without_eps)


def _rms(x: np.ndarray) -> float:
    return math.sqrt(float(np.mean(x * x)))


def apply_norm(run: ForwardPass, norm: str, x: Array, eps: float | None = None) -> Array:
    """Apply the norm of that name to x (1, ..., d), with another eps if one is given."""
    params = run.params
    config = params.config if eps is None else replace(params.config, norm_eps=eps)
    placement = place(check_inputs(params, [list(run.ids)], None, None, None), None)
    context = Context(config, Kernels(), placement, None, params.xp)
    if norm == "final_norm":
        return normalize(params, norm, x, context)
    _, layer, name = norm.split(".")
    return normalize(params.block(int(layer)), name, x, context)


def logit_lens(run: ForwardPass) -> tuple[np.ndarray, np.ndarray]:
    """Apply the last norm and the head to every block's residual, embed first.

    Return the most likely token (L + 1, s) and its probability (L + 1, s).
    """
    params, xp = run.params, run.params.xp
    names = ["embed", *(f"blocks.{i}.residual" for i in range(params.config.n_layers))]
    best, probabilities = [], []
    for name in names:
        x = apply_norm(run, "final_norm", run.points[name][:, run.shown.start :, :])
        p = run.host(ops.softmax(ops.widen(ops.linear(x, *head(params, params.config), xp=xp), xp=xp), xp=xp))
        best.append(p.argmax(axis=-1))
        probabilities.append(p.max(axis=-1))
    return np.stack(best), np.stack(probabilities)


def mlp_units(run: ForwardPass, layer: int) -> tuple[list[int], np.ndarray]:
    """Return the units of a block's MLP with the largest results (u,), and their values (u, 4 or 2, s).

    The values are gate, its activation, up and their product; or, without a gate, up and its activation.
    """
    params, mlp = run.params, f"blocks.{layer}.mlp"
    hidden = run.point(f"{mlp}.hidden")[run.shown.start :]
    units = np.argsort(-np.abs(hidden).max(axis=0), kind="stable")[:MAX_UNITS]
    values = [run.point(f"{mlp}.up")[run.shown.start :], hidden]
    if MLPS[params.config.mlp].gated:
        gate = run.points[f"{mlp}.gate"][:, run.shown.start :, :]
        values = [run.host(gate), run.host(_activate(run, gate, params.xp)), *values]
    return units.tolist(), np.stack([x[:, units].T for x in values], axis=1)


def activation_curve(run: ForwardPass, reach: float) -> np.ndarray:
    """Return the MLP's activation from -reach to reach, as points (CURVE_POINTS, 2)."""
    x = np.linspace(-reach, reach, CURVE_POINTS)
    return np.stack([x, _activate(run, x, np)], axis=-1)


def _activate(run: ForwardPass, x: Array, xp: Namespace) -> Any:
    """Apply the activation of the model's MLP."""
    return getattr(ops, MLPS[run.params.config.mlp].activation)(x, xp=xp)
