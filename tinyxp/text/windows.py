"""Training windows, cut from one long stream of ids."""

from __future__ import annotations

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
    """Cut windows w = 0, 1, ... of ``length`` ids from w * stride on; the targets are one id further.

    ids (m,) -> floor((m - length - 1) / stride) + 1 windows. The default stride is ``length``, so that every
    id is a target at most once. Ids at the end that do not fill a window are left out. Raises ValueError for
    fewer than length + 1 ids.
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
    """Split m ids into the first floor(m (1 - held_out)), to train on, and the rest, held out.

    Split before cutting windows, so that no window is on both sides. ``held_out`` is taken as the decimal
    that it is written as: 0.1 is exactly a tenth. Raises ValueError unless it is from 0 to below 1.
    """
    stream = _stream(ids)
    if not is_number(held_out) or not 0 <= held_out < 1:
        raise ValueError(f"held_out is {held_out!r}; it must be a number from 0 to below 1")
    length = int(len(stream) * (1 - Fraction(str(float(held_out)))))
    return stream[:length], stream[length:]


def _stream(ids: Sequence[int] | np.ndarray) -> np.ndarray:
    stream = np.asarray(ids)
    if stream.ndim != 1 or (stream.size and stream.dtype.kind not in "iu"):
        raise ValueError(
            f"ids has shape {stream.shape} and dtype {stream.dtype}; it must be one row of integers"
        )
    return stream.astype(np.int64)
