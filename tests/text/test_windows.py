"""Training windows and the split of a stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyxp.text.windows import Windows, cut_windows, split_stream


def test_twelve_tokens() -> None:
    ids, targets = cut_windows(range(12), 4, 2)
    assert ids.tolist() == [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [6, 7, 8, 9]]
    assert targets.tolist() == [[1, 2, 3, 4], [3, 4, 5, 6], [5, 6, 7, 8], [7, 8, 9, 10]]
    assert (ids.dtype, targets.dtype) == (np.int64, np.int64)


def test_the_stride_is_the_length_unless_given() -> None:
    windows = cut_windows([5, 6, 7, 8, 9, 10], 2)
    assert isinstance(windows, Windows)
    assert windows.ids.tolist() == [[5, 6], [7, 8]]
    assert windows.targets.tolist() == [[6, 7], [8, 9]]
    assert cut_windows([5, 6, 7, 8, 9], 2).targets.tolist() == [[6, 7], [8, 9]]


@given(st.integers(2, 60), st.integers(1, 60), st.integers(1, 60))
def test_count_and_contents(m: int, length: int, stride: int) -> None:
    length = min(length, m - 1)
    ids, targets = cut_windows(np.arange(m, dtype=np.uint16) * 3, length, stride)
    count = (m - length - 1) // stride + 1
    starts = stride * np.arange(count)[:, None]
    np.testing.assert_array_equal(ids, 3 * (starts + np.arange(length)))
    np.testing.assert_array_equal(targets, ids + 3)
    assert ids.dtype == np.int64


def test_windows_do_not_share_memory_with_the_stream() -> None:
    stream = np.arange(9)
    ids, targets = cut_windows(stream, 2, 1)
    ids[:], targets[:] = -1, -2
    assert stream.tolist() == list(range(9))
    assert ids.min() == ids.max() == -1


@pytest.mark.parametrize(
    ("ids", "length", "stride", "message"),
    [
        ([1, 2, 3, 4], 4, None, "ids has 4 tokens; a window of length 4 and its targets need 5"),
        ([], 1, None, "ids has 0 tokens; a window of length 1 and its targets need 2"),
        ([1, 2], 0, None, "length is 0; it must be an integer of 1 or more"),
        ([1, 2], 1.0, None, "length is 1.0; it must be an integer"),
        ([1, 2], 1, 0, "stride is 0; it must be an integer of 1 or more"),
        (
            [[1, 2], [3, 4]],
            1,
            None,
            r"ids has shape \(2, 2\) and dtype int64; it must be one row of integers",
        ),
        ([1.0, 2.0], 1, None, r"ids has shape \(2,\) and dtype float64; it must be one row of integers"),
    ],
)
def test_bad_input(ids: Any, length: Any, stride: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cut_windows(ids, length, stride)


@pytest.mark.parametrize(
    ("m", "held_out", "kept"),
    [
        (145_997, 0.1, 131_397),
        (10, 0.9, 1),  # 10 * (1 - 0.9) is 0.9999999999999998 in floats
        (10, 0.1, 9),
        (100, 0.07, 93),
        (1000, 0.001, 999),
        (7, 0.5, 3),
        (5, 0, 5),
        (5, 0.0, 5),
        (0, 0.1, 0),
    ],
)
def test_split_stream(m: int, held_out: float, kept: int) -> None:
    train, rest = split_stream(range(m), held_out)
    assert (len(train), len(rest)) == (kept, m - kept)
    assert np.concatenate([train, rest]).tolist() == list(range(m))


def test_a_tenth_is_held_out_unless_told() -> None:
    train, rest = split_stream(np.arange(20, dtype=np.int32))
    assert (train.tolist(), rest.tolist()) == (list(range(18)), [18, 19])
    assert (train.dtype, rest.dtype) == (np.int64, np.int64)


@pytest.mark.parametrize("held_out", [1, -0.1, float("nan"), "0.1", True])
def test_bad_shares(held_out: Any) -> None:
    with pytest.raises(ValueError, match="held_out is .*; it must be a number from 0 to below 1"):
        split_stream([1, 2, 3], held_out)


def test_a_book(book_ids: list[int]) -> None:
    train, held_out = split_stream(book_ids)
    assert (len(train), len(held_out)) == (131_397, 14_600)
    assert cut_windows(train, 128).ids.shape == (1026, 128)
    assert cut_windows(held_out, 128).targets.shape == (114, 128)
