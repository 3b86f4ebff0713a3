"""Planted faults and the doctor's catalogue have a common key."""

from __future__ import annotations

import pytest

from tinyxp.doctor.faults import list_faults

from .causes import READ_OFF
from .planted import PLANTED, Planted, config_of


@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_a_planted_fault_is_a_row_of_the_catalogue_or_read_off(planted: Planted) -> None:
    rows = {fault.key: fault for fault in list_faults(config_of(planted))}
    assert (planted.key in rows) != (planted.key in READ_OFF)
    if planted.key in rows:
        kind = planted.first.rpartition(".")[2]
        assert any(point.endswith(kind) for point in rows[planted.key].points)


def test_nothing_is_called_read_off_that_is_not_planted() -> None:
    assert set(READ_OFF) <= {planted.key for planted in PLANTED}
