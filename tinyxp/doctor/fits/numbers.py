"""Numbers read off the values: those of the catalogue's rows, dropout, constant factors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.faults import NumberFault, list_rows
from tinyxp.doctor.fits.values import Fit, read_fault, values_at
from tinyxp.doctor.points import axes, block_of, kind
from tinyxp.doctor.variant import Variant

STARTS_PER_E = 1.5
"""How many starts a fit has for each factor of e in a number's range."""
EARLY = 32
"""Up to which position values are fitted: at later ones rotations turn too fast to be followed."""
STEPS = 12
"""How many steps a fit takes at most from each start."""


def fit_number(evidence: Evidence, v: Variant, point: str) -> Fit | None:
    """The number in a row of the catalogue that explains the point."""
    for row in list_rows(evidence.weights.config):
        if isinstance(row, NumberFault) and kind(point) in row.points:
            fitted = _fit_row(evidence, v, point, row)
            if fitted is not None:
                return fitted
    return None


def _fit_row(evidence: Evidence, v: Variant, point: str, row: NumberFault) -> Fit | None:
    values = values_at(evidence, v, point)
    if not values.have_one_shape or not values.are_finite:
        return None
    early = np.arange(values.theirs.shape[axes(point).index("position")]) < EARLY
    early = early[None, None, :, None] if values.theirs.ndim == 4 else early[None, :, None]
    counts = np.broadcast_to(values.counts, values.theirs.shape) & early

    def residual(log: float) -> np.ndarray:
        x = evidence.value(v.with_faults(row.at(float(np.exp(log)))), point)
        difference: np.ndarray = (values.theirs - x)[counts]
        return difference

    fitted = minimise(residual, float(np.log(row.low)), float(np.log(row.high)))
    if fitted is None:
        return None
    number = float(np.exp(fitted))
    for rounded in (*(float(f"{number:.{digits}g}") for digits in (1, 2, 4)), number):
        fault = row.at(rounded)
        error = evidence.error(point, evidence.value(v.with_faults(fault), point))
        if not error.is_fault:
            return fault, error
    return None


def minimise(residual: Callable[[float], np.ndarray], low: float, high: float) -> float | None:
    """The number in a range whose residual is smallest: Gauss-Newton steps from the best of a grid of starts.

    None if the residual is not finite, or if no start improves on its neighbours.
    """
    starts = np.linspace(low, high, max(3, int((high - low) * STARTS_PER_E)))
    norms = [float(np.linalg.norm(residual(x))) for x in starts]
    if not np.isfinite(norms).any():
        return None
    x = float(starts[int(np.nanargmin(norms))])
    widest = float(starts[1] - starts[0])
    r = residual(x)
    for _ in range(STEPS):
        h = 1e-6 if x + 1e-6 <= high else -1e-6
        slope = (residual(x + h) - r) / h
        curvature = float(np.vdot(slope, slope))
        if not curvature > 0.0:
            return None
        step = float(np.clip(-float(np.vdot(slope, r)) / curvature, -widest, widest))
        new = float(np.clip(x + step, low, high))
        r_new = residual(new)
        while np.linalg.norm(r_new) > np.linalg.norm(r) and abs(new - x) > 1e-9:  # too far: halve the step
            new = (new + x) / 2.0
            r_new = residual(new)
        if abs(new - x) <= 1e-9:
            break
        x, r = new, r_new
    return x


DROPPED = ("embed", "attn.weights", "attn.heads", "attn.out", "mlp.hidden", "mlp.out")
"""The kinds of points at which models drop out."""


def fit_dropout(evidence: Evidence, v: Variant, point: str) -> Fit | None:
    """Values set to 0 at random, and the others divided by the share that is left."""
    if kind(point) not in DROPPED:
        return None
    values = values_at(evidence, v, point)
    if not values.have_one_shape:
        return None
    theirs, right, counts = values
    large = counts & (np.abs(right) > 1e-3 * np.max(np.abs(right), initial=0.0))
    gone = large & (theirs == 0.0)
    kept = large & ~gone
    number, dropped = int(large.sum()), int(gone.sum())
    if not dropped or not kept.any():
        return None
    ratio = float(np.median(theirs[kept] / right[kept]))
    share = dropped / number
    spread = 5.0 * np.sqrt(share * (1.0 - share) / number) + 1e-3
    has_zero_unit = np.all(gone, axis=tuple(range(gone.ndim - 1))).any()
    if ratio < 1.001 or has_zero_unit or abs(1.0 - 1.0 / ratio - share) > spread:
        return None
    error = evidence.error(point, np.where(theirs == 0.0, 0.0, right * ratio))
    if error.is_fault:
        return None
    says = (
        f"{{it}} runs with dropout on: {share:.1%} of {kind(point)} is 0 "
        f"and the rest is multiplied by {ratio:.4g} (p = {1.0 - 1.0 / ratio:.2g})"
    )
    return read_fault("dropout", says, "switch to evaluation mode: model.eval() in torch", point), error


def fit_factor(evidence: Evidence, v: Variant, point: str) -> Fit | None:
    """The right value times one number."""
    values = values_at(evidence, v, point)
    theirs, right, counts = values
    if not values.have_one_shape or not np.isfinite(theirs[np.broadcast_to(counts, theirs.shape)]).all():
        return None
    x, y = np.where(counts, right, 0.0), np.where(counts, theirs, 0.0)
    square = float(np.vdot(x, x))
    if square == 0.0:
        return None
    times = float(np.vdot(x, y)) / square
    error = evidence.error(point, right * times)
    if error.is_fault or times == 0.0 or abs(times - 1.0) < 1e-3:
        return None
    says = f"{{its}} {kind(point)} is {times:.6g} times what it should be"
    fix = "look for a scale that is applied twice, or not at all"
    return read_fault(f"{kind(point)} times {times:.4g}", says, fix, point), error


BRANCHES = {"attn_residual": ("attention", "attn.out"), "residual": ("the MLP", "mlp.out")}


def fit_branch(evidence: Evidence, v: Variant, point: str) -> Fit | None:
    """A residual whose branch, or whose stream, is multiplied by a constant."""
    if kind(point) not in BRANCHES:
        return None
    words, added = BRANCHES[kind(point)]
    out = evidence.points.get(f"blocks.{block_of(point)}.{added}")
    values = values_at(evidence, v, point)
    if out is None or not values.have_one_shape or not values.are_finite:
        return None
    branch = np.where(values.counts, out.astype(np.float64), 0.0)
    x = np.where(values.counts, values.right, 0.0) - branch
    y = np.where(values.counts, values.theirs, 0.0)
    both = np.stack([x.ravel(), branch.ravel()], axis=1)
    if not np.isfinite(both).all():
        return None
    (stream, times), *_ = np.linalg.lstsq(both, y.ravel(), rcond=None)
    error = evidence.error(point, stream * x + times * branch)
    if error.is_fault or (abs(stream - 1.0) < 1e-3 and abs(times - 1.0) < 1e-3):
        return None
    says = f"{{it}} computes {stream:.4g} x + {times:.4g} f(x) around {words}; it is x + f(x)"
    fix = "add the branch to the residual stream without scaling either"
    return read_fault(f"residual around {words} scaled", says, fix, point), error
