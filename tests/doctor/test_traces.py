"""Batches and traces: which elements are compared, and which arrays are a trace at all."""

from __future__ import annotations

import numpy as np
import pytest

from tinyxp.doctor.traces import Batch, check_trace, compared_mask, narrowest_dtype, to_floats

IDS = np.arange(6).reshape(2, 3)
MASK = np.array([[True, True, True], [False, True, True]])


def test_every_token_is_real_without_a_mask() -> None:
    assert Batch(IDS).real.all()
    assert Batch(IDS).real.shape == IDS.shape
    assert Batch(IDS, MASK).real is MASK


def test_padding_is_not_compared() -> None:
    batch = Batch(IDS, MASK)
    compared = np.broadcast_to(compared_mask("logits", (2, 3, 7), batch), (2, 3, 7))
    assert np.array_equal(compared, np.repeat(MASK[:, :, None], 7, axis=2))
    for name in ("blocks.0.attn.q_rotated", "blocks.0.attn.weights"):
        compared = np.broadcast_to(compared_mask(name, (2, 4, 3, 3), batch), (2, 4, 3, 3))
        assert np.array_equal(compared[:, 1, :, 2], MASK)
        assert np.array_equal(compared[:, 3, :, 0], MASK)  # queries count, not keys


def test_scores_are_compared_if_a_real_query_may_see_a_real_key() -> None:
    compared = compared_mask("blocks.0.attn.scores", (2, 4, 3, 3), Batch(IDS, MASK))
    assert compared[0, 0].tolist() == np.tri(3, dtype=bool).tolist()
    assert compared[1, 0].tolist() == [[False, False, False], [False, True, False], [False, True, True]]


def test_the_narrowest_dtype() -> None:
    points = {
        "embed": np.zeros(1, np.float64),
        "logits": np.zeros(1, np.float16),
        "x": np.zeros(1, np.float32),
    }
    assert narrowest_dtype(points) == "float16"


def test_a_trace_is_sorted_and_gets_its_batch_axis() -> None:
    points = {
        "logits": np.ones((3, 7)),
        "embed": np.ones((1, 3, 4)),
        "blocks.0.attn.scores": np.ones((2, 3, 3)),
    }
    batch, checked = check_trace(points, [1, 2, 3], [1, 1, 0])
    assert batch.ids.tolist() == [[1, 2, 3]]
    assert batch.mask is not None
    assert batch.mask.tolist() == [[True, True, False]]
    assert [(name, x.shape) for name, x in checked.items()] == [
        ("embed", (1, 3, 4)),
        ("blocks.0.attn.scores", (1, 2, 3, 3)),
        ("logits", (1, 3, 7)),
    ]


def test_arrays_of_the_other_byte_order_are_converted() -> None:
    x = np.arange(21, dtype=">f4" if np.dtype("<f4").isnative else "<f4").reshape(1, 3, 7)
    converted = check_trace({"logits": x}, [[1, 2, 3]]).points["logits"]
    assert converted.dtype.isnative
    assert np.array_equal(converted, x)


@pytest.mark.parametrize("dtype", ["int64", "bool", "complex64", "object"])
def test_only_floating_arrays_are_points(dtype: str) -> None:
    with pytest.raises(ValueError, match=f"trace point logits has dtype {dtype}; it must be float64"):
        to_floats("logits", np.zeros((1, 3, 7), dtype))


def test_long_doubles_are_rejected() -> None:
    if np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("long double is float64 here")
    with pytest.raises(ValueError, match="logits has dtype float128; it must be float64, float32, float16"):
        check_trace({"logits": np.ones((2, 3, 7), np.longdouble)}, IDS)


def test_an_empty_trace_is_rejected() -> None:
    with pytest.raises(ValueError, match="there is no trace point besides ids"):
        check_trace({}, IDS)
