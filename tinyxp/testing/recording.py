"""What the model asks of an array library, found by running it on arrays that report every use of them.

``python -m tinyxp.testing.recording`` prints the page ``docs/array-api.md``.
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from tinyxp import registry
from tinyxp.cache import new_cache
from tinyxp.config import GPT2, Config, RopeScaling
from tinyxp.generation import generate
from tinyxp.model import extend, forward, loss
from tinyxp.params import Params, init
from tinyxp.registry import Backend, bare_name
from tinyxp.sampling import draw, greedy, probabilities
from tinyxp.typing import Namespace

FUNCTIONS = frozenset(
    """__array_namespace_info__ abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype
    atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor
    broadcast_arrays broadcast_to can_cast ceil clip concat conj copysign cos cosh count_nonzero
    cumulative_prod cumulative_sum diff divide empty empty_like equal exp expand_dims expm1 eye finfo flip
    floor floor_divide from_dlpack full full_like greater greater_equal hypot iinfo imag isdtype isfinite isin
    isinf isnan less less_equal linspace log log10 log1p log2 logaddexp logical_and logical_not logical_or
    logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum moveaxis multiply negative
    nextafter nonzero not_equal ones ones_like permute_dims positive pow prod real reciprocal remainder repeat
    reshape result_type roll round searchsorted sign signbit sin sinh sort sqrt square squeeze stack std
    subtract sum take take_along_axis tan tanh tensordot tile tril triu trunc unique_all unique_counts
    unique_inverse unique_values unstack var vecdot where zeros zeros_like""".split()
)
"""The functions of the standard, version 2024.12, besides those of its extensions."""
EXTENSIONS = ("linalg", "fft")
CONSTANTS = ("e", "inf", "nan", "newaxis", "pi", "__array_api_version__")
DTYPES = frozenset(
    """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128""".split()
)
ATTRIBUTES = "dtype device mT ndim shape size T to_device __dlpack__ __dlpack_device__".split()
BINARY = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**"} | {
    "matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"
}
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
UNARY = {"neg": "-", "pos": "+", "invert": "~", "abs": "abs "}
SCALARS = {"int": int, "float": float, "bool": bool, "complex": complex, "index": operator.index}
SHAPES_DIFFER = ("concat", "stack", "take", "take_along_axis", "tensordot", "searchsorted", "isin", "repeat")
"""Functions of several arrays that are not broadcast against each other."""

Where = tuple[str, str]


class Use(NamedTuple):
    """One thing that was asked of the library."""

    kind: str
    name: str
    form: str = ""  # the dtypes and keywords it was asked with


class Recorder:
    """A namespace over another, whose functions and arrays note in ``uses`` what they are asked.

    Each use is noted with ``where``, a pair of names that the caller sets. Values are those of ``xp``, bit for
    bit.
    """

    def __init__(self, xp: Namespace) -> None:
        self.uses: dict[Use, set[Where]] = defaultdict(set)
        self.where: Where = ("", "")
        self.namespace = RecordingNamespace("recorded", xp, self)
        probe = xp.zeros(1)
        self._arrays = (type(probe), np.generic)
        self._dtypes = (type(probe.dtype), np.dtype)

    def note(self, kind: str, name: str, form: str = "") -> None:
        """Notes one use."""
        self.uses[Use(kind, name, form)].add(self.where)

    def wrap(self, value: Any) -> Any:
        """What the namespace returned, its arrays and dtypes reporting too."""
        if isinstance(value, self._arrays):
            value = np.asarray(value) if isinstance(value, np.generic) else value
            self.note("dtype", bare_name(value.dtype))
            return RecordedArray(value, self)
        if isinstance(value, self._dtypes):
            return RecordedDtype(value, bare_name(value), self)
        if isinstance(value, (list, tuple)) and any(isinstance(part, self._arrays) for part in value):
            return [self.wrap(part) for part in value]
        return value

    def call(self, kind: str, name: str, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Calls a function of the namespace, noting with what."""
        result = self.wrap(function(*unwrap(args), **unwrap(keywords)))
        said = [describe(arg) for arg in args]
        for keyword, value in keywords.items():
            literal = type(value) in (bool, int)
            is_device = keyword == "device" and value is not None
            said.append(f"{keyword}={value if literal else 'device' if is_device else describe(value)}")
        self.note(kind, name, f"{name}({', '.join(said)}) -> {describe(result)}")
        self.note_operands(name, args)
        return result

    def note_operands(self, name: str, args: tuple[Any, ...]) -> None:
        """Notes whether arrays were broadcast against each other, and whether their dtypes differed."""
        arrays = [unwrap(arg) for arg in args if isinstance(arg, RecordedArray)]
        if name in SHAPES_DIFFER or len(arrays) < 2:
            return
        shapes = [x.shape[:-2] if name in ("matmul", "@") else x.shape for x in arrays]
        if len(set(shapes)) > 1:
            self.note("broadcasting", name, " with ".join(f"{x.ndim}-d" for x in arrays))
        dtypes = [bare_name(x.dtype) for x in arrays[name == "where" :]]
        if len(set(dtypes)) > 1:
            self.note("promotion", name, ", ".join(dtypes))


class RecordingNamespace(ModuleType):
    """Stands for another namespace."""

    def __init__(self, name: str, xp: Namespace, recorder: Recorder, prefix: str = "") -> None:
        super().__init__(name)
        self._xp, self._recorder, self._prefix = xp, recorder, prefix

    def __getattr__(self, name: str) -> Any:
        known = name in FUNCTIONS or name in EXTENSIONS or name in DTYPES or name in CONSTANTS or self._prefix
        if name.startswith("__") and not known:
            raise AttributeError(f"no {name} here")
        value = getattr(self._xp, name)
        note = self._recorder.note
        if name in EXTENSIONS:
            return RecordingNamespace(name, value, self._recorder, f"{name}.")
        if name in DTYPES or name == "float16":
            note("named dtype", name)
            return RecordedDtype(value, name, self._recorder)
        if name in CONSTANTS:
            note("constant", name)
        if callable(value):
            return partial(self._recorder.call, "function" if known else "outside", self._prefix + name, value)
        if not known:
            note("outside", name)
        return value


class RecordedDtype:
    """A dtype that reports its comparisons and its name."""

    def __init__(self, dtype: Any, name: str, recorder: Recorder) -> None:
        self._inner, self._name, self._recorder = dtype, name, recorder

    def __eq__(self, other: object) -> bool:
        standard = isinstance(other, RecordedDtype)
        self._recorder.note("attribute" if standard else "outside", f"dtype == {'dtype' if standard else other!r}")
        return bool(self._inner == unwrap(other))

    def __hash__(self) -> int:
        self._recorder.note("outside", "hash(dtype)")
        return hash(self._name)

    def __str__(self) -> str:
        self._recorder.note("outside", "str(dtype)")
        return self._name


class RecordedArray:
    """An array that reports what is asked of it."""

    __array_ufunc__ = None  # NumPy's arrays leave the operators to this class

    def __init__(self, inner: Any, recorder: Recorder) -> None:
        self._inner, self._recorder = inner, recorder

    def __array_namespace__(self, api_version: str | None = None) -> Namespace:
        self._recorder.note("attribute", "x.__array_namespace__()")
        return self._recorder.namespace

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name not in ATTRIBUTES:
            raise AttributeError(name)
        kind = "attribute" if name in ATTRIBUTES else "outside"
        value = getattr(self._inner, name)
        if callable(value):
            self._recorder.note(kind, f"x.{name}()")
            return lambda *args, **keywords: self._recorder.wrap(value(*unwrap(args), **unwrap(keywords)))
        self._recorder.note(kind, f"x.{name}")
        return self._recorder.wrap(value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._recorder.note("outside", "np.asarray(x)")
        return np.asarray(self._inner, dtype=dtype, copy=copy)

    def __getitem__(self, key: Any) -> Any:
        self._recorder.note("index", describe_index(key), describe(self))
        return self._recorder.wrap(self._inner[unwrap(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._recorder.note("in place", f"{describe_index(key)} = y", describe(self))
        self._inner[unwrap(key)] = unwrap(value)


def _operator(name: str, symbol: str, kind: str) -> Callable[..., Any]:
    def method(self: RecordedArray, other: Any) -> Any:
        recorder = self._recorder
        pair = (other, self) if kind == "reflected" else (self, other)
        function = getattr(operator, name + "_" if name in ("and", "or") else name)
        if kind == "in place":
            self._inner = getattr(operator, "i" + name)(*unwrap(pair))
            result: Any = self
            symbol_ = f"{symbol}="
        else:
            result, symbol_ = recorder.wrap(function(*unwrap(pair))), symbol
        left, right = map(describe, pair)
        form = f"{left} {symbol_} {right}" 
        recorder.note("in place" if kind == "in place" else "operator", symbol_, f"{form} -> {describe(result)}")
        recorder.note_operands(symbol, pair)
        return result
    return method
