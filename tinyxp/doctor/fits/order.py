"""The order of layers, read off block by block."""

from __future__ import annotations

from tinyxp.doctor.evidence import Errors, Evidence
from tinyxp.doctor.faults import Fault
from tinyxp.doctor.faults.tables import layer_fault
from tinyxp.doctor.points import block_of
from tinyxp.doctor.variant import Variant


def fit_layer_order(evidence: Evidence, v: Variant, own: Errors) -> Fault | None:
    """Blocks that have each other's weights, in any order; None if one has no layer's weights."""
    n, order = evidence.n, list[int]()
    for i in range(evidence.blocks):
        if i < n and not any(error.is_fault for name, error in own.items() if block_of(name) == i):
            order.append(v.layers[i] if i < len(v.layers) else i)
            continue
        layer = next((j for j in range(n) if _has_layer(evidence, v, i, j)), None)
        if layer is None:
            return None
        order.append(layer)
    if order == list(range(n)):
        return None
    words = ", ".join(map(str, order[:12])) + ("..." if len(order) > 12 else "")
    return layer_fault(
        f"layers in the order {words}",
        f"{{it}} runs the layers in the order {words}{' (reversed)' * (order == list(range(n))[::-1])}",
        "number the layers as the checkpoint does",
        tuple(order),
    )


def _has_layer(evidence: Evidence, v: Variant, i: int, layer: int) -> bool:
    """Whether block i of the side has the weights of a layer."""
    layers = [min(j, evidence.n - 1) for j in range(evidence.blocks)]
    layers[i] = layer
    errors = evidence.block_errors(v.with_faults(layer_fault("", "", "", tuple(layers))), i)
    return bool(errors) and not any(error.is_fault for error in errors.values())
