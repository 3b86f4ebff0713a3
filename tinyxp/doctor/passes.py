"""Passes of variants, in float64 on NumPy: the model's own operations, each with its changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from tinyxp.cache import Placement, place
from tinyxp.config import Config
from tinyxp.doctor.faults.change import Place, See
from tinyxp.doctor.reference_run import widening_linear
from tinyxp.doctor.traces import Batch
from tinyxp.doctor.variant import Changes, Variant
from tinyxp.inputs import check_inputs
from tinyxp.model import Context, block, embed, head, normalize
from tinyxp.ops import Kernels
from tinyxp.params import Params
from tinyxp.registry import backend
from tinyxp.rope import rotation
from tinyxp.shapes import block_shapes, linear_shapes, norm_shapes

MOST_CONTEXTS = 64
"""How many contexts are kept: those of the blocks of a few variants."""


@cache
def _numpy() -> Any:
    return backend(np)


class Passes:
    """Computes the steps of variants: the embedding, one block, and what follows the blocks."""

    def __init__(self) -> None:
        self._placements: dict[int, tuple[Batch, Placement]] = {}  # a batch is kept with its id
        self._contexts: dict[tuple[int, Config, Changes], Context] = {}

    def embed(self, v: Variant, see: See) -> np.ndarray:
        """The residual stream before block 0."""
        changes = v.changes_at("embed")
        ctx, ids = self._context(v, changes), v.batch.ids
        tokens = np.asarray(v.parameter("embed.weight", changes)[ids.ravel()], np.float64)
        params: Any = {"embed.weight": tokens}
        if ctx.config.position == "learned":
            params["pos_embed.weight"] = np.asarray(v.parameter("pos_embed.weight", changes), np.float64)
        x = embed(params, np.arange(ids.size).reshape(ids.shape), ctx)
        place = Place(ctx, params, {"tokens": tokens.reshape(*ids.shape, -1)})
        return see("embed", _tapped(changes, "embed", x, place))

    def block(self, v: Variant, i: int, x: np.ndarray, see: See) -> np.ndarray:
        """Block i from its input; ``see`` gets each point by its whole name, and may replace its value."""
        values: dict[str, np.ndarray] = {}

        def record(kind: str, y: Any) -> np.ndarray:
            if kind in v.at_point:
                y = self._value(v, v.at_point[kind], i, x, kind, values)
            values[kind] = see(f"blocks.{i}.{kind}", y)
            return values[kind]

        return self._block(v, v.changes_in(i), i, x, record)

    def final(self, v: Variant, x: np.ndarray, see: See, *, logits: bool = True) -> None:
        """The last norm, and the logits if they are needed."""
        changes = v.changes_at("final_norm")
        ctx = self._context(v, changes)
        weights = _Loaded(lambda name: v.parameter(name, changes), norm_shapes("final_norm", ctx.config))
        y: Any = normalize(weights, "final_norm", x, ctx)
        x = see("final_norm", _tapped(changes, "final_norm", y, Place(ctx, weights, {"input": x})))
        if logits:
            changes = v.changes_at("logits")
            ctx = self._context(v, changes)
            names = linear_shapes("head", 1, 1, ctx.config.head_bias)
            weights = _Loaded(lambda name: v.parameter(name, changes), names)
            y = ctx.kernels.linear(x, *head(weights, ctx.config), xp=ctx.xp)
            see("logits", _tapped(changes, "logits", y, Place(ctx, weights, {"input": x})))

    def _block(
        self, v: Variant, changes: Changes, i: int, x: np.ndarray, record: Callable[[str, Any], np.ndarray]
    ) -> np.ndarray:
        """The model's own block with these changes."""
        ctx, layer = self._context(v, changes), v.layers[i]
        weights = _Loaded(
            lambda name: v.parameter(f"blocks.{layer}.{name}", changes), block_shapes(ctx.config)
        )
        points = {"input": x}
        place = Place(ctx, weights, points)
        reroute = next((change.reroute for change in changes if change.reroute is not None), None)

        def tap(kind: str, y: Any) -> Any:
            y = _tapped(changes, kind, y, place)
            points[kind] = record(kind, y) if reroute is None else reroute(kind, y, place, record)
            return points[kind]

        y, _ = block(weights, x, None, ctx, tap)
        return y  # type: ignore[return-value]

    def _value(
        self,
        v: Variant,
        changes: Changes,
        i: int,
        x: np.ndarray,
        kind: str,
        before: Mapping[str, np.ndarray],
    ) -> np.ndarray:
        """The value of one point with these changes, after the values of the points before it."""

        def record(name: str, y: Any) -> np.ndarray:
            if name == kind:
                raise _Reached(y)
            return before.get(name, y)

        try:
            self._block(v, changes, i, x, record)
        except _Reached as reached:
            return reached.value
        raise ValueError(f"block {i} has no point {kind}")

    def _context(self, v: Variant, changes: Changes) -> Context:
        """What the blocks share, with these changes."""
        key = id(v.batch), v.weights.config, changes
        if len(self._contexts) >= MOST_CONTEXTS:
            self._contexts.clear()
            self._placements.clear()
        if id(v.batch) not in self._placements:
            self._placements[id(v.batch)] = v.batch, _place(v)
        if key not in self._contexts:
            self._contexts[key] = _build_context(v, changes, self._placements[id(v.batch)][1])
        return self._contexts[key]


class _Reached(Exception):
    def __init__(self, value: np.ndarray) -> None:
        super().__init__()
        self.value = value


class _Loaded(Mapping[str, Any]):
    """Parameters of these names, each loaded once, when it is first used."""

    def __init__(self, load: Callable[[str], np.ndarray], names: Iterable[str]) -> None:
        self._load, self._names = load, dict.fromkeys(names)
        self._arrays: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._arrays:
            self._arrays[name] = self._load(name)
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _tapped(changes: Changes, kind: str, x: Any, place: Place) -> Any:
    """A value after the taps of the changes."""
    for change in changes:
        if kind in change.taps:
            x = change.taps[kind](x, place)
    return x


def _place(v: Variant) -> Placement:
    """The right model's placement of a batch."""
    shown: Any = {"embed.weight": np.zeros((1, 1))}  # only its library and dtype are used
    params = Params.lazy(shown, v.weights.config, _numpy())
    return place(check_inputs(params, v.batch.ids, None, v.batch.mask, None), None)


def _build_context(v: Variant, changes: Changes, placement: Placement) -> Context:
    config, xp = (
        replace(v.weights.config, tie_embeddings=False),
        _numpy().xp,
    )  # a tied head is asked for by its name
    positions: Any = placement.positions
    for change in changes:
        config = config if change.config is None else change.config(config)
        positions = positions if change.positions is None else change.positions(positions, v.batch)
    angles: Any = rotation(config, positions, np.dtype(np.float64), xp=xp, device=None)
    if angles is not None:
        angles = tuple(np.asarray(table, np.float64) for table in angles)
    if config.position == "learned":
        positions = np.clip(positions, 0, config.max_seq_len - 1)
    kernels = Kernels(linear=widening_linear)
    ctx = Context(config, kernels, placement._replace(positions=positions), angles, xp)
    for name in Kernels._fields:
        for change in changes:
            if name in change.kernels:
                kernel = change.kernels[name](getattr(ctx.kernels, name), ctx)
                ctx = ctx._replace(kernels=ctx.kernels._replace(**{name: kernel}))
    return ctx
