"""What a page about one forward pass shows, computed with the model's own functions.

Results are NumPy's in float64, of one sequence, so without the batch axis. Shapes: s the positions that are
shown, the last 64 at most; other letters as in ``model.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tinyxp import ops
from tinyxp.cache import place
from tinyxp.config import MLPS
from tinyxp.inputs import check_inputs
from tinyxp.model import Context, head, normalize
from tinyxp.ops import Kernels
from tinyxp.params import Params
from tinyxp.rope import rope_frequencies, rotation
from tinyxp.typing import Array

SHOWN = 64
"""How many positions are shown at most: the last ones."""
UNITS = 8
"""How many units of each MLP are shown: those with the largest products."""
CLOCKS = 6
HANDS = 256
"""For how many positions the clocks are shown, unless the sequence is longer."""
NO_EPS = 5e-324
"""The smallest positive float: nothing beside any sum of squares."""
CURVE = 641
FACTORS = (1.0, 0.1, 0.01, 0.001, 0.0)


@dataclass(frozen=True)
class Run:
    """One forward pass over one sequence: ``points`` as ``tinyxp.trace(params, [ids])`` returns them.

    ``text`` makes one visible line of a token.
    """

    params: Params
    ids: tuple[int, ...]
    points: Mapping[str, Array]
    text: Callable[[int], str]

    @property
    def shown(self) -> range:
        """The positions that are shown."""
        return range(max(0, len(self.ids) - SHOWN), len(self.ids))

    def token(self, i: int) -> str:
        """The text of the token at position i."""
        return self.text(self.ids[i])

    def host(self, x: Array) -> np.ndarray:
        """An array (1, ...) of the parameters' library -> (...) in float64 on NumPy."""
        found: np.ndarray = self.params.backend.to_numpy(x)[0].astype(np.float64)
        return found

    def point(self, name: str) -> np.ndarray:
        """A trace point in float64 on NumPy."""
        return self.host(self.points[name])


def not_finite(run: Run) -> str | None:
    """The first trace point that holds a NaN or an infinity; None where none does."""
    return next((name for name in run.points if not np.isfinite(run.point(name)).all()), None)


def next_tokens(run: Run, count: int = 5) -> list[tuple[int, float]]:
    """The likeliest next tokens and their probabilities, the lowest id first among equals."""
    last = run.points["logits"][:, len(run.ids) - 1, :]
    p = run.host(ops.softmax(ops.widen(last, xp=run.params.xp), xp=run.params.xp))
    best = np.argsort(-p, kind="stable")[:count]
    return [(int(i), float(p[i])) for i in best]


def attention(run: Run, layer: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The weights (h, s, s) of a block, what they would be without the mask (h, s, s), and the share of
    those that lies on later tokens, the mean over all queries (h,)."""
    xp, first, t = run.params.xp, run.shown.start, len(run.ids)
    scores = run.points[f"blocks.{layer}.attn.scores"]
    unmasked = run.host(ops.softmax(ops.widen(scores, xp=xp), xp=xp))
    future = (unmasked * np.triu(np.ones((t, t)), 1)).sum(axis=(1, 2)) / t
    weights = run.point(f"blocks.{layer}.attn.weights")
    return weights[:, first:, first:], unmasked[:, first:, first:], future


def clocks(run: Run) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Up to six rotary pairs from the fastest to the slowest: which (k,), their frequencies (k,), and the
    cosine and sine (k, p, 2) of their angles at the positions from 0 on."""
    params, config = run.params, run.params.config
    pairs = config.head_dim // 2
    chosen = sorted({round(x) for x in np.linspace(0, pairs - 1, CLOCKS)})
    last = max(min(HANDS, config.max_seq_len), len(run.ids))
    positions = params.backend.from_numpy(np.arange(last)[None], device=params.device)
    turned = rotation(config, positions, params.dtype, xp=params.xp, device=params.device)
    assert turned is not None
    cos, sin = (run.host(x)[0].T[chosen] for x in turned)
    return chosen, np.asarray(rope_frequencies(config))[chosen], np.stack([cos, sin], axis=-1)


def position_similarity(run: Run) -> np.ndarray:
    """The cosine between the rows of the position table (s, s)."""
    table = run.params.backend.to_numpy(run.params["pos_embed.weight"])[: len(run.ids)].astype(np.float64)
    rows = table[run.shown.start :]
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    rows = rows / np.where(length > 0.0, length, 1.0)
    return np.clip(rows @ rows.T, -1.0, 1.0)


def stream(run: Run) -> Iterator[tuple[str, str]]:
    """Each point of the residual stream, in order, and the norm that reads it."""
    layers = run.params.config.n_layers
    yield "embed", "blocks.0.attn_norm"
    for i in range(layers):
        yield f"blocks.{i}.attn_residual", f"blocks.{i}.mlp_norm"
        yield f"blocks.{i}.residual", f"blocks.{i + 1}.attn_norm" if i + 1 < layers else "final_norm"


def stream_norms(run: Run) -> np.ndarray:
    """The Euclidean norm of each token at each point of the stream (2 L + 1, s)."""
    return np.stack([np.linalg.norm(run.point(name)[run.shown.start :], axis=-1) for name, _ in stream(run)])


class Step(NamedTuple):
    """A vector of the stream times ``factor`` through a norm."""

    factor: float
    power: float  # its mean square, or for LayerNorm its variance
    before: float  # its root mean square
    after: float  # that of the norm's answer
    bare: float  # that of the norm's answer without eps; NaN where it is 0 / 0


class Silent(NamedTuple):
    """The quietest vector of the stream, and the norm that reads it."""

    point: str
    norm: str
    position: int
    before: np.ndarray  # (d,)
    after: np.ndarray  # (d,)
    steps: list[Step]


def silent(run: Run) -> Silent:
    """The vector of the smallest norm in the stream, over all points and positions, and smaller ones yet."""
    sizes = {name: np.linalg.norm(run.point(name), axis=-1) for name, _ in stream(run)}
    point, norm = min(stream(run), key=lambda pair: float(sizes[pair[0]].min()))
    position = int(sizes[point].argmin())
    vector = run.points[point][:, position : position + 1, :]
    steps = []
    for factor in FACTORS:
        x = vector * factor
        host = run.host(x)[0]
        power = float(host.var() if run.params.config.norm == "layer" else np.mean(host * host))
        bare = _rms(run.host(_normed(run, norm, x, NO_EPS))) if power > 0.0 else math.nan
        steps.append(Step(factor, power, _rms(host), _rms(run.host(_normed(run, norm, x, None))), bare))
    return Silent(point, norm, position, run.host(vector)[0], run.point(norm)[position], steps)


def _rms(x: np.ndarray) -> float:
    return math.sqrt(float(np.mean(x * x)))


def _context(run: Run, eps: float | None = None) -> Context:
    """What the model's own functions want to know, with another eps where one is given."""
    params = run.params
    config = params.config if eps is None else replace(params.config, norm_eps=eps)
    placement = place(check_inputs(params, [list(run.ids)], None, None, None), None)
    return Context(config, Kernels(), placement, None, params.xp)


def _normed(run: Run, norm: str, x: Array, eps: float | None) -> Array:
    """The norm of that name of x (1, ..., d)."""
    if norm == "final_norm":
        return normalize(run.params, norm, x, _context(run, eps))
    _, layer, name = norm.split(".")
    return normalize(run.params.block(int(layer)), name, x, _context(run, eps))


def lens(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """The last norm and the head on every block's residual, embed first: the likeliest token (L + 1, s) and
    its probability (L + 1, s)."""
    params, xp = run.params, run.params.xp
    names = ["embed", *(f"blocks.{i}.residual" for i in range(params.config.n_layers))]
    best, mass = [], []
    for name in names:
        x = _normed(run, "final_norm", run.points[name][:, run.shown.start :, :], None)
        p = run.host(ops.softmax(ops.widen(ops.linear(x, *head(params, params.config), xp=xp), xp=xp), xp=xp))
        best.append(p.argmax(axis=-1))
        mass.append(p.max(axis=-1))
    return np.stack(best), np.stack(mass)


def valve(run: Run, layer: int) -> tuple[list[int], np.ndarray]:
    """The units of a block's MLP with the largest products (u,), and their values (u, 4 or 2, s): gate,
    silu(gate), up and product, or up and its GELU."""
    params, inside = run.params, f"blocks.{layer}.mlp"
    hidden = run.point(f"{inside}.hidden")[run.shown.start :]
    units = np.argsort(-np.abs(hidden).max(axis=0), kind="stable")[:UNITS]
    values = [run.point(f"{inside}.up")[run.shown.start :], hidden]
    kind = MLPS[params.config.mlp]
    if kind.gated:
        gate = run.points[f"{inside}.gate"][:, run.shown.start :, :]
        act = getattr(ops, kind.activation)
        values = [run.host(gate), run.host(act(gate, xp=params.xp)), *values]
    return units.tolist(), np.stack([x[:, units].T for x in values], axis=1)


def activation(run: Run, reach: float) -> np.ndarray:
    """The MLP's activation over -reach to reach, as points (CURVE, 2)."""
    x = np.linspace(-reach, reach, CURVE)
    act = getattr(ops, MLPS[run.params.config.mlp].activation)
    return np.stack([x, act(x, xp=np)], axis=-1)
