"""Laws of what a backend adds: compilers, kernels and devices change no value, and dtypes are kept."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.config import MLPS
from tinyxp.dtypes import bare_name
from tinyxp.params import Params
from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.caching import draw_pieces, feed
from tinyxp.testing.laws.padding import draw_padded
from tinyxp.testing.strategies import random_arrays, seeds
from tinyxp.testing.subjects.backends import build_decoder
from tinyxp.testing.subjects.decoder import POOL

CONTRACT = "tinyxp's own contract: "

law = laws_of("model", "kernels", CONTRACT + "everything runs under jit", "params")


@law(
    "The compiled model gives the logits of the uncompiled one.",
    region="compiler",
    needs="params compiler mask",
    examples=1,
)
def compiled_equals_eager(subject: Any, draw: Draw) -> None:
    config = draw("config", st.sampled_from(POOL))
    model = subject.build(config, random_arrays(config, draw("seed", seeds())))
    ids, mask = draw_padded(subject, draw, model)
    ids_array, mask_array = subject.array(ids), subject.array(mask)
    forward = subject.modules.model.forward
    eager = forward(model.params, ids_array, mask=mask_array)
    compiled = subject.backend.jit(partial(forward))(model.params, ids_array, mask=mask_array)
    subject.close(subject.host(compiled), subject.host(eager), "compiled logits")


@law(
    "With the backend's kernels the model gives the logits of the pure operations, with a cache and without.",
    source=CONTRACT + "a kernel computes what its pure function computes",
    needs="params kernels mask cache",
)
def kernels_equal_the_pure_path(subject: Any, draw: Draw) -> None:
    config = draw("config", subject.configs())
    arrays = random_arrays(config, draw("seed", seeds()))
    model = subject.build(config, arrays)
    ids, mask = draw_padded(subject, draw, model)
    if subject not in _with_kernels:
        _with_kernels[subject] = build_decoder(
            subject.backend,
            name=f"{subject.name}+kernels",
            recipe="",
            modules=subject.modules,
            dtype=subject.dtype,
            pooled=subject.pooled,
            with_kernels=True,
        )
    fast = _with_kernels[subject].build(config, arrays)
    expected = model.forward(ids, mask=mask)
    subject.close(fast.forward(ids, mask=mask)[mask], expected[mask], "logits with kernels")
    cuts = draw_pieces(subject, draw, ids.shape[1])
    logits, _ = feed(fast, ids, cuts, fast.new_cache(len(ids), ids.shape[1] + 1), mask=mask)
    subject.close(logits[mask], expected[mask], f"logits with kernels and a cache, in pieces of {cuts}")


_with_kernels: dict[Any, Any] = {}


@law(
    "Projections that are adjacent in memory are computed as one product, with the results of single ones, "
    "with a cache and without.",
    source=CONTRACT + "joint projections are a matter of memory",
    needs="params mask cache",
)
def joint_projections_are_the_single_ones(subject: Any, draw: Draw) -> None:
    backend, m = subject.backend, subject.modules
    if not backend.has_views:
        return
    config = draw("config", subject.configs())
    arrays = random_arrays(config, draw("seed", seeds()))
    model, other = subject.build(config, arrays), subject.build(config, arrays)
    ids, mask = draw_padded(subject, draw, model)
    together = m.joint.lay_together(dict(other.params), config, backend)
    joint = Params(together, config).join()
    joints = {"+".join(names) for names in m.joint.JOINT if MLPS[config.mlp].gated or names[0] != "mlp.gate"}
    lacking = sorted(name for name in joints if f"{name}.weight" not in joint.block(0))
    subject.equal(lacking, [], "what was not joined")
    expected, here = model.forward(ids, mask=mask), {"mask": subject.array(mask)}
    kernels = m.ops.Kernels(**{"project": m.joint.project, **subject.kernels})
    found = subject.compiled(m.model.forward, kernels=kernels)(joint, subject.array(ids), **here)
    subject.close(subject.host(found)[mask], expected[mask], "logits of joint projections")
    cache = other.new_cache(len(ids), ids.shape[1])
    found, _ = subject.compiled(m.model.extend, kernels=kernels)(joint, subject.array(ids), cache, **here)
    subject.close(subject.host(found)[mask], expected[mask], "logits of joint projections with a cache")


@law(
    "Intermediate values, cache and logits have the parameters' dtype; the loss is in at least float32.",
    region="precision",
    source=CONTRACT + "activations keep the parameters' dtype",
    needs="params trace cache mask",
    examples=8,
)
def dtypes_are_kept(subject: Any, draw: Draw) -> None:
    config = draw("config", subject.configs())
    dtype = draw("dtype", st.sampled_from(subject.backend.dtypes()))
    model = subject.build(config, random_arrays(config, draw("seed", seeds())), dtype)
    ids, mask = draw_padded(subject, draw, model)
    m = subject.modules
    here = {"mask": subject.array(mask)}
    points = subject.compiled(m.tracing.trace)(model.params, subject.array(ids), **here)
    logits, cache = subject.compiled(m.model.extend)(
        model.params, subject.array(ids), model.new_cache(*ids.shape), **here
    )
    found = {**points, "extend": logits, "keys": cache.keys[0], "values": cache.values[0]}
    for name, x in found.items():
        subject.equal(bare_name(x.dtype), dtype, f"dtype of {name}")
    loss = subject.compiled(m.model.loss)(model.params, subject.array(ids), subject.array(ids), **here)
    expected = "float64" if dtype == "float64" else "float32"
    subject.equal(bare_name(loss.dtype), expected, "dtype of the loss")
    if not np.isfinite(subject.host(loss)):
        raise AssertionError(f"loss is {loss} in {dtype}")


@law(
    "float16 and bfloat16 logits are as close to the float64 referee as rounding in that dtype allows.",
    region="precision",
    source="norms, softmax, scores and rotary tables are computed in float32 at least",
    examples=8,
)
def half_precision_is_near(subject: Any, draw: Draw) -> None:
    from tinyxp.testing.laws.reference import exact

    halves = [d for d in ("bfloat16", "float16") if d in subject.backend.dtypes()]
    if not halves:
        return
    config = draw("config", subject.configs(n_layers=1))
    dtype = draw("dtype", st.sampled_from(halves))
    model = subject.build(config, random_arrays(config, draw("seed", seeds())), dtype)
    ids = model.ids(draw)
    rounded = {name: subject.host(x).astype(np.float64) for name, x in model.params.items()}
    reference = exact(config, rounded, ids)
    # About sixty roundings in one block, each half an epsilon of a value near the largest.
    allowed = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype] * 60.0
    subject.close(model.forward(ids).astype(np.float64), reference, f"{dtype} logits", within=allowed)


@law(
    "Everything is computed on the parameters' device, from ids and masks of the host.",
    region="devices",
    source=CONTRACT + "device= on every creation",
    needs="params devices cache mask",
)
def everything_stays_on_its_device(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = draw_padded(subject, draw, model)
    backend, m = subject.backend, subject.modules
    params = model.params.to(device=backend.devices()[-1])
    masked = {"mask": mask.tolist()}
    cache = m.cache.new_cache(params, *ids.shape)
    logits, cache = m.model.extend(params, ids.tolist(), cache, **masked)
    found = {
        "forward": m.model.forward(params, ids.tolist(), **masked),
        "extend": logits,
        "the cache": cache.keys[0],
        "loss": m.model.loss(params, ids.tolist(), ids.tolist(), **masked),
    }
    device = backend.device_of(params["embed.weight"])
    for name, x in found.items():
        subject.equal(str(backend.device_of(x)), str(device), f"device of {name}")
        if backend.is_concrete(x) and name in ("forward", "extend"):
            subject.close(subject.host(x), model.forward(ids, mask=mask), f"{name} on {device}")


def without_attention(q: Any, k: Any, v: Any, visible: Any, *, xp: Any, tap: Any = None) -> Any:
    """Return zeros: an attention kernel that reads nothing."""
    return 0.0 * q


def logits_of_extend(params: Any, ids: Any, cache: Any, *, model: Any, kernels: Any) -> Any:
    logits, _ = model.extend(params, ids, cache, kernels=kernels)
    return logits


@law(
    "forward, loss and extend compute with the caller's kernels: an attention that returns zeros equals a "
    "model whose attention output matrices are zero.",
    source="tinyxp's own contract: kernels",
    needs="params cache",
)
def kernels_that_are_given_are_used(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    silent = {name: 0.0 * x for name, x in model.arrays.items() if name.endswith("attn.o.weight")}
    silenced, m, array = model.but(**silent), subject.modules.model, subject.array(ids)
    kernels = m.Kernels(attention=without_attention)
    logits = subject.compiled(m.forward, kernels=kernels)(model.params, array)
    subject.close(subject.host(logits), silenced.forward(ids), "logits of forward")
    loss = subject.compiled(m.loss, kernels=kernels)(model.params, array, array)
    subject.close(float(subject.host(loss)), silenced.loss(ids, ids), "loss")
    step = subject.compiled(logits_of_extend, model=m, kernels=kernels)
    extended = step(model.params, array, model.new_cache(*ids.shape))
    subject.close(subject.host(extended), silenced.forward(ids), "logits of extend")


@law(
    "Tables of cos and sin are in float64 if the parameters are, and otherwise in float32, for narrower "
    "dtypes too.",
    region="precision",
    source="in bfloat16 only 641 of the first 2048 positions are distinct",
    examples=8,
)
def rotary_tables_are_wide(subject: Any, draw: Draw) -> None:
    backend, model = subject.backend, subject.model(draw, position="rope")
    positions = subject.array(np.arange(4)[None, :])
    for dtype in backend.dtypes():
        tables = subject.modules.rope.rotation(
            model.config, positions, backend.dtype(dtype), xp=backend.xp, device=model.params.device
        )
        for x in tables:
            expected = "float64" if dtype == "float64" else "float32"
            subject.equal(bare_name(x.dtype), expected, f"dtype of a table for {dtype}")
