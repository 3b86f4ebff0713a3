"""Laws of what attention is indifferent to: the order of keys, a shift of them, other heads, hidden keys."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.law import Draw, law
from tinyxp.testing.laws.attention import SOURCE, attention, operands
from tinyxp.testing.laws.operands import gradient, normal, silence
from tinyxp.testing.strategies import seeds
from tinyxp.testing.subject import Decoder

GROUPED = "Ainslie et al., 2023: GQA; Shazeer, 2019: one write-head is all you need"
SILENT = "tinyxp's own contract: a query that sees nothing gets zeros"


@law(
    "Heads that share keys and values are as if each had its own copy: head i reads i // (h / g).",
    of="op",
    region="heads",
    source=GROUPED,
    needs="ops",
)
def shared_heads_equal_repeated_heads(subject: Decoder, draw: Draw) -> None:
    given = operands(subject, draw)
    per_group = given.q.shape[1] // given.k.shape[1]
    k, v = (np.repeat(x, per_group, axis=1) for x in (given.k, given.v))
    repeated = subject.run(attention, given.q, k, v, given.visible)
    subject.close(subject.run(attention, *given), repeated, "heads that share")


@law(
    "Each head is computed as if it were alone, with the keys and values of its group.",
    of="op",
    region="heads",
    source=GROUPED,
    needs="ops",
)
def heads_are_independent(subject: Decoder, draw: Draw) -> None:
    given = operands(subject, draw)
    h, g = given.q.shape[1], given.k.shape[1]
    whole = subject.run(attention, *given)
    group = draw("group", st.integers(0, g - 1))
    one, mine = slice(group, group + 1), slice(group * (h // g), (group + 1) * (h // g))
    alone = subject.run(attention, given.q[:, mine], given.k[:, one], given.v[:, one], given.visible)
    subject.close(alone, whole[:, mine], f"heads of group {group} alone")


@law(
    "Keys may stand in any order, if their values and what sees them go with them.",
    of="op",
    region="attention",
    source=SOURCE,
    needs="ops",
)
def the_order_of_keys_is_nothing(subject: Decoder, draw: Draw) -> None:
    given = operands(subject, draw)
    order = np.asarray(draw("order", st.permutations(range(given.k.shape[2]))))
    moved = subject.run(
        attention, given.q, given.k[:, :, order], given.v[:, :, order], given.visible[..., order]
    )
    subject.close(moved, subject.run(attention, *given), f"heads with keys in the order {order.tolist()}")


@law(
    "A vector added to all keys changes nothing, since softmax ignores a constant.",
    of="op",
    region="attention",
    source=SOURCE,
    needs="ops",
)
def a_shift_of_keys_is_nothing(subject: Decoder, draw: Draw) -> None:
    given = operands(subject, draw)
    shift = normal(draw("shift", seeds()), *given.k.shape[:2], 1, given.k.shape[3], scale=3.0)
    moved = subject.run(attention, given.q, given.k + shift, given.v, given.visible)
    subject.close(moved, subject.run(attention, *given), "heads with moved keys")


@law(
    "What is not visible moves nothing, however large it is; a query that sees nothing gets zeros.",
    of="op",
    region="attention",
    source=SILENT,
    needs="ops",
)
def hidden_keys_move_nothing(subject: Decoder, draw: Draw) -> None:
    given = operands(subject, draw)
    hidden = ~np.asarray(given.visible.any(axis=(0, 1, 2)))[:, None]  # from every query
    with silence():
        heads = subject.run(attention, *given)
        others = (np.where(hidden, 1e4, x) for x in (given.k, given.v))
        again = subject.run(attention, given.q, *others, given.visible)
    subject.close(again, heads, "heads beside other hidden keys and values")
    silent = ~given.seen.any(axis=-1)
    subject.equal(heads[silent], np.zeros(heads[silent].shape), "a head whose query sees nothing")


@law(
    "A query that sees nothing has no gradient, and no other turns to NaN beside it.",
    of="op",
    region="attention",
    source=SILENT,
    needs="ops gradients",
)
def silent_queries_have_no_gradient(subject: Decoder, draw: Draw) -> None:
    given = operands(subject, draw)
    found = gradient(subject, attention, *given)
    assert np.isfinite(found).all(), "a gradient by a query is not finite"
    silent = ~given.seen.any(axis=-1)
    subject.equal(found[silent], np.zeros(found[silent].shape), "the gradient by a query that sees nothing")
