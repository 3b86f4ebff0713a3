"""What two models are made of, and where that differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.doctor.models import LLAMA_SMALL, llama, port, with_weight
from tinyxp import Params
from tinyxp.doctor.differences import ParameterDifferences, config_differences, parameter_differences
from tinyxp.doctor.specs import as_side


def test_configs() -> None:
    other = as_side(Params(dict(llama()), replace(LLAMA_SMALL, rope_theta=5e5, norm_eps=1e-6)))
    notes = config_differences(as_side(llama()), other, "B")
    assert notes == [
        "config: rope_theta of B is 500000.0, the other side's 10000.0",
        "config: norm_eps of B is 1e-06, the other side's 1e-05",
    ]
    assert config_differences(as_side(llama()), as_side(port(llama())), "B") == []


def test_parameters() -> None:
    def two_rows(x: np.ndarray) -> np.ndarray:
        x[:8] += 1.0
        return x

    side = as_side(with_weight(llama(), "blocks.0.attn.q.weight", two_rows))
    different = parameter_differences(as_side(llama()), side)
    assert different == ParameterDifferences({"blocks.0.attn.q.weight": 0.25}, 21)
    assert different
    said = different.describe("B")
    assert said == (
        "1 of 21 parameters of B differ from the other side's: blocks.0.attn.q.weight (0.25 of it)"
    )


def test_rounding_and_sides_without_parameters_are_no_difference() -> None:
    next_number = with_weight(llama(), "head.weight", lambda x: np.nextafter(x, np.inf, dtype=x.dtype))
    assert not parameter_differences(as_side(llama()), as_side(next_number))
    assert parameter_differences(as_side(llama()), as_side(port(llama()))) == ParameterDifferences({}, 0)


def test_many_are_counted() -> None:
    names = {f"blocks.{i}.attn.q.weight": 1.0 for i in range(6)}
    assert ParameterDifferences(names, 60).describe("A").endswith(" and 2 more")
