"""Laws of what does not affect attention: the order of keys, a shift of them, other heads, hidden keys."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.attention import SOURCE, attend, draw_operands
from tinyxp.testing.laws.operands import gradient, no_warnings, normal
from tinyxp.testing.strategies import seeds
from tinyxp.testing.subjects.decoder import Decoder

GROUPED = "Ainslie et al., 2023: GQA; Shazeer, 2019: one write-head is all you need"
SILENT = "tinyxp's own contract: a query that sees nothing gets zeros"

law = laws_of("op", "attention", GROUPED, "ops")


@law(
    "Heads that share keys and values compute what they would with copies of their own: head i reads i // (h "
    "/ g).",
    region="heads",
)
def shared_heads_equal_repeated_heads(subject: Decoder, draw: Draw) -> None:
    operands = draw_operands(subject, draw)
    per_group = operands.q.shape[1] // operands.k.shape[1]
    k, v = (np.repeat(x, per_group, axis=1) for x in (operands.k, operands.v))
    repeated = subject.run(attend, operands.q, k, v, operands.visible)
    subject.close(subject.run(attend, *operands), repeated, "heads that share")


@law("Each head computes what it would alone, with the keys and values of its group.", region="heads")
def heads_are_independent(subject: Decoder, draw: Draw) -> None:
    operands = draw_operands(subject, draw)
    h, g = operands.q.shape[1], operands.k.shape[1]
    whole = subject.run(attend, *operands)
    group = draw("group", st.integers(0, g - 1))
    one, mine = slice(group, group + 1), slice(group * (h // g), (group + 1) * (h // g))
    alone = subject.run(attend, operands.q[:, mine], operands.k[:, one], operands.v[:, one], operands.visible)
    subject.close(alone, whole[:, mine], f"heads of group {group} alone")


@law(
    "The order of the keys does not matter if their values and the mask are reordered with them.",
    source=SOURCE,
)
def the_order_of_keys_is_nothing(subject: Decoder, draw: Draw) -> None:
    operands = draw_operands(subject, draw)
    order = np.asarray(draw("order", st.permutations(range(operands.k.shape[2]))))
    moved = subject.run(
        attend, operands.q, operands.k[:, :, order], operands.v[:, :, order], operands.visible[..., order]
    )
    subject.close(moved, subject.run(attend, *operands), f"heads with keys in the order {order.tolist()}")


@law("Adding a vector to all keys changes nothing, because softmax ignores a constant.", source=SOURCE)
def a_shift_of_keys_is_nothing(subject: Decoder, draw: Draw) -> None:
    operands = draw_operands(subject, draw)
    shift = normal(draw("shift", seeds()), *operands.k.shape[:2], 1, operands.k.shape[3], scale=3.0)
    moved = subject.run(attend, operands.q, operands.k + shift, operands.v, operands.visible)
    subject.close(moved, subject.run(attend, *operands), "heads with moved keys")


@law(
    "Hidden keys and values change nothing, however large they are; a query that sees nothing gets zeros.",
    source=SILENT,
)
def hidden_keys_move_nothing(subject: Decoder, draw: Draw) -> None:
    operands = draw_operands(subject, draw)
    hidden = ~np.asarray(operands.visible.any(axis=(0, 1, 2)))[:, None]  # for every query
    with no_warnings():
        heads = subject.run(attend, *operands)
        others = (np.where(hidden, 1e4, x) for x in (operands.k, operands.v))
        again = subject.run(attend, operands.q, *others, operands.visible)
    subject.close(again, heads, "heads with other hidden keys and values")
    silent = ~operands.seen.any(axis=-1)
    subject.equal(heads[silent], np.zeros(heads[silent].shape), "a head whose query sees nothing")


@law(
    "A query that sees nothing has gradient 0, and causes no NaN in the gradients of the others.",
    source=SILENT,
    needs="ops gradients",
)
def silent_queries_have_no_gradient(subject: Decoder, draw: Draw) -> None:
    operands = draw_operands(subject, draw)
    found = gradient(subject, attend, *operands)
    assert np.isfinite(found).all(), "a gradient by a query is not finite"
    silent = ~operands.seen.any(axis=-1)
    subject.equal(found[silent], np.zeros(found[silent].shape), "the gradient by a query that sees nothing")
