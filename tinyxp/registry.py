"""The backends: what tinyxp needs of an array library beyond the standard, found by entry points.

A backend is an instance of (a subclass of) ``Backend`` that a package names in the entry-point group
``tinyxp.backends`` under its library's import name. Nothing here knows a library by name.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyxp.dtypes import DTYPES, dtype_name
from tinyxp.typing import Array, Namespace

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from tinyxp.decoding import Decoder
    from tinyxp.params import Params

GROUP = "tinyxp.backends"


class Backend:
    """One array library: its namespace, and how arrays come in, go out, compile and differentiate.

    The methods here serve any eager library that conforms to the standard; a subclass replaces what its
    library does otherwise.
    """

    name: str
    """The library's import name."""
    xp: Namespace
    """The array namespace that the model computes with."""
    kernels: Mapping[str, Callable[..., Array]]
    """Faster twins of functions in ``tinyxp.ops``, for decoding: write_cache may write in place."""
    references: Mapping[str, Callable[..., Array]]
    """The library's own forms of functions in ``tinyxp.ops``, of the same signatures, to compare with."""
    training: Mapping[str, Callable[..., Array]]
    """Those of ``kernels`` that are faster with gradients too; all of them unless given."""
    index_dtype: str = "int64"
    """The integer dtype that this library indexes with."""
    decoder: type[Decoder] | None
    """What drives generation; None for ``tinyxp.decoding.Decoder``."""
    has_views: bool = False
    """Whether a slice of an array shares its memory."""
    eager: bool = True
    """Whether one operation on a new shape is cheap; where it is not, laws run compiled, over few shapes."""

    def __init__(
        self,
        name: str,
        xp: Namespace,
        kernels: Mapping[str, Callable[..., Array]] | None = None,
        references: Mapping[str, Callable[..., Array]] | None = None,
        decoder: type[Decoder] | None = None,
        training: Mapping[str, Callable[..., Array]] | None = None,
    ):
        self.name = name
        self.xp = xp
        self.kernels = kernels or {}
        self.references = references or {}
        self.decoder = decoder
        self.training = self.kernels if training is None else training

    def __repr__(self) -> str:
        return f"<tinyxp backend {self.name}>"

    def selected(self) -> None:
        """Called when someone asks for this backend, as opposed to having its library imported."""

    def is_array(self, x: object) -> bool:
        """Whether x is an array of this library, tracers included."""
        namespace = getattr(type(x), "__array_namespace__", None)
        return namespace is not None and x.__array_namespace__() is self.xp  # type: ignore[attr-defined]

    def is_concrete(self, x: Array) -> bool:
        """Whether x's values can be read now: not under a trace, not on a device without memory."""
        return True

    def from_numpy(self, x: np.ndarray, *, dtype: str | None = None, device: Any = None) -> Array:
        """A NumPy array -> an array of this library, in ``dtype`` (a name) or in x's own."""
        wanted = None if dtype is None else self.dtype(dtype)
        array: Array = self.xp.asarray(x, dtype=wanted, device=self.device(device))
        return array

    def to_numpy(self, x: Array) -> np.ndarray:
        """An array of this library -> NumPy; bfloat16 comes as float32, which holds each of its values."""
        return np.asarray(x)

    def astype(self, x: Array, dtype: str | None, device: Any = None) -> Array:
        """x in ``dtype`` (a name) on ``device``, copied only where it must be."""
        if dtype is not None and x.dtype != (wanted := self.dtype(dtype)):
            x = self.xp.astype(x, wanted)
        if device is None:
            return x
        moved: Array = x.to_device(self.device(device))  # type: ignore[attr-defined]
        return moved

    def dtype(self, dtype: Any) -> Any:
        """A name such as "float32" (or any library's dtype object) -> this library's dtype.

        Raises ValueError naming the dtype where the library, as it is set up now, computes in no such one.
        """
        name = dtype_name(dtype)
        found = getattr(self.xp, name, None)
        if found is None:
            raise ValueError(f"dtype is {name!r}; {self.name} has {', '.join(self.dtypes())}")
        return found

    def dtypes(self) -> tuple[str, ...]:
        """The names of the floating dtypes that this library has."""
        return tuple(name for name in DTYPES if getattr(self.xp, name, None) is not None)

    def device(self, device: Any) -> Any:
        """A device's name -> the library's own object for it; None is the default device.

        Raises ValueError naming the device and those that there are.
        """
        if isinstance(device, str) and device not in self.devices():
            raise ValueError(f"device is {device!r}; {self.name} has {', '.join(self.devices())}")
        return device

    def device_of(self, x: Array) -> Any:
        """Where x lies, as creation functions take it; None where they should be told nothing."""
        return getattr(x, "device", None)

    def devices(self) -> list[str]:
        """The names of the devices that ``device`` takes."""
        return ["cpu"]

    def joined(self, arrays: Sequence[Array]) -> Array | None:
        """One array that shares the memory of all of these, which lie one below another; None where they
        do not, or where the library has no views.
        """
        return None

    def prepared(self, params: Params) -> Params:
        """The same parameters in the form that this library generates with fastest, and for that alone. They
        may share memory with the given ones, and what they do not share is a copy: let go of the given ones
        where memory counts.
        """
        from tinyxp.fusion import joined, laid_together
        from tinyxp.params import Params

        if params.is_joined:
            return params
        return joined(Params(laid_together(dict(params), params.config, self), params.config))

    def compile(self, params: Params) -> Callable[..., Array]:
        """``tinyxp.forward`` for these parameters, as fast as this library makes it: a function
        ``(ids, *, positions=None, mask=None) -> logits`` with the backend's kernels, joint projections where
        the library has views, and a compiler on JAX; without gradients.

        Its logits differ from those of ``forward`` by rounding only.
        """
        from tinyxp.inputs import as_kernels
        from tinyxp.model import forward

        return partial(forward, self.prepared(params), kernels=as_kernels(self.kernels))

    def int8(self, params: Params) -> Params:
        """The same parameters with matrices of eight bits, for generating and ``compile`` alone.

        Each row of a matrix is rounded to 127 steps on either side of 0; a tied table is kept for looking up,
        and rounded as the head. Raises ValueError where the library has no product for them.
        """
        self.check_int8()
        raise NotImplementedError

    def check_int8(self) -> None:
        """Raises ValueError where the library has no product for ``int8``."""
        if type(self).int8 is Backend.int8:
            raise ValueError(f"dtype is 'int8', which {self.name} has no product for; torch has one")

    def jit(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """f compiled, where the library compiles; f itself where it does not."""
        return f

    def value_and_grad(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """f(params, ...) -> scalar  becomes  a function to (scalar, Params of gradients)."""
        raise ValueError(
            f"backend is {self.name!r}, which has no gradients; install one that has: "
            "pip install 'tinyxp[torch]' or 'tinyxp[jax]'"
        )

    def detached(self, x: Array) -> Array:
        """x without the graph that gradients would go back through."""
        return x

    def tell(self, x: Array, told: Callable[[np.ndarray], Any]) -> None:
        """Calls ``told`` with x's values on NumPy: now, or, under a compiler that can, each time that what
        is compiled computes them. ``told`` must not raise: nobody would hear.

        Raises ValueError where x has no values and never will have.
        """
        if not self.is_concrete(x):
            raise ValueError(f"it has no values here: record without {self.name}'s compiler")
        told(self.to_numpy(x))

    def hear(self) -> None:
        """Returns once every ``told`` that is due has been called."""

    def synchronize(self, x: Any) -> Any:
        """x, once all work that it waits for is done."""
        return x

    def inference(self) -> AbstractContextManager[Any]:
        """Within it the library keeps nothing for gradients."""
        return nullcontext()

    def float64(self) -> AbstractContextManager[Any]:
        """Within it the library computes in float64, if it ever does."""
        return nullcontext()


_known: dict[str, EntryPoint] = {}
_loaded: dict[str, Backend] = {}
_loading: set[str] = set()


def _entries() -> dict[str, EntryPoint]:
    if not _known:
        from importlib.metadata import entry_points  # dear to import, and seldom needed

        _known.update({entry.name: entry for entry in entry_points(group=GROUP)})
    return _known


def load_imported() -> None:
    """Loads the adapter of every library that is imported already, so that its arrays are known.

    One that cannot be loaded must not keep the others from working: asked for by name, it says why.
    """
    for name in _entries():
        if sys.modules.get(name) is not None and name not in _loaded and name not in _loading:
            with suppress(Exception):
                _load(name)


def _load(name: str) -> Backend:
    if name not in _loaded:
        _loading.add(name)  # an adapter may import tinyxp, which loads what is imported
        try:
            found = _entries()[name].load()
        finally:
            _loading.discard(name)
        if not isinstance(found, Backend):
            raise ValueError(f"backend {name!r} is {found!r}; it must be a tinyxp.Backend")
        _loaded[name] = _loaded.setdefault(found.name, found)
    return _loaded[name]


def register(found: Backend) -> None:
    """Makes known an adapter that no entry point names, by its name and by its namespace."""
    _loaded[found.name] = _loaded[found.xp.__name__] = found


def backend(name_or_module: str | Namespace) -> Backend:
    """The adapter of a library, by its name ("torch") or its namespace (torch, jax.numpy, numpy, or their
    array_api_compat forms).

    Raises ValueError listing the known names for an unknown one, and ImportError saying what to install
    for a known one whose library is missing.
    """
    if isinstance(name_or_module, Backend):
        return name_or_module
    if not isinstance(name_or_module, (str, ModuleType)):
        raise ValueError(f"xp is {name_or_module!r}; it must be an array namespace such as jax.numpy")
    given = name_or_module if isinstance(name_or_module, str) else name_or_module.__name__
    if given in _loaded:
        _loaded[given].selected()
        return _loaded[given]
    full = given.removeprefix("array_api_compat.")
    name = full.partition(".")[0]
    if name not in _entries():
        raise ValueError(f"backend is {given!r}; known are {', '.join(sorted(_entries()))}")
    try:
        found = _load(name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"backend {name!r} needs {error.name!r}, which is not installed: pip install {error.name!r}"
        ) from error
    except ValueError:
        raise
    except Exception as error:  # whatever a third party's module raises
        raise ImportError(f"backend {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    found.selected()
    if full not in (name, found.xp.__name__.removeprefix("array_api_compat.")):
        raise ValueError(f"xp is {given}, which is not the array namespace of {name}: {found.xp.__name__} is")
    return found


def available_backends() -> dict[str, str | None]:
    """Every known backend's name -> the version of its library, or None where it is not installed.

    Nothing is imported. An alias stands for the library whose adapter it shares.
    """
    from importlib.metadata import PackageNotFoundError

    versions: dict[str, str] = {}
    for name, entry in _entries().items():
        with suppress(PackageNotFoundError, ValueError):  # what find_spec raises for a module in the making
            if importlib.util.find_spec(name) is not None:
                versions[entry.value] = _version(name)
    return {name: versions.get(entry.value) for name, entry in sorted(_entries().items())}


def _version(library: str) -> str:
    """The version of the distribution that a library's import name belongs to."""
    from importlib.metadata import PackageNotFoundError, packages_distributions, version

    try:
        return version(library)
    except PackageNotFoundError:
        return version(packages_distributions().get(library, [library])[0])


def owner_of(x: object) -> Backend | None:
    """The adapter, among those loaded, of the library that x is an array of."""
    return next((found for found in _loaded.values() if found.is_array(x)), None)


def loaded() -> list[Backend]:
    """The adapters that are loaded, those of eager libraries first."""
    return sorted(dict.fromkeys(_loaded.values()), key=lambda found: not found.eager)


def backend_of(x: object) -> Backend:
    """The adapter of the library that x is an array of; ValueError naming x's type where none is known."""
    found = owner_of(x)
    if found is None:
        load_imported()
        found = owner_of(x)
    if found is None:
        raise ValueError(
            f"{type(x).__module__}.{type(x).__qualname__} is not an array of a known library: "
            f"{', '.join(sorted(_entries()))}"
        )
    return found


def convert(x: Array, target: Backend, *, dtype: Any = None, device: Any = None) -> Array:
    """x as an array of ``target``, in ``dtype`` on ``device`` where given; through NumPy between libraries.

    Where ``target`` lacks x's own half-precision dtype the result is float32, which holds its every value.
    """
    source = backend_of(x)
    if source is target:
        return target.astype(x, dtype, device)
    if dtype is None:
        dtype = dtype_name(x.dtype)
        if dtype not in target.dtypes() and dtype in ("bfloat16", "float16"):
            dtype = "float32"
    return target.from_numpy(source.to_numpy(x), dtype=dtype, device=device)
