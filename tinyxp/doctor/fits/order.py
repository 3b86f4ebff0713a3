"""The order of layers, read off block by block."""

from __future__ import annotations

from dataclasses import replace

from tinyxp.doctor.faults import Fault
from tinyxp.doctor.held import Error, Held
from tinyxp.doctor.points import block_of
from tinyxp.doctor.variant import Variant


def layer_order(held: Held, v: Variant, own: dict[str, Error]) -> tuple[Fault, Variant] | None:
    """Blocks that have each other's weights, whatever the order."""
    n = held.n
    order = []
    for i in range(held.theirs):
        bad = sum(error.excess > 1.0 for name, error in own.items() if block_of(name) == i)
        if not bad and i < n:
            order.append(v.order[i] if i < len(v.order) else i)
            continue
        found = [j for j in range(n) if _fits(held, v, i, j)]
        if not found:
            return None
        order.append(found[0])
    if order == list(range(n)):
        return None
    words = ", ".join(map(str, order[:12])) + ("..." if len(order) > 12 else "")
    reverse = " (reversed)" if order == list(range(n))[::-1] else ""
    fault = Fault(
        f"layers in the order {words}",
        f"{{it}} has the layers in the order {words}{reverse}",
        "number the layers as the checkpoint does",
        ("attn_norm",),
        lambda v: replace(v, layers=tuple(order)),
        sets=frozenset({"layers"}),
    )
    return fault, fault.plant(v)


def _fits(held: Held, v: Variant, i: int, j: int) -> bool:
    """Whether block i of the side has the weights of layer j."""
    layers = [*range(held.theirs)]
    layers[i] = j
    errors = held.block_errors(replace(v, layers=tuple(min(x, held.n - 1) for x in layers)), i)
    return bool(errors) and all(error.excess <= 1.0 for error in errors.values())
