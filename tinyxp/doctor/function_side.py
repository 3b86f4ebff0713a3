"""A side that is a user's function: how it is called, and what it must return."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tinyxp.doctor.points import axes, form, sort_points
from tinyxp.doctor.sides import Patch, Side
from tinyxp.doctor.traces import Batch, Points, Trace, find_backend, narrowest_dtype, to_floats


@dataclass(frozen=True, eq=False)
class FunctionSide(Side):
    """A function of ids (b, t), and of ``mask`` if it takes one, to logits (b, t, n) or to a trace."""

    function: Callable[..., Any] = field(kw_only=True)

    def trace(self, batch: Batch, patch: Patch | None = None) -> Trace:
        keywords = self._keywords(batch)
        try:
            answer = self.function(batch.ids.copy(), **keywords)
        except (Exception, SystemExit) as error:
            raise ValueError(describe_failure(f"{self.name} raised", error)) from error
        arrays = answer if isinstance(answer, Mapping) else {"logits": answer}
        if not arrays:
            raise ValueError(f"{self.name} gave no trace point")
        points: Points = {name: self._to_host(name, arrays[name], batch) for name in sort_points(arrays)}
        return Trace(points, self.dtype or _computed_dtype(arrays, points))

    def _keywords(self, batch: Batch) -> dict[str, Any]:
        """Return the mask if there is padding or the function requires one.

        Raise ValueError if the function takes other arguments, as far as its signature says.
        """
        keywords = {} if batch.mask is None else {"mask": batch.mask.copy()}
        try:
            signature = inspect.signature(self.function)
        except ValueError:  # not written in Python
            return keywords
        mask = signature.parameters.get("mask")
        if mask is not None and mask.default is mask.empty:
            keywords = {"mask": batch.real.copy()}
        takes_mask = mask is not None or any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        if keywords and not takes_mask:
            raise ValueError(f"{self.name} takes no mask, and there is padding")
        try:
            signature.bind(None, **keywords)
        except TypeError as error:
            what = "ids and mask" if keywords else "ids alone"
            raise ValueError(f"{self.name} takes {signature}; it is called with {what}: {error}") from None
        return keywords

    def _to_host(self, name: str, x: Any, batch: Batch) -> np.ndarray:
        """Return a point on NumPy. It may have other columns than the ids: that is a fault to find."""
        backend = find_backend(x)
        try:
            host = np.asarray(x) if backend is None else backend.to_numpy(x)
        except (ValueError, TypeError, RuntimeError, NotImplementedError) as error:
            raise ValueError(describe_failure(f"{self.name} gave {name} that is no array:", error)) from None
        host = to_floats(name, host)
        rows, ndim = len(batch.ids), len(axes(name))
        host = host[None] if host.ndim == ndim - 1 and rows == 1 else host
        if host.ndim != ndim or len(host) != rows or 0 in host.shape:
            raise ValueError(
                f"{self.name} gave {name} of shape {host.shape}; it must be {form(name)}, with {rows} rows"
            )
        return host


def _computed_dtype(arrays: Mapping[str, Any], points: Points) -> str:
    """Return bfloat16 if an array has it, which NumPy lacks; else the narrowest dtype."""
    coarse = any(str(getattr(x, "dtype", "")).endswith("bfloat16") for x in arrays.values())
    return "bfloat16" if coarse else narrowest_dtype(points)


def describe_failure(what: str, error: BaseException) -> str:
    """Say in one line what went wrong in a user's code, and where."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    message = " ".join(str(error).split())
    return f"{what} {type(error).__name__}{': ' if message else ''}{message}{place}"
