"""Drawn values and their source."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tinyxp import Config
from tinyxp.testing import Draw
from tinyxp.testing.draws import as_source
from tinyxp.testing.strategies import configs


def test_a_draw_records_its_values_by_name() -> None:
    draw = Draw(lambda name, strategy: len(name))
    assert draw("abc", st.integers()) == 3
    assert draw("x", st.integers()) == 1
    assert draw.values == {"abc": 3, "x": 1}


@given(config=configs())
def test_a_config_is_shown_as_source_that_makes_it_again(config: Config) -> None:
    assert eval(as_source(config), {"Config": Config}) == config


def test_values_are_shown_as_source() -> None:
    assert as_source(Config()) == "Config()"
    assert as_source(Config(d_model=64)) == "Config(d_model=64)"
    value = {"x": np.array([[1.5, 2.0]], "float32"), "ids": [[1]], "mask": (True, None)}
    assert as_source(value) == "{'x': np.array([[1.5, 2.0]], 'float32'), 'ids': [[1]], 'mask': (True, None)}"
