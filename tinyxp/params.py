"""The parameters of a decoder: a read-only mapping of names to arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tinyxp import registry
from tinyxp.config import Config
from tinyxp.dtypes import dtype_name
from tinyxp.joint import join_block
from tinyxp.registry import Backend
from tinyxp.shapes import as_config, block_shapes, count_parameters, parameter_shapes
from tinyxp.typing import Array, Namespace


class Params(Mapping[str, Array]):
    """The weights of one model: a read-only mapping name -> array, with ``config`` and ``xp``.

    Raise ValueError listing the names that are missing or unknown, or naming a shape that contradicts the
    config. A pytree of JAX and of torch with a static config, so that jit and gradients take it as it is.
    A gradient is a Params too.
    """

    __slots__ = ("__weakref__", "_arrays", "_backend", "_blocks", "_static", "config")

    _arrays: Mapping[str, Array]
    _backend: Backend | None
    _blocks: list[dict[str, Array]] | None
    _static: tuple[tuple[str, ...], Config]
    config: Config

    def __init__(self, arrays: Mapping[str, Array], config: Config) -> None:
        shapes = parameter_shapes(as_config(config))
        if not isinstance(arrays, Mapping):
            raise ValueError(f"arrays is a {type(arrays).__name__}; it must map names to arrays")
        missing, unknown = sorted(shapes.keys() - arrays.keys()), sorted(arrays.keys() - shapes.keys())
        if missing or unknown:
            raise ValueError(f"parameters do not fit the config: missing {missing}, unknown {unknown}")
        owners = {name: _owner(name, arrays[name]) for name in shapes}
        for name, shape in shapes.items():
            if tuple(arrays[name].shape) != shape:
                raise ValueError(
                    f"parameter {name} has shape {tuple(arrays[name].shape)}; the config says {shape}"
                )
        backends = set(owners.values())
        if len(backends) > 1:
            names = ", ".join(sorted(owner.name for owner in backends))
            raise ValueError(f"parameters must be arrays of one library; these are of {names}")
        registry.load_imported()
        self._set({name: arrays[name] for name in shapes}, (tuple(shapes), config), backends.pop())

    def _set(
        self,
        arrays: Mapping[str, Array],
        static: tuple[tuple[str, ...], Config],
        backend: Backend | None,
        blocks: list[dict[str, Array]] | None = None,
    ) -> None:
        slots = {"_arrays": arrays, "_static": static, "config": static[1], "_backend": backend}
        for slot, value in (slots | {"_blocks": blocks}).items():
            object.__setattr__(self, slot, value)

    def _flatten(self) -> tuple[list[Array], tuple[tuple[str, ...], Config]]:
        """Return the leaves of the pytree and its static part, the same object every time."""
        return list(self._arrays.values()), self._static

    @classmethod
    def _unflatten(cls, leaves: Any, static: tuple[tuple[str, ...], Config]) -> Params:
        """Rebuild Params from leaves, which may be another library's arrays, tracers or anything."""
        self = object.__new__(cls)
        arrays = dict(zip(static[0], leaves, strict=True))
        self._set(arrays, static, registry.owner_of(arrays[static[0][0]]))
        return self

    @classmethod
    def lazy(cls, arrays: Mapping[str, Array], config: Config, backend: Backend) -> Params:
        """Return parameters over a mapping that creates each array on demand; nothing is read or checked."""
        self = object.__new__(cls)
        self._set(arrays, (tuple(arrays), config), backend)
        return self

    def replace(
        self,
        arrays: Mapping[str, Array],
        blocks: list[dict[str, Array]] | None = None,
        config: Config | None = None,
    ) -> Params:
        """Return parameters over another mapping, unchecked: what ``block(i)`` returns, and the config, may
        change with it.
        """
        changed = object.__new__(Params)
        static = self._static if config is None else (tuple(arrays), config)
        changed._set(arrays, static, self._backend, blocks)
        return changed

    def join(self) -> Params:
        """Return these parameters, whose ``block(i)`` holds joint projections too if they are adjacent."""
        backend = self.backend
        if self.is_joined or not backend.has_views:
            return self
        blocks = [join_block(self.block(i), backend) for i in range(self.config.n_layers)]
        return self.replace(self._arrays, blocks)

    @property
    def is_joined(self) -> bool:
        """Whether ``block(i)`` gives another form of the parameters, such as joint projections."""
        return self._blocks is not None

    def __reduce__(self) -> tuple[Any, ...]:
        arrays = dict(self._arrays)
        if self._backend is not None and self._backend.has_views:
            # Pickling a view of a joint array might write the whole array.
            arrays = {name: self._backend.xp.asarray(x, copy=True) for name, x in arrays.items()}
        return Params, (arrays, self.config)

    @property
    def backend(self) -> Backend:
        """The adapter of the parameters' library."""
        return registry.backend_of(self._arrays["embed.weight"]) if self._backend is None else self._backend

    @property
    def xp(self) -> Namespace:
        """The array namespace of the parameters."""
        return self.backend.xp

    @classmethod
    def from_state_dict(
        cls,
        mapping: Mapping[str, Array],
        config: Config,
        rename: Mapping[str, str] | Callable[[str], str | None] | None = None,
    ) -> Params:
        """Return Params from weights under other names, each (out, in) as ours are.

        ``rename`` maps the mapping's names to ours: a dict (names that it lacks stay as they are) or a
        function, which returns None to skip an entry. Raise ValueError if two names become one.
        """
        if not isinstance(mapping, Mapping):
            raise ValueError(f"mapping is a {type(mapping).__name__}; it must map names to arrays")
        arrays: dict[str, Array] = {}
        for theirs, array in mapping.items():
            ours = rename(theirs) if callable(rename) else (rename or {}).get(theirs, theirs)
            if ours is None:
                continue
            if ours in arrays:
                raise ValueError(f"parameter {ours} is given twice; the second time as {theirs}")
            arrays[ours] = array
        return cls(arrays, config)

    def to(self, xp: Namespace | None = None, *, dtype: str | None = None, device: Any = None) -> Params:
        """Return these parameters as arrays of ``xp``, in ``dtype`` (a name), on ``device``.

        What is not given stays as it is. Only what must be is copied, so the two may share memory.
        """
        target = self.backend if xp is None else registry.backend(xp)
        return Params(
            {name: registry.convert(x, target, dtype=dtype, device=device) for name, x in self.items()},
            self.config,
        )

    def block(self, i: int) -> dict[str, Array]:
        """Return the parameters of block ``i`` under their names within it, such as ``attn.q.weight``."""
        if self._blocks is not None:
            return dict(self._blocks[i])
        return {name: self._arrays[f"blocks.{i}.{name}"] for name in block_shapes(self.config)}

    @property
    def device(self) -> Any:
        """The embedding's device as creation functions take it; None if they should not be given one."""
        return self.backend.device_of(self._arrays["embed.weight"])

    @property
    def dtype(self) -> Any:
        """The dtype of the embedding, which is the dtype of every activation."""
        return self._arrays["embed.weight"].dtype

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Params are read-only; {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Params are read-only; {name} cannot be deleted")

    # Identity, since comparing arrays of any library (or tracers) as truth values is an error.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        total = count_parameters(self.config)["total"]
        library = "other leaves" if self._backend is None else self._backend.name
        dtype = getattr(self._arrays["embed.weight"], "dtype", "no dtype")
        return f"<Params of {library}: {len(self)} arrays, {total:,} numbers, {dtype}>"


def _owner(name: str, x: Array) -> Backend:
    """Return the library of a parameter; ValueError naming the parameter if it is no floating array."""
    try:
        owner = registry.backend_of(x)
        dtype_name(x.dtype)
    except ValueError as error:
        raise ValueError(f"parameter {name}: {error}") from None
    return owner
