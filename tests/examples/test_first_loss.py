"""The first loss: the figures that are printed, and what the bounds are."""

import math

import numpy as np
import pytest

import tinyxp


def numbers(line):
    return [float(word) for word in line.split()]


def test_script(example, is_png):
    first_loss = example("first_loss", "--quick")
    at = next(i for i, line in enumerate(first_loss.lines) if line.startswith("ln V"))
    log_v, half, predicted, measured = numbers(first_loss.lines[at + 1])
    assert (log_v, half, predicted) == (10.8249, 0.1536, 10.9785)
    assert abs(measured - predicted) < 0.001

    at = next(i for i, line in enumerate(first_loss.lines) if line.startswith("scale"))
    rows = [numbers(line) for line in first_loss.lines[at + 1 : at + 5]]
    assert [row[0] for row in rows] == [1, 5, 25, 50]
    assert [row[1] for row in rows] == [0.16, 0.8, 4.0, 8.0]
    assert [row[2] for row in rows] == [7.61, 7.92, 15.6, 39.6]
    known = (7.62, 7.96, 14.37, 26.89)  # of other weights
    for row, other in zip(rows, known, strict=True):
        _, _, predicted, bound, measured, spread = row
        assert measured <= bound <= predicted
        assert abs(measured - other) < max(spread, 0.05)
    assert is_png(first_loss.picture)


def test_bounds_hold_for_normal_logits(found):
    for s in (0.5, 2.0, 4.0, 8.0, 16.0):
        logits = np.random.default_rng(0).normal(0.0, s, (400, 2000))
        loss = (np.logaddexp.reduce(logits, axis=-1) - logits.mean(axis=-1)).mean()
        assert 0.85 * found.bound(2000, s) < loss < found.bound(2000, s) + 0.01
    top = math.sqrt(2 * math.log(2000))
    assert found.bound(2000, top) == pytest.approx(found.predicted(2000, top))


def test_scaled_heads_scale_the_logits(found):
    params = tinyxp.init(found.SMALL)
    scaled = found.with_head_times(params, 5)
    assert np.allclose(scaled["head.weight"], 5 * params["head.weight"])
    assert scaled["embed.weight"] is params["embed.weight"]
