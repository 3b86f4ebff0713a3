"""The order of layers, read off block by block."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.doctor.models import LLAMA_SMALL
from tests.doctor.variants import evidence_of, right_variant, run
from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.faults.tables import layer_fault
from tinyxp.doctor.fits.order import fit_layer_order

CONFIG = replace(LLAMA_SMALL, n_layers=4)


def side(order: tuple[int, ...]) -> Evidence:
    v = right_variant(CONFIG)
    points = run(v.with_faults(layer_fault("", "", "", order)))
    return Evidence(v.weights, v.batch, {n: x.astype(np.float32) for n, x in points.items()}, "float32")


@pytest.mark.parametrize("order", [(2, 0, 1, 3), (0, 0, 3, 3), (0, 1, 2, 3, 1)])
def test_orders(order: tuple[int, ...]) -> None:
    evidence = side(order)
    fault = fit_layer_order(evidence, evidence.right, evidence.all_errors(evidence.right))
    assert fault is not None
    assert fault.key == f"layers in the order {', '.join(map(str, order))}"
    assert evidence.right.with_faults(fault).layers == order


def test_reversed_layers_are_called_so() -> None:
    evidence = side((3, 2, 1, 0))
    fault = fit_layer_order(evidence, evidence.right, evidence.all_errors(evidence.right))
    assert fault is not None
    assert fault.says.endswith("3, 2, 1, 0 (reversed)")


def test_the_right_order_and_other_layers_are_no_fit() -> None:
    right = side((0, 1, 2, 3))
    assert fit_layer_order(right, right.right, right.all_errors(right.right)) is None
    other = evidence_of(CONFIG, "relu for silu")
    assert fit_layer_order(other, other.right, other.all_errors(other.right)) is None
