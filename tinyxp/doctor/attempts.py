"""The attempts to explain one point, in the order of their cost: each gives an answer or None."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tinyxp.doctor.evidence import Errors, count_faults, explained_points
from tinyxp.doctor.faults import Fault, Scope
from tinyxp.doctor.faults.matrices import MATRICES
from tinyxp.doctor.finding import Faults, Finding
from tinyxp.doctor.fits import FITS, find_other_weights, fit_layer_order
from tinyxp.doctor.location import locate
from tinyxp.doctor.pair_order import FirstToken, pairs_of_one_step, pairs_of_segment
from tinyxp.doctor.points import block_of, kind
from tinyxp.doctor.question import Question, rms_at, without_narrow
from tinyxp.doctor.variant import Variant

Answer = tuple[Finding, Variant]
Tried = Mapping[Faults, Errors]
"""Faults -> the errors that they leave in the segment."""

MOVED = 4
"""How many products of a block must be wrong before layers are looked for in another order."""
BESIDE = 3
"""How many of the closest faults in all blocks are tried beside one in a single block."""
MOST_PAIRS = 3000
"""How many pairs are tried at one point."""


def answer(question: Question) -> Answer:
    """The best explanation of the point, and the variant with it."""
    candidates = question.candidates()
    first = FirstToken.of(question.evidence, question.v, candidates, question.budget)
    tried = try_singles(question, candidates, first)
    if solved := _solved(question, tried):
        return name_best(question, solved, tried)
    attempt = find_moved_layers(question) or find_at_one_point(question, candidates) or read_off(question)
    if attempt:
        return attempt
    pairs = try_pairs(question, candidates, tried, first)
    if solved := _solved(question, pairs):
        return name_best(question, solved, pairs)
    tried = {**tried, **pairs}
    if not question.segment.is_one_step:
        attempt = find_in_one_block(question, candidates, tried, first)
    else:
        attempt = blame_weights(question)
    return attempt or (_unexplained(question, tried), question.v)


def try_singles(question: Question, candidates: Iterable[Fault], first: FirstToken | None) -> Tried:
    """Every candidate by itself, while there is time."""
    tried: dict[Faults, Errors] = {}
    for fault in candidates:
        if (first is None or first.allows(fault)) and question.budget.is_left():
            tried[(fault,)] = question.try_faults(fault)
    return tried


def _solved(question: Question, tried: Tried) -> list[Faults]:
    return [faults for faults, errors in tried.items() if question.is_solved_by(faults, errors)]


def name_best(question: Question, solved: list[Faults], tried: Tried) -> Answer:
    """The most likely of the faults that explain the point, in the blocks where they help."""
    best, *others = rank_solved(question, solved, tried)
    finding, wrong = locate(question, best)
    if any(fault.choice == "layers" for fault in best):
        finding, wrong = _read_layer_order(question, finding, wrong)
    alike = tuple(faults[0] for faults in others if len(faults) == 1)
    return replace(finding, alike=alike), wrong


def rank_solved(question: Question, solved: list[Faults], tried: Tried) -> list[Faults]:
    """The faults that leave the fewest points unexplained, the most likely first."""

    def rank(faults: Faults) -> tuple[float, ...]:
        is_new = sum(fault.key not in question.named for fault in faults)  # found elsewhere: likelier here
        in_code = [fault.scope is not Scope.BLOCK for fault in faults]
        unlikely = any(each == question.reads_checkpoint for each in in_code)
        errors = tried[faults]
        rms = sum(error.distance.rms for error in errors.values())
        return count_faults(errors), len(faults), is_new, max(f.rank for f in faults), unlikely, rms

    evidence = question.evidence
    solved = sorted(solved, key=rank)
    alike = [faults for faults in solved if rank(faults)[:2] == rank(solved[0])[:2]][:8]
    if len(alike) > 1 and len(evidence.segments) > 1:
        left = {f: count_faults(evidence.all_errors(question.v.with_faults(*f))) for f in alike}
        alike.sort(key=lambda faults: (left[faults], *rank(faults)))
        best = alike[0]
        exact = [f for f in alike if left[f] == left[best] and without_narrow(f) == list(f)]
        return exact or [best]
    return [faults for faults in alike if without_narrow(faults) == list(faults)] or alike


def find_moved_layers(question: Question) -> Answer | None:
    """Layers in another order, if most products of a block are wrong."""
    evidence, v, point, own = question.evidence, question.v, question.point, question.own
    i = block_of(point)
    bad = [n for n in own if block_of(n) == i and kind(n) in MATRICES.values() and own[n].is_fault]
    if i is None or (len(bad) < MOVED and len(evidence.points) > 3 * evidence.blocks):
        return None
    fault = fit_layer_order(evidence, v, own)
    if fault is None:
        return None
    wrong = v.with_faults(fault)
    after = evidence.all_errors(wrong)
    points = explained_points(own, after)
    return (Finding(point, (fault,), own[point], after[point], points), wrong) if point in points else None


def _read_layer_order(question: Question, finding: Finding, wrong: Variant) -> Answer:
    """The finding; or the order of layers read block by block, if that explains more."""
    evidence, own, point = question.evidence, question.own, question.point
    left = count_faults(evidence.all_errors(wrong))
    fault = fit_layer_order(evidence, question.v, own) if left else None
    if fault is None:
        return finding, wrong
    ordered = question.v.with_faults(fault)
    after = evidence.all_errors(ordered)
    if count_faults(after) >= left:
        return finding, wrong
    points = explained_points(own, after)
    return Finding(point, (fault,), own[point], after.get(point, own[point]), points), ordered


def find_at_one_point(question: Question, candidates: Iterable[Fault]) -> Answer | None:
    """A fault in code that is at one kind of point, where others of the same operation are right."""
    point, v = question.point, question.v
    for fault in candidates:
        if fault.scope is not Scope.CODE or len(fault.points) == 1 or kind(point) not in fault.points:
            continue
        wrong = v.with_faults(fault).at_point_only(kind(point), v)
        errors = question.evidence.errors(wrong, question.segment)
        if question.is_solved_by((fault,), errors) and not errors[point].is_fault:
            finding, _ = locate(question, (fault,), wrong)
            return replace(finding, only=kind(point)), wrong
    return None


def read_off(question: Question) -> Answer | None:
    """A cause that no list can hold, read off the values."""
    evidence, v, own, point = question.evidence, question.v, question.own, question.point
    for fit in FITS:
        fitted = fit(evidence, v, point)
        if fitted is None:
            continue
        fault, after = fitted
        if fault.change is not None:
            return locate(question, (fault,))
        points = [
            name
            for name in own
            if own[name].is_fault
            and (fault.key == "dropout" or kind(name) == kind(point))
            and (name == point or ((other := fit(evidence, v, name)) and other[0].key == fault.key))
        ]
        found = {i for i in map(block_of, points) if i is not None}
        blocks = tuple(sorted(found)) if 0 < len(found) < evidence.blocks else None
        return Finding(point, (fault,), own[point], after, tuple(points), blocks), v
    return None


def try_pairs(
    question: Question, candidates: Iterable[Fault], tried: Tried, first: FirstToken | None
) -> Tried:
    """Two faults at a time: all in one step; in a long segment until a pair explains the point."""
    plain, point = without_narrow(candidates), question.point
    known = [fault for fault in plain if (fault,) in tried]
    ranked = sorted(known, key=lambda fault: rms_at(point, tried[(fault,)]))
    one_step = question.segment.is_one_step
    if one_step:
        pairs = pairs_of_one_step(ranked)
    else:
        pairs = pairs_of_segment(ranked, plain) if first is None else first.pairs(plain, ranked)
    errors: dict[Faults, Errors] = {}
    for pair in pairs:
        if not question.budget.is_left() or len(errors) == MOST_PAIRS:
            break
        errors[pair] = question.try_faults(*pair)
        if not one_step and point in errors[pair] and not errors[pair][point].is_fault:
            break
    return errors


def find_in_one_block(
    question: Question, candidates: Iterable[Fault], tried: Tried, first: FirstToken | None
) -> Answer | None:
    """A fault in one block of a segment only, by itself or beside one that is in all blocks."""
    point, segment, own = question.point, question.segment, question.own
    faults = [fault for fault in candidates if fault.scope is Scope.BLOCK]
    blocks = range(max(segment.first, 0), min(segment.last + 1, len(question.v.layers)))
    singles = sorted((f for f in tried if len(f) == 1), key=lambda faults: rms_at(point, tried[faults]))
    beside = [] if first is None else [(fault,) for fault in first.closest(candidates, BESIDE)]
    for others in dict.fromkeys([(), *beside, *singles[:BESIDE]]):
        start = question.v.with_faults(*others)
        for fault in faults:
            for i in blocks:
                if not question.budget.is_left():
                    return None
                wrong = start.with_faults(fault).in_blocks_only([i], start)
                error = question.evidence.errors(wrong, segment).get(point)
                if error is not None and not error.is_fault:
                    return Finding(point, (*others, fault), own[point], error, (point,), (i,)), wrong
    return None


def blame_weights(question: Question) -> Answer | None:
    """A product of known inputs that nothing explains: its matrix, or its bias, is another."""
    point, own = question.point, question.own
    fault = find_other_weights(question.evidence, question.v, point)
    return None if fault is None else (Finding(point, (fault,), own[point], own[point], (point,)), question.v)


def _unexplained(question: Question, tried: Tried) -> Finding:
    """The finding that nothing explains the point, with the faults that come closest."""
    point, before = question.point, question.own[question.point]
    near = min(tried, key=lambda faults: rms_at(point, tried[faults]), default=())
    if near and rms_at(point, tried[near]) < before.distance.rms:
        return Finding(point, (), before, tried[near][point], (point,), closest=near)
    return Finding(point, (), before, before, (point,))
