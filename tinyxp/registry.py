"""Backends: what tinyxp needs of an array library beyond the standard, found by entry points.

A backend is an instance of (a subclass of) ``Backend`` that a package names in the entry-point group
``tinyxp.backends`` under its library's import name. Nothing here knows a library by name.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from tinyxp import plugins
from tinyxp.dtypes import DTYPES, dtype_name
from tinyxp.typing import Array, Namespace

CAPABILITIES = {"jit": "compiles", "value_and_grad": "has_gradients", "join_views": "has_views"}
"""Methods that only some libraries have -> the flag that says so."""


class Backend:
    """One array library: how its arrays come in, go out, move, compile and differentiate.

    The methods of this class serve any eager library that conforms to the standard. A subclass replaces what
    its library does differently.
    """

    name: str
    """The library's import name."""
    xp: Namespace
    """The array namespace that the model computes with."""
    index_dtype: str = "int64"
    """The integer dtype that this library indexes with."""
    eager: bool = True
    """Whether one operation on a new shape is cheap. If not, laws run compiled, over few shapes."""
    has_views: bool = False
    """Whether a slice of an array shares its memory."""
    has_gradients: bool = False
    """Whether ``value_and_grad`` differentiates."""
    compiles: bool = False
    """Whether ``jit`` compiles."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Hold a subclass to its capabilities: a method that it replaces must not be declared missing."""
        super().__init_subclass__(**kwargs)
        for method, capability in CAPABILITIES.items():
            if method in vars(cls) and not getattr(cls, capability):
                raise TypeError(f"{cls.__name__} has {method}, so its {capability} must be True")

    def __init__(self, name: str, xp: Namespace) -> None:
        self.name = name
        self.xp = xp

    def __repr__(self) -> str:
        return f"<tinyxp backend {self.name}>"

    @cached_property
    def engine(self) -> Any:
        """The ``tinyxp.engine.Engine`` of this library, from the entry-point group ``tinyxp.engines``: under
        the backend's name, or the plain one.
        """
        name = self.name if self.name in plugins.entries(plugins.ENGINES) else "plain"
        return plugins.load(plugins.ENGINES, name)(self)

    def compile(self, params: Any) -> Callable[..., Array]:
        """Return a function (ids, *, positions=None, mask=None) -> logits: ``tinyxp.forward`` with these
        parameters as fast as the library makes it, without gradients. Logits differ by rounding only.
        """
        return self.engine.compile(params)  # type: ignore[no-any-return]

    def on_select(self) -> None:
        """Prepare the library when a caller asks for this backend, as opposed to importing the library."""

    def is_array(self, x: object) -> bool:
        """Whether x is an array of this library, tracers included."""
        namespace = getattr(type(x), "__array_namespace__", None)
        return namespace is not None and x.__array_namespace__() is self.xp  # type: ignore[attr-defined]

    def is_concrete(self, x: Array) -> bool:
        """Whether x's values can be read now: not under a trace, not on a device without memory."""
        return True

    def from_numpy(self, x: np.ndarray, *, dtype: str | None = None, device: Any = None) -> Array:
        """Convert a NumPy array to this library, in ``dtype`` (a name) or in x's own."""
        target = None if dtype is None else self.dtype(dtype)
        array: Array = self.xp.asarray(x, dtype=target, device=self.device(device))
        return array

    def to_numpy(self, x: Array) -> np.ndarray:
        """Convert an array of this library to NumPy; bfloat16 becomes float32, which holds all its values."""
        return np.asarray(x)

    def astype(self, x: Array, dtype: str | None, device: Any = None) -> Array:
        """Return x in ``dtype`` (a name) on ``device``, copied only if necessary."""
        if dtype is not None and x.dtype != (target := self.dtype(dtype)):
            x = self.xp.astype(x, target)
        if device is None:
            return x
        moved: Array = x.to_device(self.device(device))  # type: ignore[attr-defined]
        return moved

    def dtype(self, dtype: Any) -> Any:
        """Return this library's dtype for a name such as "float32" or for any library's dtype object.

        Raise ValueError naming the dtype if the library, as it is configured now, does not compute in it.
        """
        name = dtype_name(dtype)
        own = getattr(self.xp, name, None)
        if own is None:
            raise ValueError(f"dtype is {name!r}; {self.name} has {', '.join(self.dtypes())}")
        return own

    def dtypes(self) -> tuple[str, ...]:
        """The names of the floating dtypes that this library has."""
        return tuple(name for name in DTYPES if getattr(self.xp, name, None) is not None)

    def device(self, device: Any) -> Any:
        """Return the library's device object for a name; None is the default device.

        Raise ValueError naming the device and the known ones.
        """
        if isinstance(device, str) and device not in self.devices():
            raise ValueError(f"device is {device!r}; {self.name} has {', '.join(self.devices())}")
        return device

    def device_of(self, x: Array) -> Any:
        """Return x's device as creation functions take it; None if they should not be given one."""
        return getattr(x, "device", None)

    def devices(self) -> list[str]:
        """The names of the devices that ``device`` takes."""
        return ["cpu"]

    def join_views(self, arrays: Sequence[Array]) -> Array | None:
        """Return one array over the memory of these, or None if they are not adjacent rows of one array.

        Arrays (m_i, ...) -> (sum of m_i, ...), without a copy. None as well for a library without views.
        """
        return None

    def jit(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return f compiled, or f itself if the library does not compile (see ``compiles``)."""
        return f

    def value_and_grad(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Turn f(params, ...) -> scalar into a function that returns (scalar, Params of gradients).

        Raise ValueError if the library has no gradients (see ``has_gradients``).
        """
        able = sorted({adapter.name for adapter in loaded() if adapter.has_gradients})
        advice = f"use {' or '.join(map(repr, able))}" if able else "install one of docs/backends.md"
        raise ValueError(f"backend is {self.name!r}, which has no gradients; {advice}")

    def detach(self, x: Array) -> Array:
        """Return x without the graph that gradients would flow back through."""
        return x

    def deliver(self, x: Array, callback: Callable[[np.ndarray], Any]) -> None:
        """Call ``callback`` with x's values on NumPy: now or, in a compiled function, each time it runs.

        Exceptions in the callback are lost. Raise ValueError if x never has values.
        """
        if not self.is_concrete(x):
            raise ValueError(f"it has no values here: record without {self.name}'s compiler")
        callback(self.to_numpy(x))

    def await_callbacks(self) -> None:
        """Return once every callback of ``deliver`` that is due has run."""

    def synchronize(self, x: Any) -> Any:
        """Return x once all work that it depends on is done."""
        return x

    def inference(self) -> AbstractContextManager[Any]:
        """A context in which the library keeps nothing for gradients."""
        return nullcontext()

    def float64(self) -> AbstractContextManager[Any]:
        """A context in which the library computes in float64, if it ever does."""
        return nullcontext()


_loaded: dict[str, Backend] = {}
_loading: set[str] = set()
_broken: dict[str, Exception] = {}


def load_imported() -> None:
    """Load the adapter of every library that is already imported, so that its arrays are recognised.

    An adapter that fails is not tried again here, and the others work on; ``backend`` says why it failed.
    """
    for name in plugins.entries(plugins.BACKENDS):
        if name not in sys.modules or name in _loaded or name in _loading or name in _broken:
            continue
        try:
            _load(name)
        except Exception as error:
            _broken[name] = error


def _load(name: str) -> Backend:
    if name not in _loaded:
        _loading.add(name)  # an adapter may import tinyxp, which loads what is imported
        try:
            adapter = plugins.load(plugins.BACKENDS, name)
        finally:
            _loading.discard(name)
        if not isinstance(adapter, Backend):
            raise ValueError(f"backend {name!r} is {adapter!r}; it must be a tinyxp.Backend")
        _loaded[name] = _loaded.setdefault(adapter.name, adapter)
    return _loaded[name]


def register(adapter: Backend) -> None:
    """Add an adapter that no entry point names, under its name and its namespace's name."""
    _loaded[adapter.name] = _loaded[adapter.xp.__name__] = adapter


def backend(name_or_module: str | Namespace) -> Backend:
    """Return the adapter of a library, given its name ("torch") or its namespace.

    The namespace may be torch, jax.numpy, numpy or their array_api_compat forms. Raise ValueError listing the
    known names for an unknown one, and ImportError saying what is missing for one that cannot be loaded.
    """
    if isinstance(name_or_module, Backend):
        return name_or_module
    if not isinstance(name_or_module, (str, ModuleType)):
        raise ValueError(f"xp is {name_or_module!r}; it must be an array namespace such as jax.numpy")
    requested = name_or_module if isinstance(name_or_module, str) else name_or_module.__name__
    if requested in _loaded:
        _loaded[requested].on_select()
        return _loaded[requested]
    full = requested.removeprefix("array_api_compat.")
    name = full.partition(".")[0]
    if name not in plugins.entries(plugins.BACKENDS):
        known = ", ".join(sorted(plugins.entries(plugins.BACKENDS)))
        raise ValueError(f"backend is {requested!r}; known are {known}")
    adapter = _load(name)
    adapter.on_select()
    if full not in (name, adapter.xp.__name__.removeprefix("array_api_compat.")):
        raise ValueError(
            f"xp is {requested}, which is not the array namespace of {name}: {adapter.xp.__name__} is"
        )
    return adapter


def available_backends() -> dict[str, str | None]:
    """Return every known backend's name with the version of its library, or None if it is not installed.

    Nothing is imported. An alias shares the version of the adapter that it names.
    """
    from importlib.metadata import PackageNotFoundError

    entries = plugins.entries(plugins.BACKENDS)
    versions: dict[str, str] = {}
    for name, entry in entries.items():
        with suppress(PackageNotFoundError, ValueError):  # find_spec raises it for a half-imported module
            if importlib.util.find_spec(name) is not None:
                versions[entry.value] = _version(name)
    return {name: versions.get(entry.value) for name, entry in sorted(entries.items())}


def _version(library: str) -> str:
    """The version of the distribution that an import name belongs to."""
    from importlib.metadata import PackageNotFoundError, packages_distributions, version

    try:
        return version(library)
    except PackageNotFoundError:
        return version(packages_distributions().get(library, [library])[0])


def owner_of(x: object) -> Backend | None:
    """Return the loaded adapter that x is an array of, or None."""
    return next((adapter for adapter in _loaded.values() if adapter.is_array(x)), None)


def loaded() -> list[Backend]:
    """Return the loaded adapters, those of eager libraries first."""
    return sorted(dict.fromkeys(_loaded.values()), key=lambda adapter: not adapter.eager)


def backend_of(x: object) -> Backend:
    """Return the adapter of the library that x is an array of; ValueError naming x's type for none."""
    owner = owner_of(x)
    if owner is None:
        _broken.clear()  # a library that was half imported then may be whole now
        load_imported()
        owner = owner_of(x)
    if owner is None:
        known = ", ".join(sorted(plugins.entries(plugins.BACKENDS)))
        failures = "".join(f"; {error}" for error in _broken.values())
        kind = f"{type(x).__module__}.{type(x).__qualname__}"
        raise ValueError(f"{kind} is not an array of a known library: {known}{failures}")
    return owner


def convert(x: Array, target: Backend, *, dtype: Any = None, device: Any = None) -> Array:
    """Return x as an array of ``target``, in ``dtype`` on ``device`` if given, through NumPy if necessary.

    If ``target`` lacks x's own half-precision dtype the result is float32, which holds all its values.
    """
    source = backend_of(x)
    if source is target:
        return target.astype(x, dtype, device)
    if dtype is None:
        dtype = dtype_name(x.dtype)
        if dtype not in target.dtypes() and dtype in ("bfloat16", "float16"):
            dtype = "float32"
    return target.from_numpy(source.to_numpy(x), dtype=dtype, device=device)
