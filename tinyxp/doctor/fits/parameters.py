"""Parameters read off where a product, or a look-up, of known inputs is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tinyxp.doctor.choices import F
from tinyxp.doctor.distance import Distance, absolute_difference
from tinyxp.doctor.faults import Fault
from tinyxp.doctor.faults.matrices import MATRICES
from tinyxp.doctor.faults.norms import NORMED
from tinyxp.doctor.faults.record import changing, within
from tinyxp.doctor.fits.values import Fit, given, values
from tinyxp.doctor.held import Error, Held
from tinyxp.doctor.points import block_of, kind
from tinyxp.doctor.variant import Variant
from tinyxp.shapes import parameter_shapes

MOST_ROWS = 4096
"""Up to so many rows of a matrix are looked for in another order."""


def elsewhere(held: Held, v: Variant, point: str) -> Fit | None:
    """A matrix of another layer or name, or this one's rows in another order, where a product is wrong."""
    ours = _matrix(held, point)
    if ours is None:
        return None
    found, right, _ = values(held, v, point)
    if found.shape != right.shape:
        return None
    shapes = parameter_shapes(held.weights.config)
    others = [n for n in shapes if shapes[n] == shapes[ours] and n != ours and n.endswith(".weight")]
    for other in others:

        def change(name: str, x: F, v: Variant, other: str = other) -> F:
            stems = ours.removesuffix("weight"), other.removesuffix("weight")
            return (
                v.weights.read(other if name == ours else name.replace(*stems))
                if name.startswith(stems[0])
                else x
            )

        error = held.error(point, held.right_at(v.edited(lambda c: c, change), point))
        if error.excess <= 1.0:
            mine, its = ours.removesuffix(".weight"), other.removesuffix(".weight")
            fault = changing(
                f"{its} in place of {mine}",
                f"{{its}} {mine} is this model's {its}",
                f"load {ours} from its own entry",
                (kind(point),),
                change,
            )
            return fault, error
    return _reordered(held, point, ours, found, right)


def _reordered(held: Held, point: str, ours: str, found: F, right: F) -> Fit | None:
    x, y = (z.reshape(-1, z.shape[-1]).T for z in (right, found))
    if x.shape[1] < 3 or len(x) > MOST_ROWS or not np.isfinite(y).all():
        return None
    apart = np.sum(y * y, axis=1)[:, None] + np.sum(x * x, axis=1) - 2.0 * (y @ x.T)
    rows = np.argmin(apart, axis=1)
    moved = np.flatnonzero(rows != np.arange(len(rows)))
    if len(set(rows.tolist())) < len(rows) or not len(moved):
        return None
    error = held.error(point, right[..., rows])
    if error.excess > 1.0:
        return None
    some = ", ".join(map(str, rows[:8])) + ("..." if len(rows) > 8 else "")
    mine = ours.removesuffix(".weight")
    says = f"{{its}} {mine} has its rows in another order: {some} ({len(moved)} of {len(rows)} moved)"
    return given(
        f"{within(ours).removesuffix('.weight')} rows reordered", says, "put its rows back in order", (point,)
    ), error


def _matrix(held: Held, point: str) -> str | None:
    """The parameter whose product a point is."""
    names = {point_: ours for ours, point_ in MATRICES.items()}
    if point == "logits":
        return "embed.weight" if held.weights.config.tie_embeddings else "head.weight"
    return f"blocks.{block_of(point)}.{names[kind(point)]}.weight" if kind(point) in names else None


def other_weights(held: Held, v: Variant, point: str) -> Fault | None:
    """Where a product of known inputs is wrong and nothing explains it: its matrix or bias is another."""
    name = "embed.weight" if point == "embed" else _matrix(held, point)
    if name is None:
        return None
    found, right, counts = values(held, v, point)
    if found.shape != right.shape:
        return None
    by_unit = np.max(absolute_difference(found, right, counts), axis=tuple(range(found.ndim - 1)))
    usual = 20.0 * float(np.median(by_unit)) if np.median(by_unit) > 0.0 else 0.0
    rows = np.flatnonzero(by_unit > max(usual, 1e-3 * float(np.max(by_unit))))
    few = 0 < len(rows) <= len(by_unit) // 2
    some = ", ".join(map(str, rows[:8])) + ("..." if len(rows) > 8 else "")
    where = f" in {'rows' if len(rows) > 1 else 'row'} {some}" if few and point != "embed" else ""
    if kind(point) in ("attn.out", "mlp.out") and not np.any(found):
        words = "attention" if kind(point) == "attn.out" else "the MLP"
        return given(f"{words} left out", f"{{it}} leaves {words} out: its result is 0", "add it", (point,))
    matrix = "head" if point == "logits" else name.removesuffix(".weight")
    if few and point != "embed":
        zero = " (zero there)" if not np.any(found[..., rows][np.isfinite(found[..., rows])]) else ""
        says = f"{{its}} {matrix} differs from this model's{where}{zero}"
        fix = f"compare {'these rows' if len(rows) > 1 else 'this row'} of {name} with the checkpoint's"
        return given(f"other weights: {matrix}", says, fix, (point,))
    if point == "logits" and held.weights.config.tie_embeddings:
        return given(
            "head not tied",
            "{its} head is a matrix of its own, neither the embedding nor that shifted or scaled",
            "use the embedding as the head (tie_embeddings is true)",
            (point,),
        )
    says = f"{{its}} {matrix} is not this model's{where}, nor any rearrangement of it that is known here"
    return given(
        f"other weights: {matrix}",
        says,
        f"compare {name} with the checkpoint's",
        (point,),
    )


def bias(held: Held, v: Variant, point: str) -> Fit | None:
    """A product that is off by the same vector everywhere: its bias."""
    ours = _matrix(held, point)
    found, right, counts = values(held, v, point)
    if ours is None or found.shape != right.shape or not np.isfinite(found).all():
        return None
    flat = (found - right)[np.broadcast_to(counts, found.shape)[..., 0]]
    if len(flat) < 2:
        return None
    off = np.mean(flat, axis=0)
    error = held.error(point, right + off)
    if error.excess > 1.0:
        return None
    name = ours.removesuffix("weight") + "bias"
    mine = held.weights.read(name) if name in parameter_shapes(held.weights.config) else None
    ways = {1.0: "added twice", -2.0: "subtracted", -1.0: "dropped", -0.5: "halved"}
    said = [
        w for c, w in ways.items() if mine is not None and np.allclose(off, c * mine, rtol=1e-3, atol=1e-5)
    ]
    what = said[0] if said else "another one" if mine is not None else "one that this model does not have"
    rows = np.flatnonzero(np.abs(off) > 1e-3 * np.max(np.abs(off)))
    where = f", in {len(rows)} of {len(off)} numbers" if not said and len(rows) < len(off) else ""
    stem = ours.removesuffix(".weight")
    return given(
        f"{stem} bias {what}", f"{{its}} bias of {stem} is {what}{where}", f"compare {name}", (point,)
    ), error


def looked_up(held: Held, v: Variant, point: str) -> Fit | None:
    """Rows of the embedding, or of the positions, that belong to others."""
    if point != "embed":
        return None
    found, right, _ = values(held, v, point)
    if found.shape != right.shape:
        return None
    real = held.batch.real
    wrong = (np.max(np.abs(found - right), axis=-1) > 1e-4 * np.max(np.abs(right))) & real
    if not wrong.any():
        return None
    ids = held.batch.ids
    places = np.maximum(np.cumsum(real, axis=1) - 1, 0)
    tokens = held.weights.read("embed.weight")
    learned = held.weights.config.position == "learned"
    rows = held.weights.read("pos_embed.weight") if learned else None
    base = found - (rows[places] if rows is not None else 0.0)
    which = _nearest(base[wrong], tokens)
    if which is not None and not np.any(which == ids[wrong]):
        pairs = dict(zip(ids[wrong].tolist(), which.tolist(), strict=True))
        says, key = _moved("token", pairs, len(tokens), not (~wrong & real).any())
        return given(key, f"{{it}} {says}", "line the rows up with the tokenizer's ids", (point,)), ENDED
    which = None if rows is None else _nearest((found - tokens[ids])[wrong], rows)
    if which is not None and rows is not None:
        pairs = dict(zip(places[wrong].tolist(), which.tolist(), strict=True))
        says, key = _moved("position", pairs, len(rows), False)
        return given(key, f"{{it}} {says}", "add row p of the table at position p", (point,)), ENDED
    return None


ENDED = Error(0.0, Distance(0.0, 0.0, (), 0.0, 0.0))
"""A look-up that fits is exact."""


def _nearest(found: F, table: F) -> F | None:
    """The row of a table that each vector is, -1 for zeros; None where one is no row."""
    wide = table.astype(np.float64)
    scale = float(np.max(np.abs(wide)))
    which = []
    for x in found:
        if np.max(np.abs(x)) <= 1e-5 * scale:
            which.append(-1)
            continue
        apart_ = np.max(np.abs(wide - x), axis=1)
        row = int(np.argmin(apart_))
        if not apart_[row] <= 1e-4 * scale:
            return None
        which.append(row)
    return np.array(which)


def _moved(what: str, pairs: dict[int, int], n: int, everywhere: bool) -> tuple[str, str]:
    """How rows were moved, and the key."""
    if all(row == -1 for row in pairs.values()):
        some = ", ".join(map(str, list(pairs)[:6]))
        return f"looks up zeros for {what} {some}", f"{what} rows zeroed"
    steps = {(row - i) % n for i, row in pairs.items()}
    if len(steps) == 1:
        step = next(iter(steps))
        step = step - n if step > n // 2 else step
        if len(pairs) > 1 or everywhere:
            return f"looks up row n {step:+d} for {what} n", f"{what} rows shifted by {-step:+d}"
    some = "; ".join(f"{what} {i} gets row {row}" for i, row in list(pairs.items())[:4])
    return f"looks up other rows: {some}", f"{what} rows moved"


def norm_weights(held: Held, v: Variant, point: str) -> Fit | None:
    """A norm whose weight, or bias, is another."""
    if kind(point) not in NORMED:
        return None
    plain = v.edited(lambda c: replace(c, norm_weight="1", norm_bias=False))
    found, x, counts = values(held, plain, point)
    if found.shape != x.shape or not np.isfinite(found).all():
        return None
    rows = np.broadcast_to(counts, found.shape)[..., 0]
    y, x_ = found[rows], x[rows]
    if len(y) < 3:
        return None
    layer = held.weights.config.norm == "layer"
    middle = (np.mean(x_, axis=0), np.mean(y, axis=0)) if layer else (0.0, 0.0)
    with np.errstate(all="ignore"):
        weight = np.sum((x_ - middle[0]) * (y - middle[1]), axis=0) / np.sum((x_ - middle[0]) ** 2, axis=0)
    fitted = np.nan_to_num(weight) * (x - middle[0]) + middle[1]
    error = held.error(point, fitted)
    if error.excess > 1.0:
        return None
    ours = f"{point}.weight"
    shapes = parameter_shapes(held.weights.config)
    others = [n for n in shapes if n.endswith("norm.weight") and n != ours]
    scale = float(np.max(np.abs(weight)))
    same = [n for n in others if np.max(np.abs(held.weights.read(n) - weight)) <= 1e-3 * scale]
    if same:
        theirs = same[0].removesuffix(".weight")
        says = f"{{its}} {point} has the weight of {theirs}"
        return given(
            f"{theirs} in place of {point}", says, f"load {ours} from its own entry", (point,)
        ), error
    says = f"{{its}} {point} has another weight than this model's"
    return given(f"other weights: {point}", says, f"compare {ours} with the checkpoint's", (point,)), error
