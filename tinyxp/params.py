"""The parameters of a decoder: a read-only mapping of names to arrays, their shapes, their first values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tinyxp import registry
from tinyxp.checks import as_integer
from tinyxp.config import Config
from tinyxp.dtypes import dtype_name
from tinyxp.registry import Backend
from tinyxp.typing import Array, Namespace

Shapes = dict[str, tuple[int, ...]]

INIT_STD = 0.02


class Params(Mapping[str, Array]):
    """The weights of one model: a read-only mapping name -> array, with ``config`` and ``xp``.

    Raises ValueError listing the names that are missing or unknown, or naming a shape that contradicts the
    config. A pytree of JAX and of torch, its config static, so that jit and gradients take it as it is;
    a gradient is a Params too.
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
        """What a pytree takes apart: the leaves, and the static rest, the same object every time."""
        return list(self._arrays.values()), self._static

    @classmethod
    def _unflatten(cls, leaves: Any, static: tuple[tuple[str, ...], Config]) -> Params:
        """Puts them together again; the leaves may be another library's arrays, tracers or anything."""
        self = object.__new__(cls)
        arrays = dict(zip(static[0], leaves, strict=True))
        self._set(arrays, static, registry.owner_of(arrays[static[0][0]]))
        return self

    @classmethod
    def made_when_asked(cls, arrays: Mapping[str, Array], config: Config, backend: Backend) -> Params:
        """Parameters whose mapping makes each array when it is asked for; nothing is read or checked here."""
        self = object.__new__(cls)
        self._set(arrays, (tuple(arrays), config), backend)
        return self

    def held_as(
        self,
        arrays: Mapping[str, Array],
        blocks: list[dict[str, Array]] | None = None,
        config: Config | None = None,
    ) -> Params:
        """The same parameters in another form: the mapping that holds them, what ``block(i)`` gives, and the
        config where that changes too.
        """
        changed = object.__new__(Params)
        static = self._static if config is None else (tuple(arrays), config)
        changed._set(arrays, static, self._backend, blocks)
        return changed

    @property
    def is_joined(self) -> bool:
        """Whether ``block(i)`` gives another form of the parameters, such as joint projections."""
        return self._blocks is not None

    def __reduce__(self) -> tuple[Any, ...]:
        arrays = dict(self._arrays)
        if self._backend is not None and self._backend.has_views:
            # A view of a joint array might be written with the whole of it.
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
        """Params from weights under other names, each (out, in) as ours are.

        ``rename`` maps the mapping's names to ours: a dict (names that it lacks stay as they are) or a
        function, whose None leaves an entry out. Raises ValueError where two names become one.
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
        """The same parameters as arrays of ``xp``, in ``dtype`` (a name), on ``device``.

        What is left out stays; nothing is copied that need not be, so the two may share memory.
        """
        target = self.backend if xp is None else registry.backend(xp)
        return Params(
            {name: registry.convert(x, target, dtype=dtype, device=device) for name, x in self.items()},
            self.config,
        )

    def block(self, i: int) -> dict[str, Array]:
        """The parameters of block ``i`` under their names within it, such as ``attn.q.weight``."""
        if self._blocks is not None:
            return dict(self._blocks[i])
        return {name: self._arrays[f"blocks.{i}.{name}"] for name in block_shapes(self.config)}

    @property
    def device(self) -> Any:
        """Where the embedding lies, as creation functions take it; None where they should be told nothing."""
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


def as_config(config: Any) -> Config:
    """config; ValueError where it is none."""
    if not isinstance(config, Config):
        raise ValueError(f"config is a {type(config).__name__}; it must be tinyxp.Config")
    return config


def _owner(name: str, x: Array) -> Backend:
    """The library of a parameter; ValueError naming it where it is no floating array of a known one."""
    try:
        owner = registry.backend_of(x)
        dtype_name(x.dtype)
    except ValueError as error:
        raise ValueError(f"parameter {name}: {error}") from None
    return owner


def block_shapes(config: Config) -> Shapes:
    """The parameters of one block, name -> shape."""
    d, f = config.d_model, config.d_ff
    q_width, kv_width = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim

    def norm(name: str) -> Shapes:
        kinds = ("weight", "bias") if config.norm == "layer" else ("weight",)
        return {f"{name}.{kind}": (d,) for kind in kinds}

    def linear(name: str, out: int, into: int, bias: bool) -> Shapes:
        weight: Shapes = {f"{name}.weight": (out, into)}
        return weight | {f"{name}.bias": (out,)} if bias else weight

    return (
        norm("attn_norm")
        | linear("attn.q", q_width, d, config.attn_bias)
        | linear("attn.k", kv_width, d, config.attn_bias)
        | linear("attn.v", kv_width, d, config.attn_bias)
        | linear("attn.o", d, q_width, config.attn_out_bias)
        | norm("mlp_norm")
        | (linear("mlp.gate", f, d, config.mlp_bias) if config.mlp == "swiglu" else {})
        | linear("mlp.up", f, d, config.mlp_bias)
        | linear("mlp.down", d, f, config.mlp_bias)
    )


def parameter_shapes(config: Config) -> Shapes:
    """All parameters in the order of the forward pass, name -> shape."""
    n, d = config.vocab_size, config.d_model
    shapes: Shapes = {"embed.weight": (n, d)}
    if config.position == "learned":
        shapes["pos_embed.weight"] = (config.max_seq_len, d)
    for i in range(config.n_layers):
        shapes |= {f"blocks.{i}.{name}": shape for name, shape in block_shapes(config).items()}
    shapes["final_norm.weight"] = (d,)
    if config.norm == "layer":
        shapes["final_norm.bias"] = (d,)
    if not config.tie_embeddings:
        shapes["head.weight"] = (n, d)
    return shapes


def count_parameters(config: Config) -> dict[str, int]:
    """How many numbers the model holds, by group and in ``total``; a tied head counts once, in ``embed``.

    embed n d; pos_embed max_seq_len d; attention L (2 h + 2 g) hd d; mlp 3 L f d (2 L f d without a gate);
    norm (2 L + 1) d, twice that with biases; head n d where untied; biases count with their matrix.
    """
    c = as_config(config)
    d, q_width, kv_width = c.d_model, c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim
    inner = 2 if c.mlp == "swiglu" else 1
    attention = 2 * d * (q_width + kv_width)
    attention += (q_width + 2 * kv_width) * c.attn_bias + d * c.attn_out_bias
    mlp = (inner + 1) * c.d_ff * d + (inner * c.d_ff + d) * c.mlp_bias
    counts = {
        "embed": c.vocab_size * d,
        "pos_embed": c.max_seq_len * d * (c.position == "learned"),
        "attention": c.n_layers * attention,
        "mlp": c.n_layers * mlp,
        "norm": (2 * c.n_layers + 1) * d * (2 if c.norm == "layer" else 1),
        "head": 0 if c.tie_embeddings else c.vocab_size * d,
    }
    return counts | {"total": sum(counts.values())}


def init(
    config: Config,
    *,
    seed: int = 0,
    xp: Namespace = np,
    dtype: str = "float32",
    device: Any = None,
) -> Params:
    """Random parameters after GPT-2's scheme: matrices normal with standard deviation 0.02, and
    0.02 / sqrt(2 L) for the two of each block that write into the residual stream; norm weights 1, biases 0.

    The same numbers on every backend: they are drawn in float64 on the host from
    ``numpy.random.default_rng(seed)``, in the order of ``parameter_shapes``, and rounded to ``dtype``.
    (Radford et al., 2019.)
    """
    as_config(config)
    seed = as_integer("seed", seed, low=0)
    target = registry.backend(xp)
    target.dtype(dtype)
    rng = np.random.default_rng(seed)
    residual_std = INIT_STD / math.sqrt(2 * config.n_layers)
    arrays: dict[str, Array] = {}
    for name, shape in parameter_shapes(config).items():
        if name.endswith(".bias"):
            host = np.zeros(shape)
        elif len(shape) == 1:
            host = np.ones(shape)
        else:
            writes_residual = name.endswith(("attn.o.weight", "mlp.down.weight"))
            host = rng.normal(0.0, residual_std if writes_residual else INIT_STD, shape)
        arrays[name] = target.from_numpy(host, dtype=dtype, device=device)
    from tinyxp.fusion import laid_together  # which needs Params

    return Params(laid_together(arrays, config, target), config)
