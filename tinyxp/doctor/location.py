"""The location of a fault: every block, some of them, or one kind of point."""

from __future__ import annotations

from tinyxp.doctor.evidence import Errors, Evidence, count_faults, explained_points
from tinyxp.doctor.faults import Scope
from tinyxp.doctor.finding import Faults, Finding
from tinyxp.doctor.points import block_of, kind, sort_points
from tinyxp.doctor.question import Question
from tinyxp.doctor.variant import Variant


def locate(question: Question, faults: Faults, wrong: Variant | None = None) -> tuple[Finding, Variant]:
    """The finding that these faults explain the point, and the variant with them where they help.

    ``wrong`` is the variant with the faults, if it is not simply ``question.v`` with them everywhere.
    """
    evidence, v, point, own = question.evidence, question.v, question.point, question.own
    wrong = v.with_faults(*faults) if wrong is None else wrong
    after = evidence.all_errors(wrong)
    helped, hurt = _by_block(evidence, own, after)
    blocks: tuple[int, ...] | None = None
    if not any(fault.scope is Scope.MODEL for fault in faults):
        if block_of(point) is None and hurt:  # right in the blocks, wrong outside of them
            wrong = wrong.at_point_only(kind(point), v)
            after = evidence.all_errors(wrong)
        elif any(fault.narrow for fault in faults):
            pass  # its rounding is not imitated exactly: no block differs from another
        elif block_of(point) is not None and helped:
            outside = [name for name in own if block_of(name) is None]
            spilt = count_faults(after, outside) > count_faults(own, outside)
            if hurt or spilt or len(helped) < evidence.blocks:
                blocks = None if len(helped) == evidence.blocks else tuple(helped)
                wrong = wrong.in_blocks_only(helped, v)
                after = evidence.all_errors(wrong)
    points = _narrow_points(point, faults, own) or explained_points(own, after)
    return Finding(point, faults, own[point], after.get(point, own[point]), points, blocks), wrong


def _by_block(evidence: Evidence, own: Errors, after: Errors) -> tuple[list[int], list[int]]:
    """The blocks in which fewer points differ, and those in which more do."""
    helped, hurt = [], []
    for i in range(evidence.blocks):
        points = [name for name in own if block_of(name) == i]
        before, now = count_faults(own, points), count_faults(after, points)
        helped += [i] if now < before else []
        hurt += [i] if now > before else []
    return helped, hurt


def _narrow_points(point: str, faults: Faults, own: Errors) -> tuple[str, ...]:
    """The points that faults of few digits explain: all of their kinds that differ."""
    if not any(fault.narrow for fault in faults):
        return ()
    kinds = {point} if point in ("logits", "final_norm") else {k for f in faults for k in f.points}
    return tuple(n for n in sort_points(own) if (kind(n) in kinds or n == point) and own[n].is_fault)
