"""The search: which fault, or which two, make the trusted model compute what the side in doubt has.

Where the side's values are known, each operation is judged on the side's own inputs, so that faults are found
one after another, wherever they are. Where only its logits are known, the whole model is run with each fault.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tinyxp.doctor.distance import round_to
from tinyxp.doctor.faults import Fault, faults_of
from tinyxp.doctor.faults.matrices import MATRICES
from tinyxp.doctor.fits import FITS, dropout, layer_order, other_weights
from tinyxp.doctor.held import ENDLESS, Error, Errors, Held, Segment
from tinyxp.doctor.pairs import FirstToken, in_step, in_whole, planted_in
from tinyxp.doctor.points import BLOCK_POINTS, block_of, kind, point_order, sort_points
from tinyxp.doctor.reference_run import WeightSource
from tinyxp.doctor.traces import Batch, Points, compared_mask
from tinyxp.doctor.variant import Variant

MOST = 6
"""How many faults are looked for, one after another."""
MOVED = 4
"""How many products of a block must be wrong before layers are looked for in another order."""
BESIDE = 3
"""How many of the closest faults everywhere are tried beside one in a single block."""
OF_PADDING = ("padding not masked", "padding mask inverted", "positions not counted from the mask")
MOST_PAIRS = 3000
"""How many pairs are tried at one point."""


Tried = dict[tuple[Fault, ...], Errors]


@dataclass
class Finding:
    """What explains one point that parts, and how well."""

    point: str
    faults: tuple[Fault, ...]  # none where nothing fits
    before: Error
    after: Error
    blocks: tuple[int, ...] | None = None  # None: every block, or none in particular
    points: list[str] = field(default_factory=list)  # all that it explains
    closest: tuple[Fault, ...] = ()  # where nothing fits
    only: str = ""  # the kind of point alone that is wrong, where others like it are right
    alike: tuple[Fault, ...] = ()  # others that explain the same, as far as can be seen

    @property
    def closed(self) -> float:
        """Which part of the gap is closed, from 0 to 1."""
        before, after = self.before.distance.rms, self.after.distance.rms
        return 1.0 if before == 0.0 else max(0.0, 1.0 - after / before) if np.isfinite(after) else 0.0


class Search(Held):
    """The faults that are put into the trusted model, and what they explain."""

    def __init__(
        self,
        weights: WeightSource,
        batch: Batch,
        trace: Points,
        dtype: str,
        *,
        seconds: float,
        in_file: bool = False,
    ) -> None:
        super().__init__(weights, batch, trace, dtype)
        self.in_file = in_file
        whole = batch.mask is None
        self.faults = [f for f in faults_of(weights.config) if not (whole and f.key in OF_PADDING)]
        self.deadline = time.monotonic() + seconds
        self.ran_out = False
        self.named: set[str] = set()  # the faults that were found

    def explain(self) -> tuple[list[Finding], Variant]:
        """What explains each point that parts by itself, in order, and the model with all of it put in."""
        v, findings = self.right, list[Finding]()
        settled: set[str] = set()
        for _ in range(MOST):
            own = self.all_errors(v)
            bad = [name for name in sort_points(own) if own[name].excess > 1.0 and name not in settled]
            if not bad:
                break
            finding, v = self._explain(v, bad[0], own)
            if not self._is_finite(bad[0]):  # what follows has no right answer
                settled |= {name for name in bad if not self._is_finite(name)}
            self._add(findings, finding)
            self.named |= {fault.key for fault in finding.faults}
            settled |= set(finding.points)
            if not finding.faults:
                settled |= {n for n in bad if kind(n) == kind(bad[0]) or own[n] is ENDLESS}
        return findings, v

    def _is_finite(self, point: str) -> bool:
        found = self.trace[point]
        return bool(np.isfinite(found).all())

    def _add(self, findings: list[Finding], new: Finding) -> None:
        """A finding more, or more blocks of one that is there."""
        for old in findings:
            if new.faults and [f.key for f in old.faults] == [f.key for f in new.faults]:
                both = {*(old.blocks or ()), *(new.blocks or range(self.theirs))}
                old.blocks = None if len(both) == self.theirs else tuple(sorted(both))
                old.points = sort_points({*old.points, *new.points})
                return
        findings.append(new)

    def _explain(self, v: Variant, point: str, own: Errors) -> tuple[Finding, Variant]:
        segment = next(s for s in self.segments if self.holds(s, point))
        here = {name: error for name, error in own.items() if self.holds(segment, name)}
        candidates = self._candidates(point, segment)
        first = FirstToken.of(self, v, candidates, self._in_time)
        singles = [fault for fault in candidates if first is None or first.allows(fault)]
        tried: Tried = {(fault,): self._try(v, (fault,), segment) for fault in singles if self._in_time()}
        solved = [key for key, errors in tried.items() if self._solves(v, key, point, here, errors)]
        if not solved and (moved := self._moved(v, point, own)):
            return moved
        if not solved and (single := self._single(v, point, candidates, here, segment)):
            return single
        if not solved and (fitted := self._fitted(v, point, own)):
            return fitted
        if not solved:
            tried |= self._pairs(v, point, candidates, tried, segment, first)
            solved = [k for k, e in tried.items() if len(k) == 2 and self._solves(v, k, point, here, e)]
        if not solved and segment.last > segment.first:
            return self._alone(v, point, candidates, here, tried, segment, first)
        if not solved:
            return self._other_weights(v, point, own) or self._hopeless(point, own, tried), v
        best, *others = self._ranked(v, solved, tried)
        finding, after = self._scoped(v, best, point, own)
        if any("layers" in fault.sets for fault in best):
            finding, after = self._in_order(v, finding, after, own)
        v = after
        finding.alike = tuple(key[0] for key in others if len(key) == 1)
        return finding, v

    def _moved(self, v: Variant, point: str, own: Errors) -> tuple[Finding, Variant] | None:
        """Layers in another order, where most products of a block are wrong."""
        i = block_of(point)
        bad = [n for n in own if block_of(n) == i and kind(n) in MATRICES.values() and own[n].excess > 1.0]
        if i is None or (len(bad) < MOVED and len(self.trace) > 3 * self.theirs):
            return None
        found = layer_order(self, v, own)
        if found is None:
            return None
        fault, planted = found
        after = self.all_errors(planted)
        gone = _gone(own, after)
        return (
            (Finding(point, (fault,), own[point], after[point], points=gone), planted)
            if point in gone
            else None
        )

    def _in_order(
        self, v: Variant, finding: Finding, planted: Variant, own: Errors
    ) -> tuple[Finding, Variant]:
        """The finding, or, where it leaves blocks unexplained, the order of the layers as it is read off."""
        left = self.all_errors(planted)
        found = layer_order(self, v, own) if _count(left) else None
        if found is None:
            return finding, planted
        fault, ordered_ = found
        after = self.all_errors(ordered_)
        if _count(after) >= _count(left):
            return finding, planted
        gone = _gone(own, after)
        point = finding.point
        return Finding(point, (fault,), own[point], after.get(point, own[point]), points=gone), ordered_

    def _single(
        self, v: Variant, point: str, candidates: Sequence[Fault], here: Errors, segment: Segment
    ) -> tuple[Finding, Variant] | None:
        """A fault in code that is made at one kind of point, where others like it are right."""
        for fault in candidates:
            if not fault.everywhere or len(fault.shows) == 1 or kind(point) not in fault.shows:
                continue
            planted = fault.plant(v)
            if planted.weights is not v.weights or planted.layers is not v.layers:
                continue
            planted = planted.only_at(kind(point), v)
            errors = self.errors(planted, segment)
            if self._solves(v, (fault,), point, here, errors) and errors[point].excess <= 1.0:
                finding, _ = self._scoped_to(planted, v, (fault,), point, self.all_errors(v))
                finding.only = kind(point)
                return finding, planted
        return None

    def _fitted(self, v: Variant, point: str, own: Errors) -> tuple[Finding, Variant] | None:
        """What no list can hold, read off the values."""
        for fit in FITS:
            found = fit(self, v, point)
            if found is None:
                continue
            fault, after = found
            if fault.plant(v) is not v:
                return self._scoped(v, (fault,), point, own)
            alike = [
                n
                for n in sort_points(own)
                if own[n].excess > 1.0
                and (fit is dropout or kind(n) == kind(point))
                and (n == point or ((same := fit(self, v, n)) is not None and same[0].key == fault.key))
            ]
            blocks = {i for i in map(block_of, alike) if i is not None}
            some = tuple(sorted(blocks)) if 0 < len(blocks) < self.theirs else None
            return Finding(point, (fault,), own[point], after, some, alike), v
        return None

    def _other_weights(self, v: Variant, point: str, own: Errors) -> Finding | None:
        found = other_weights(self, v, point)
        return None if found is None else Finding(point, (found,), own[point], own[point], points=[point])

    def _hopeless(self, point: str, own: Errors, tried: Tried) -> Finding:
        def rms(key: tuple[Fault, ...]) -> float:
            return tried[key][point].distance.rms if point in tried[key] else np.inf

        near = min(tried, key=rms, default=())
        after = tried[near][point] if near and rms(near) < own[point].distance.rms else own[point]
        return Finding(
            point, (), own[point], after, closest=near if after is not own[point] else (), points=[point]
        )

    def _in_time(self) -> bool:
        self.ran_out = self.ran_out or time.monotonic() > self.deadline
        return not self.ran_out

    def _candidates(self, point: str, segment: Segment) -> list[Fault]:
        """The faults that can show at a point first, given what is known before it."""
        whole = segment == Segment(-1, max(self.n, self.theirs))
        if segment.last > segment.first:
            config, t = self.weights.config, self.batch.ids.shape[1]
            room = config.position == "rope" or t < config.max_seq_len
            return [fault for fault in self.faults if (whole and room) or "ids" not in fault.sets]
        i = block_of(point)
        if i is None:
            kinds = {"final_norm", "logits"} if "final_norm" not in self.trace else {point}
        else:
            known = [
                name for name in self.trace if block_of(name) == i and point_order(name) < point_order(point)
            ]
            start = max((BLOCK_POINTS.index(kind(name)) for name in known), default=-1)
            kinds = {*BLOCK_POINTS[start + 1 : BLOCK_POINTS.index(kind(point)) + 1]}
            if kind(point) in (
                "attn.k",
                "attn.v",
                "attn.k_rotated",
                "mlp.up",
            ):  # whose sibling stands before it
                kinds |= {kind(point)}
        return [f for f in self.faults if kinds & set(f.shows) and "ids" not in f.sets]

    def _try(self, v: Variant, faults: Iterable[Fault], segment: Segment) -> Errors:
        return self.errors(planted_in(v, faults), segment)

    def _solves(self, v: Variant, key: tuple[Fault, ...], point: str, before: Errors, after: Errors) -> bool:
        """Whether the point no longer parts, and no other does that did not before."""
        if point not in after:
            return False
        spoilt = [
            name for name in after if after[name].excess > 1.0 and before.get(name, after[name]).excess <= 1.0
        ]
        if spoilt:
            return False
        if after[point].excess <= 1.0:
            return True
        return len(key) == 1 and bool(key[0].coarse) and self._resembles(v, key[0], point)

    def _resembles(self, v: Variant, fault: Fault, point: str) -> bool:
        """Whether the side's error at a point is that of computing in few digits: of that size and shape."""
        values = [self.right_at(variant, point) for variant in (v, fault.plant(v))]
        found = self.trace[point].astype(np.float64)
        if found.shape != values[0].shape:
            return False
        counts = np.broadcast_to(compared_mask(point, found.shape, self.batch), found.shape) & np.isfinite(
            found
        )
        if not counts.any():
            return False
        theirs, expected = (found - values[0])[counts], (values[1] - values[0])[counts]
        a, b = float(np.sqrt(np.mean(theirs**2))), float(np.sqrt(np.mean(expected**2)))
        if not (b > 0.0 and 0.3 < a / b < 3.0):
            return False
        alike = float(np.mean(theirs * expected)) / (a * b)
        return alike > 0.5 or bool(np.array_equal(round_to(found[counts], fault.coarse), found[counts]))

    def _pairs(
        self,
        v: Variant,
        point: str,
        candidates: Sequence[Fault],
        tried: Tried,
        segment: Segment,
        first: FirstToken | None,
    ) -> Tried:
        """Two at a time, until a pair explains the point, or, within one step, all of them."""
        plain = [fault for fault in candidates if not fault.coarse]

        def closeness(fault: Fault) -> float:
            error = tried[(fault,)].get(point)
            return np.inf if error is None or np.isnan(error.distance.rms) else error.distance.rms

        ranked = sorted((fault for fault in plain if (fault,) in tried), key=closeness)
        one_step = segment.last == segment.first
        found: Tried = {}
        for pair in in_step(ranked) if one_step else in_whole(first, plain, ranked):
            if not self._in_time() or len(found) == MOST_PAIRS:
                break
            found[pair] = self._try(v, pair, segment)
            if not one_step and point in found[pair] and found[pair][point].excess <= 1.0:
                break
        return found

    def _alone(
        self,
        v: Variant,
        point: str,
        candidates: Sequence[Fault],
        here: Errors,
        tried: Tried,
        segment: Segment,
        first: FirstToken | None,
    ) -> tuple[Finding, Variant]:
        """A fault in one block of a segment only, by itself or beside one that is everywhere."""
        blocks = range(max(segment.first, 0), min(segment.last + 1, len(v.order)))

        def rms(key: tuple[Fault, ...]) -> float:
            return tried[key][point].distance.rms if len(key) == 1 and point in tried[key] else np.inf

        beside = [] if first is None else [(fault,) for fault in first.closest(candidates, BESIDE)]
        for others in dict.fromkeys([(), *beside, *sorted(tried, key=rms)[:BESIDE]]):
            start = planted_in(v, others)
            for fault in candidates:
                if fault.everywhere or fault.plant(self.right).layers is not None:
                    continue
                for i in blocks:
                    if not self._in_time():
                        break
                    planted = fault.plant(start).narrowed([i], start)
                    errors = self.errors(planted, segment)
                    if point in errors and errors[point].excess <= 1.0:
                        key = (*others, fault)
                        return Finding(point, key, here[point], errors[point], (i,), [point]), planted
        return self._hopeless(point, here, tried), v

    def _ranked(
        self,
        v: Variant,
        solved: list[tuple[Fault, ...]],
        tried: Tried,
    ) -> list[tuple[Fault, ...]]:
        """Of those that explain the point, those that leave the fewest points unexplained, best first."""

        def rank(key: tuple[Fault, ...]) -> tuple[float, ...]:
            new = sum(f.key not in self.named for f in key)  # what other blocks have is likelier
            elsewhere = any(f.everywhere == self.in_file for f in key)  # in code, if files are in doubt
            return (
                _count(tried[key]),
                len(key),
                new,
                max(f.likely for f in key),
                elsewhere,
                sum(e.distance.rms for e in tried[key].values()),
            )

        solved = sorted(solved, key=rank)
        alike = [key for key in solved if rank(key)[:2] == rank(solved[0])[:2]][:8]
        if len(alike) == 1 or len(self.segments) == 1:
            return [key for key in alike if not any(f.coarse for f in key)] or alike
        totals = {key: _count(self.all_errors(planted_in(v, key))) for key in alike}
        alike.sort(key=lambda key: (totals[key], *rank(key)))
        best = alike[0]
        return [key for key in alike if totals[key] == totals[best] and not any(f.coarse for f in key)] or [
            best
        ]

    def _scoped(self, v: Variant, key: tuple[Fault, ...], point: str, own: Errors) -> tuple[Finding, Variant]:
        """The fault in every block, or in those alone where it helps."""
        return self._scoped_to(planted_in(v, key), v, key, point, own)

    def _scoped_to(
        self, planted: Variant, v: Variant, key: tuple[Fault, ...], point: str, own: Errors
    ) -> tuple[Finding, Variant]:
        after = self.all_errors(planted)
        helped, hurt = [], []
        for i in range(self.theirs):
            mine = [name for name in own if block_of(name) == i]
            was, now = _count(own, mine), _count(after, mine)
            helped += [i] if now < was else []
            hurt += [i] if now > was else []
        outside = [name for name in own if block_of(name) is None]
        spilt = _count(after, outside) > _count(own, outside)
        blocks: tuple[int, ...] | None = None
        if any("layers" in fault.sets for fault in key):
            pass
        elif block_of(point) is None and hurt:  # right in the blocks, wrong outside of them
            planted = planted.only_at(kind(point), v)
            after = self.all_errors(planted)
        elif any(fault.coarse for fault in key):
            pass
        elif block_of(point) is not None and helped and (hurt or spilt or len(helped) < self.theirs):
            blocks = None if len(helped) == self.theirs else tuple(helped)
            planted = planted.narrowed(helped, v)
            after = self.all_errors(planted)
        if any(fault.coarse for fault in key):  # few digits: imitated, not met
            shows = {point} if point in ("logits", "final_norm") else {n for f in key for n in f.shows}
            gone = [n for n in sort_points(own) if (kind(n) in shows or n == point) and own[n].excess > 1.0]
            return Finding(point, key, own[point], after.get(point, own[point]), None, gone), planted
        gone = _gone(own, after)
        return Finding(point, key, own[point], after.get(point, own[point]), blocks, gone), planted


def _count(errors: Errors, names: Iterable[str] | None = None) -> int:
    """How many points part, of all or of these."""
    return sum(errors[name].excess > 1.0 for name in (errors if names is None else names) if name in errors)


def _gone(before: Errors, after: Errors) -> list[str]:
    """The points that part before and no longer after, in order."""
    return [
        n for n in sort_points(before) if before[n].excess > 1.0 and after.get(n, before[n]).excess <= 1.0
    ]
