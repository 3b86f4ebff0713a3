"""RoPE's hands: their turns, and the loss beyond what training has seen."""

import math

import numpy as np
import pytest

import tinyxp


def test_script(example, test_data, is_png):
    rope_hands = example("rope_hands", "--quick")
    at = next(i for i, line in enumerate(rope_hands.lines) if line.startswith("pair"))
    rows = [line.split() for line in rope_hands.lines[at + 1 : at + 5]]
    assert [float(row[1]) for row in rows] == [1.0, 0.1, 0.01, 0.001]
    assert [row[3] for row in rows] == ["81.487", "8.149", "0.815", "0.081"]
    assert [row[4] for row in rows] == ["yes", "yes", "no", "no"]

    at = next(i for i, line in enumerate(rope_hands.lines) if line.startswith("positions"))
    rows = [line.split() for line in rope_hands.lines[at + 1 : at + 9]]
    assert (rows[0][:3], rows[-1][:3]) == (["0", "to", "255"], ["1792", "to", "2047"])
    going_on, halved, cut = np.array([row[3:] for row in rows], dtype=float).T
    assert np.array_equal(going_on[:2], cut[:2])  # within 512 positions nothing is cut
    assert (halved[:2] > going_on[:2]).all()  # where the hands were known, moving them costs something
    assert going_on[-1] > cut[-1] + 0.5
    assert cut[-1] < halved[-1] < going_on[-1] - 0.2
    assert is_png(rope_hands.picture)


def test_only_slow_hands_are_slowed(found):
    params = tinyxp.init(tinyxp.Config(max_seq_len=512))
    frequencies = [f for f, _, _ in found.hands(found.slowed(params, 2.0).config)]
    assert frequencies == pytest.approx([1.0, 0.1, 0.005, 0.0005])


def test_turns_are_positions_over_period(found):
    for f, period, turns in found.hands(tinyxp.Config(max_seq_len=100, rope_theta=500.0)):
        assert f * period == pytest.approx(2 * math.pi)
        assert turns * period == pytest.approx(100)
