"""Parameters read off a product, or a norm, of known inputs that is wrong."""

from __future__ import annotations

import numpy as np

from tinyxp.doctor.distance import absolute_difference
from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.faults import Fault
from tinyxp.doctor.faults.change import Change, Read, edit_parameters, name_in_block
from tinyxp.doctor.faults.matrices import MATRICES, parameter_fault
from tinyxp.doctor.faults.norms import NORM_POINTS
from tinyxp.doctor.fits.values import Fit, Values, read_fault, values_at
from tinyxp.doctor.points import block_of, kind
from tinyxp.doctor.variant import Variant
from tinyxp.shapes import parameter_shapes

MOST_ROWS = 4096
"""Up to so many rows of a matrix are looked for in another order."""
COMPUTED = {point: name for name, point in MATRICES.items()}
"""Kinds of trace points -> the matrices that compute them."""


def _matrix_of(evidence: Evidence, point: str) -> str | None:
    """The name of the matrix that computes a point, without ``.weight``."""
    if point == "logits":
        return "embed" if evidence.weights.config.tie_embeddings else "head"
    return f"blocks.{block_of(point)}.{COMPUTED[kind(point)]}" if kind(point) in COMPUTED else None


def fit_other_matrix(evidence: Evidence, v: Variant, point: str) -> Fit | None:
    """The matrix of another layer or name, or this one's rows in another order."""
    name = _matrix_of(evidence, point)
    if name is None:
        return None
    values = values_at(evidence, v, point)
    if not values.have_one_shape:
        return None
    shapes = parameter_shapes(evidence.weights.config)
    shape = shapes[f"{name}.weight"]
    others = [n.removesuffix(".weight") for n in shapes if shapes[n] == shape and n.endswith(".weight")]
    asked = "head" if point == "logits" else name  # a tied head is asked for by its own name
    for other in others:
        if other == name:
            continue
        fault = parameter_fault(
            f"{other} in place of {name}",
            f"{{its}} {name} is this model's {other}",
            f"load {name}.weight from its own entry",
            (kind(point),),
            _load_stem(asked, other, shapes),
        )
        error = evidence.error(point, evidence.value(v.with_faults(fault), point))
        if not error.is_fault:
            return fault, error
    return _fit_row_order(evidence, point, name, values)


def _load_stem(name: str, other: str, shapes: dict[str, tuple[int, ...]]) -> Change:
    """The change that loads one matrix, with its bias, from another's entries."""

    def change(full: str, x: np.ndarray, read: Read) -> np.ndarray:
        stem, _, end = full.rpartition(".")
        return read(f"{other}.{end}") if stem == name and shapes.get(f"{other}.{end}") == x.shape else x

    return Change(parameters=change)


def _fit_row_order(evidence: Evidence, point: str, name: str, values: Values) -> Fit | None:
    """A matrix whose rows are in another order."""
    theirs, right, _ = values
    x, y = (z.reshape(-1, z.shape[-1]).T for z in (right, theirs))
    if x.shape[1] < 3 or len(x) > MOST_ROWS or not values.are_finite:
        return None
    distances = np.sum(y * y, axis=1)[:, None] + np.sum(x * x, axis=1) - 2.0 * (y @ x.T)
    rows = np.argmin(distances, axis=1)
    moved = np.flatnonzero(rows != np.arange(len(rows)))
    if len(set(rows.tolist())) < len(rows) or not len(moved):
        return None
    error = evidence.error(point, right[..., rows])
    if error.is_fault:
        return None
    some = ", ".join(map(str, rows[:8])) + ("..." if len(rows) > 8 else "")
    says = f"{{its}} {name} has its rows in another order: {some} ({len(moved)} of {len(rows)} moved)"
    key = f"{name_in_block(name)} rows reordered"
    return read_fault(key, says, f"restore the order of the rows of {name}", point), error


def find_other_weights(evidence: Evidence, v: Variant, point: str) -> Fault | None:
    """The fault of a product of known inputs that nothing explains: its matrix or bias is another."""
    name = "embed" if point == "embed" else _matrix_of(evidence, point)
    if name is None:
        return None
    values = values_at(evidence, v, point)
    if not values.have_one_shape:
        return None
    theirs = values.theirs
    if kind(point) in ("attn.out", "mlp.out") and not np.any(theirs):
        words = "attention" if kind(point) == "attn.out" else "the MLP"
        return read_fault(f"{words} left out", f"{{it}} leaves {words} out: its result is 0", "add it", point)
    matrix = "head" if point == "logits" else name
    key, entry = f"other weights: {matrix}", f"{name}.weight"
    rows = _wrong_units(values)[: 0 if point == "embed" else None]
    if len(rows):
        some = ", ".join(map(str, rows[:8])) + ("..." if len(rows) > 8 else "")
        where = f"{'rows' if len(rows) > 1 else 'row'} {some}"
        zero = " (zero there)" if not np.any(theirs[..., rows][np.isfinite(theirs[..., rows])]) else ""
        fix = f"compare {'these rows' if len(rows) > 1 else 'this row'} of {entry} with the checkpoint's"
        return read_fault(key, f"{{its}} {matrix} differs from this model's in {where}{zero}", fix, point)
    if point == "logits" and evidence.weights.config.tie_embeddings:
        says = "{its} head is a separate matrix: not the embedding, nor the embedding shifted or scaled"
        fix = "use the embedding as the head (tie_embeddings is true)"
        return read_fault("head not tied", says, fix, point)
    says = f"{{its}} {matrix} is neither this model's nor a known rearrangement of it"
    return read_fault(key, says, f"compare {entry} with the checkpoint's", point)


def _wrong_units(values: Values) -> np.ndarray:
    """The last indices at which a point differs, if they are few."""
    theirs, right, counts = values
    by_unit = np.max(absolute_difference(theirs, right, counts), axis=tuple(range(theirs.ndim - 1)))
    usual = 20.0 * float(np.median(by_unit))
    rows = np.flatnonzero(by_unit > max(usual, 1e-3 * float(np.max(by_unit))))
    return rows if len(rows) <= len(by_unit) // 2 else rows[:0]


def fit_bias(evidence: Evidence, v: Variant, point: str) -> Fit | None:
    """A product that is off by one vector everywhere: its bias."""
    name = _matrix_of(evidence, point)
    values = values_at(evidence, v, point)
    theirs, right, counts = values
    if name is None or not values.have_one_shape or not values.are_finite:
        return None
    rows = (theirs - right)[np.broadcast_to(counts, theirs.shape)[..., 0]]
    if len(rows) < 2:
        return None
    off = np.mean(rows, axis=0)
    error = evidence.error(point, right + off)
    if error.is_fault:
        return None
    has_bias = f"{name}.bias" in parameter_shapes(evidence.weights.config)
    what, where = "one that this model does not have", ""
    if has_bias:
        what = _name_multiple(off, evidence.weights.read(f"{name}.bias")) or "another one"
    units = np.flatnonzero(np.abs(off) > 1e-3 * np.max(np.abs(off)))
    if what in ("another one", "one that this model does not have") and len(units) < len(off):
        where = f", in {len(units)} of {len(off)} numbers"
    says = f"{{its}} bias of {name} is {what}{where}"
    return read_fault(f"{name} bias {what}", says, f"compare {name}.bias", point), error


def _name_multiple(off: np.ndarray, bias: np.ndarray) -> str:
    """What was done with a bias, given the difference that it makes; "" if nothing simple."""
    ways = {1.0: "added twice", -2.0: "subtracted", -1.0: "dropped", -0.5: "halved"}
    return next((w for c, w in ways.items() if np.allclose(off, c * bias, rtol=1e-3, atol=1e-5)), "")


def fit_norm_weight(evidence: Evidence, v: Variant, point: str) -> Fit | None:
    """A norm with another weight or bias."""
    if kind(point) not in NORM_POINTS:
        return None
    weights, biases = ([f"{name}.{end}" for name in NORM_POINTS] for end in ("weight", "bias"))
    plain = [edit_parameters(weights, np.ones_like), edit_parameters(biases, np.zeros_like)]
    bare = v.with_faults(*(parameter_fault("", "", "", (), change) for change in plain))
    values = values_at(evidence, bare, point)
    theirs, x, counts = values
    if not values.have_one_shape or not values.are_finite:
        return None
    rows = np.broadcast_to(counts, theirs.shape)[..., 0]
    x_rows, y_rows = x[rows], theirs[rows]
    if len(y_rows) < 3:
        return None
    is_layer = evidence.weights.config.norm == "layer"
    x_mean, y_mean = (np.mean(z, axis=0) if is_layer else 0.0 for z in (x_rows, y_rows))
    centred = x_rows - x_mean
    with np.errstate(all="ignore"):
        weight = np.sum(centred * (y_rows - y_mean), axis=0) / np.sum(centred**2, axis=0)
    error = evidence.error(point, np.nan_to_num(weight) * (x - x_mean) + y_mean)
    if error.is_fault:
        return None
    scale = float(np.max(np.abs(weight)))
    for name in parameter_shapes(evidence.weights.config):
        is_other = name.endswith("norm.weight") and name != f"{point}.weight"
        if is_other and np.max(np.abs(evidence.weights.read(name) - weight)) <= 1e-3 * scale:
            other = name.removesuffix(".weight")
            says = f"{{its}} {point} has the weight of {other}"
            fix = f"load {point}.weight from its own entry"
            return read_fault(f"{other} in place of {point}", says, fix, point), error
    says = f"{{its}} {point} has another weight than this model's"
    fix = f"compare {point}.weight with the checkpoint's"
    return read_fault(f"other weights: {point}", says, fix, point), error
