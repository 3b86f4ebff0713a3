"""An array namespace that records what is requested of it and of its arrays, over one that computes."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from tinyxp import registry
from tinyxp.dtypes import bare_name
from tinyxp.registry import Backend
from tinyxp.typing import Namespace

_FUNCTIONS = """
    __array_namespace_info__ abs acos acosh add all any arange argmax argmin argsort asarray asin asinh
    astype atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift
    bitwise_xor broadcast_arrays broadcast_to can_cast ceil clip concat conj copysign cos cosh count_nonzero
    cumulative_prod cumulative_sum diff divide empty empty_like equal exp expand_dims expm1 eye finfo flip
    floor floor_divide from_dlpack full full_like greater greater_equal hypot iinfo imag isdtype isfinite
    isinf isnan less less_equal linspace log log10 log1p log2 logaddexp logical_and logical_not logical_or
    logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum moveaxis multiply negative
    nextafter nonzero not_equal ones ones_like permute_dims positive pow prod real reciprocal remainder repeat
    reshape result_type roll round searchsorted sign signbit sin sinh sort sqrt square squeeze stack std
    subtract sum take take_along_axis tan tanh tensordot tile tril triu trunc unique_all unique_counts
    unique_inverse unique_values unstack var vecdot where zeros zeros_like
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
"""The functions of the standard, version 2024.12, without those of its extensions."""
EXTENSIONS = ("linalg", "fft")
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
"""The dtypes of the standard, and float16."""
CONSTANTS = ("e", "inf", "nan", "newaxis", "pi")
ATTRIBUTES = ("dtype", "device", "mT", "ndim", "shape", "size", "T")
METHODS = ("to_device", "__dlpack__", "__dlpack_device__")
ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**"}
BINARY = ARITHMETIC | {"matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"}
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
UNARY = {"neg": "-x", "pos": "+x", "invert": "~x", "abs": "abs(x)"}
SCALARS: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "bool": bool, "complex": complex}
SCALARS["index"] = operator.index
JOINS = ("concat", "stack", "tensordot", "searchsorted")
LOOK_UPS = ("take", "take_along_axis", "repeat")
"""Functions that do not broadcast their arrays; those of the second do not promote them either."""


class Use(NamedTuple):
    """One use of the library."""

    kind: str
    name: str
    form: str = ""  # the dtypes and keywords of the use


class Recorder:
    """A namespace over another that records in ``uses`` what is requested of it and of its arrays.

    Each use is recorded with ``where``, a stage and a family, which the caller sets. Values are those of
    ``xp``, bit for bit.
    """

    def __init__(self, xp: Namespace) -> None:
        self.xp, self.where = xp, ("", "")
        self.uses: dict[Use, set[tuple[str, str]]] = defaultdict(set)
        self.namespace = RecordingNamespace("recorded", xp, self)
        probe = xp.zeros(1)
        self._arrays, self._dtypes = (type(probe), np.generic), (type(probe.dtype), np.dtype)

    def array(self, x: Any) -> RecordedArray:
        """Return numbers as a recording array; nothing is recorded."""
        return RecordedArray(self.xp.asarray(np.asarray(x)), self)

    def note(self, kind: str, name: str, form: str = "") -> None:
        """Record one use."""
        self.uses[Use(kind, name, form)].add(self.where)

    def wrap(self, value: Any) -> Any:
        """Return what the namespace returned, with recording arrays and dtypes."""
        if isinstance(value, self._arrays):
            value = np.asarray(value) if isinstance(value, np.generic) else value  # of reductions
            array = RecordedArray(value, self)
            self.note("dtype", array._name)
            return array
        if isinstance(value, self._dtypes):
            return RecordedDtype(value, bare_name(value), self)
        if isinstance(value, (list, tuple)):
            return getattr(value, "_make", type(value))([self.wrap(part) for part in value])
        return value

    def call(self, kind: str, name: str, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Call a function or an operator, and record its arguments and result."""
        result = self.wrap(function(*_unwrap(args), **_unwrap(keywords)))
        described = [_describe_as("device" if name == "x.to_device()" else "", arg) for arg in args]
        if name in UNARY.values():
            form = name.replace("x", described[0])
        elif not name[0].isidentifier():
            form = f" {name} ".join(described)
        else:
            described += [f"{key}={_describe_as(key, value)}" for key, value in keywords.items()]
            form = f"{name.removesuffix('()')}({', '.join(described)})"
        self.note(kind, name, f"{form} -> {_describe(result)}")
        self._compare(name, form, args)
        return result

    def _compare(self, name: str, form: str, args: tuple[Any, ...]) -> None:
        """Record a combination of arrays of different shapes, or of different dtypes."""
        several = [part for arg in args for part in (arg if isinstance(arg, (list, tuple)) else [arg])]
        arrays = [part for part in several if isinstance(part, RecordedArray)]
        shapes = {x._inner.shape[: -2 if name in ("matmul", "@") else None] for x in arrays}
        if len(shapes) > 1 and name not in (*LOOK_UPS, *JOINS):
            self.note("broadcasting", name, f"{name}: {' with '.join(f'{x._inner.ndim}-d' for x in arrays)}")
        dtypes = {x._name for x in arrays[name == "where" :]}  # where starts with a condition
        if len(dtypes) > 1 and name not in LOOK_UPS:
            self.note("promotion", name, form)


class RecordingNamespace(ModuleType):
    """Replaces another namespace."""

    def __init__(self, name: str, xp: Namespace, recorder: Recorder, prefix: str = "") -> None:
        super().__init__(name)
        self._xp, self._recorder, self._prefix = xp, recorder, prefix

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in FUNCTIONS:
            raise AttributeError(name)
        value = getattr(self._xp, name)
        if name in EXTENSIONS:
            return RecordingNamespace(name, value, self._recorder, f"{name}.")
        if name in DTYPES:
            self._recorder.note("named dtype", f"xp.{name}")
            return RecordedDtype(value, name, self._recorder)
        if name in CONSTANTS:
            self._recorder.note("constant", f"xp.{name}")
            return value
        kind = "function" if self._prefix or name in FUNCTIONS else "outside"
        if callable(value):
            return partial(self._recorder.call, kind, self._prefix + name, value)
        self._recorder.note(kind, name)
        return value


class RecordedDtype:
    """A dtype that records its comparisons and its name."""

    def __init__(self, dtype: Any, name: str, recorder: Recorder) -> None:
        self._inner, self._name, self._recorder = dtype, name, recorder

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RecordedDtype):
            self._recorder.note("attribute", "dtype == dtype")
        else:
            self._recorder.note("outside", f"dtype == {_describe(other)}")
        return bool(self._inner == _unwrap(other))

    def __str__(self) -> str:
        self._recorder.note("outside", "str(dtype)")
        return self._name


class RecordedArray:
    """An array that records its uses; attributes outside the standard are those of the wrapped array."""

    __array_ufunc__ = None  # NumPy leaves its operators to this class
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, inner: Any, recorder: Recorder) -> None:
        self._inner, self._name, self._recorder = inner, bare_name(inner.dtype), recorder

    def __array_namespace__(self, *, api_version: str | None = None) -> Namespace:
        self._recorder.note("attribute", "x.__array_namespace__()")
        return self._recorder.namespace

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._recorder.note("outside", "np.asarray(x)")
        return np.asarray(self._inner, dtype=dtype, copy=copy)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name not in METHODS:
            raise AttributeError(name)
        value = getattr(self._inner, name)
        kind = "attribute" if name in (*ATTRIBUTES, *METHODS) else "outside"
        if callable(value):
            return partial(self._recorder.call, kind, f"x.{name}()", value)
        self._recorder.note(kind, f"x.{name}")
        return self._recorder.wrap(value)

    def __getitem__(self, key: Any) -> Any:
        index = _describe_index(key)
        self._recorder.note("index", f"x[{index}]", f"{_describe(self)}[{index}]")
        return self._recorder.wrap(self._inner[_unwrap(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        name = f"x[{_describe_index(key)}] = y"
        self._recorder.note("in place", name, name.replace("x", _describe(self), 1))
        self._inner[_unwrap(key)] = _unwrap(value)


def _method(kind: str, symbol: str, function: Callable[..., Any], swap: bool = False) -> Callable[..., Any]:
    """Return a special method that records itself."""

    def method(self: RecordedArray, *others: Any) -> Any:
        operands = (*others, self) if swap else (self, *others)
        return self._recorder.call(kind, symbol, function, *operands)

    return method


def _scalar(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a special method that reads the value of an array without dimensions."""

    def method(self: RecordedArray) -> Any:
        self._recorder.note("attribute", f"{name}(x)", f"{name}({_describe(self)})")
        return function(self._inner)

    return method


for _name, _symbol in (BINARY | COMPARISONS | UNARY).items():
    setattr(RecordedArray, f"__{_name}__", _method("operator", _symbol, getattr(operator, f"__{_name}__")))
for _name, _symbol in BINARY.items():
    _swapped = _method("operator", _symbol, getattr(operator, f"__{_name}__"), swap=True)
    setattr(RecordedArray, f"__r{_name}__", _swapped)
    _in_place = _method("in place", f"{_symbol}=", getattr(operator, f"__i{_name}__"))
    setattr(RecordedArray, f"__i{_name}__", _in_place)
for _name, _function in SCALARS.items():
    setattr(RecordedArray, f"__{_name}__", _scalar(_name, _function))


def _unwrap(value: Any) -> Any:
    """Return a value with recording arrays and dtypes replaced by those that they wrap."""
    if isinstance(value, (RecordedArray, RecordedDtype)):
        return value._inner
    if isinstance(value, (list, tuple)):
        return type(value)(_unwrap(part) for part in value)
    return {key: _unwrap(part) for key, part in value.items()} if isinstance(value, dict) else value


def _describe(value: Any) -> str:
    """Describe an argument or a result: an array by its dtype, anything else by its type."""
    if isinstance(value, RecordedArray):
        return value._name
    if isinstance(value, RecordedDtype):
        return f"xp.{value._name}"
    if isinstance(value, np.ndarray):
        return f"numpy {value.dtype}"
    if isinstance(value, (list, tuple)):
        kinds = {type(part) for part in value}
        if kinds == {int}:
            return "(-1,)" if tuple(value) == (-1,) else "ints"
        if len(value) == 0 or kinds == {float}:
            return "floats" if value else "()"
        return f"[{', '.join(map(_describe, value))}]"
    if type(value) in SCALARS.values():
        return f"py {type(value).__name__}"
    return "None" if value is None else f"a {type(value).__name__}"


def _describe_as(keyword: str, value: Any) -> str:
    """Describe the value of a keyword: an axis or a flag by its value, anything else by its type."""
    if keyword == "device" and value is not None:
        return "device"
    return repr(value) if keyword and type(value) in (bool, int) else _describe(value)


def _describe_index(key: Any, integer: str = "i") -> str:
    """Describe an index as it is written: n is an integer in a slice, i one by itself."""
    if isinstance(key, tuple):
        return ", ".join(map(_describe_index, key))
    if isinstance(key, slice):
        ends = ["" if end is None else _describe_index(end, "n") for end in (key.start, key.stop)]
        return ":".join(ends) + ("" if key.step is None else ":n")
    if key is Ellipsis:
        return "..."
    if type(key) is int:
        return f"-{integer}" if key < 0 else integer
    return _describe(key)


@contextmanager
def registered(recorder: Recorder) -> Iterator[Backend]:
    """Register a backend of the recorder's namespace until the context ends."""
    before = dict(registry._loaded)
    backend = Backend("recorded", recorder.namespace)
    registry._loaded[backend.name] = backend
    try:
        yield backend
    finally:
        registry._loaded.clear()
        registry._loaded.update(before)
