"""tinyxp's decoder on a backend as a subject, by the backend's name."""

from __future__ import annotations

from tinyxp.adoption import adopt
from tinyxp.engine import engine_of
from tinyxp.registry import Backend
from tinyxp.testing.subjects.base import ABILITIES
from tinyxp.testing.subjects.decoder import OURS, Decoder, Modules


def subject(name: str, *, dtype: str | None = None, pooled: bool | None = None) -> Decoder:
    """Return tinyxp's decoder on a backend, such as "jax", or with the backend's kernels: "jax+kernels".

    ``name`` may also be any importable namespace that conforms to the array API standard. ``dtype`` defaults
    to float64 if the library has it, because small faults show best there. ``pooled`` limits the laws to half
    a dozen shapes; it defaults to True if the library compiles each new shape. Errors as for
    ``tinyxp.backend``.
    """
    library, plus, suffix = name.partition("+")
    backend = adopt(library)
    if plus and (suffix != "kernels" or not engine_of(backend).kernels):
        raise ValueError(f"subject is {name!r}; only 'kernels' may follow '+', for a backend that has some")
    options = {"dtype": dtype, "pooled": pooled}
    recipe = f"subject({name!r}{''.join(f', {k}={v!r}' for k, v in options.items() if v is not None)})"
    return build_decoder(
        backend, name=name, recipe=recipe, dtype=dtype, pooled=pooled, with_kernels=bool(plus)
    )


def build_decoder(
    backend: Backend,
    *,
    name: str,
    recipe: str,
    recipe_module: str = "tinyxp.testing",
    modules: Modules = OURS,
    dtype: str | None = None,
    pooled: bool | None = None,
    with_kernels: bool = False,
) -> Decoder:
    """Return tinyxp's source, or a changed copy of it, on a backend as a subject."""
    with backend.float64():
        chosen = dtype or next(d for d in ("float64", "float32") if d in backend.dtypes())
        backend.dtype(chosen)
    engine = engine_of(backend)
    present = {
        "gradients": backend.has_gradients,
        "compiler": backend.compiles,
        "devices": len(backend.devices()) > 1,
        "references": bool(engine.references),
        "kernels": bool(engine.kernels) and not with_kernels,
        "values": not with_kernels,
        "trace": not with_kernels,
    }
    return Decoder(
        name,
        recipe,
        frozenset(ability for ability in ABILITIES if present.get(ability, True)),
        chosen,
        not backend.eager if pooled is None else pooled,
        recipe_module=recipe_module,
        backend=backend,
        modules=modules,
        kernels=engine.kernels if with_kernels else {},
    )
