"""Windows: what a model is trained on, cut from one long stream of ids."""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from tinyxp.checks import as_integer, is_number


class Windows(NamedTuple):
    """ids and targets (count, length), int64: targets[w, i] is what ids[w, i] should predict."""

    ids: np.ndarray
    targets: np.ndarray


def cut_windows(ids: Sequence[int] | np.ndarray, length: int, stride: int | None = None) -> Windows:
    """Windows w = 0, 1, ... of `length` ids from w * stride on, and as targets the ids one further.

    ids (m,) -> floor((m - length - 1) / stride) + 1 windows; stride is `length` unless given, so that every
    id is a target at most once. What does not fill a window at the end is left out. ValueError for fewer
    than length + 1 ids.
    """
    stream = _stream(ids)
    length = as_integer("length", length, low=1)
    step = length if stride is None else as_integer("stride", stride, low=1)
    if len(stream) < length + 1:
        raise ValueError(
            f"ids has {len(stream)} tokens; a window of length {length} and its targets need {length + 1}"
        )
    runs = np.lib.stride_tricks.sliding_window_view(stream, length + 1)[::step]
    return Windows(runs[:, :-1].copy(), runs[:, 1:].copy())


def split_stream(ids: Sequence[int] | np.ndarray, held_out: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """The first floor(m (1 - held_out)) of m ids, to train on, and the rest, held out.

    It is cut before windows are, so that none of them lies on both sides. `held_out` counts as it is written
    in decimals: 0.1 is a tenth. ValueError where it is not from 0 to below 1.
    """
    stream = _stream(ids)
    if not is_number(held_out) or not 0 <= held_out < 1:
        raise ValueError(f"held_out is {held_out!r}; it must be a number from 0 to below 1")
    kept = int(len(stream) * (1 - Fraction(str(float(held_out)))))
    return stream[:kept], stream[kept:]


def _stream(ids: Sequence[int] | np.ndarray) -> np.ndarray:
    stream = np.asarray(ids)
    if stream.ndim != 1 or (stream.size and stream.dtype.kind not in "iu"):
        raise ValueError(
            f"ids has shape {stream.shape} and dtype {stream.dtype}; it must be one row of integers"
        )
    return stream.astype(np.int64)
