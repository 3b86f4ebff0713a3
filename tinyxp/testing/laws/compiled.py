"""Laws of what a backend adds: compilers, kernels and devices change no value; dtypes stay."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.config import MLPS
from tinyxp.dtypes import bare_name
from tinyxp.params import Params
from tinyxp.testing.law import Draw, law
from tinyxp.testing.laws.caching import fed, pieces
from tinyxp.testing.laws.padding import padded
from tinyxp.testing.strategies import random_arrays, seeds
from tinyxp.testing.subject import POOL

CONTRACT = "tinyxp's own contract: "


@law(
    "Compiled, the model gives the logits that it gives operation by operation.",
    of="model",
    region="compiler",
    source=CONTRACT + "everything runs under jit",
    needs="params compiler mask",
    examples=1,
)
def compiled_equals_eager(subject: Any, draw: Draw) -> None:
    config = draw("config", st.sampled_from(POOL))
    model = subject.build(config, random_arrays(config, draw("seed", seeds())))
    ids, mask = padded(subject, draw, model)
    there, seen = subject.array(ids), subject.array(mask)
    forward = subject.modules.model.forward
    eager = forward(model.params, there, mask=seen)
    compiled = subject.backend.jit(partial(forward))(model.params, there, mask=seen)
    subject.close(subject.host(compiled), subject.host(eager), "compiled logits")


@law(
    "With the backend's kernels the model gives the logits of the pure operations, cached or not.",
    of="model",
    region="kernels",
    source=CONTRACT + "a kernel is held to its pure twin",
    needs="params kernels mask cache",
)
def kernels_equal_the_pure_path(subject: Any, draw: Draw) -> None:
    from tinyxp.testing.subjects import decoder

    config = draw("config", subject.configs())
    arrays = random_arrays(config, draw("seed", seeds()))
    model = subject.build(config, arrays)
    ids, mask = padded(subject, draw, model)
    if subject not in _with_kernels:
        _with_kernels[subject] = decoder(
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
    cuts = pieces(subject, draw, ids.shape[1])
    logits, _ = fed(fast, ids, cuts, fast.new_cache(len(ids), ids.shape[1] + 1), mask=mask)
    subject.close(logits[mask], expected[mask], f"logits with kernels and a cache, in pieces of {cuts}")


_with_kernels: dict[Any, Any] = {}


@law(
    "Projections of one input that lie together in memory are one product, and give what they give singly, "
    "with a cache and without.",
    of="model",
    region="kernels",
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
    ids, mask = padded(subject, draw, model)
    together = m.joint.lay_together(dict(other.params), config, backend)
    joint = Params(together, config).join()
    joints = {"+".join(names) for names in m.joint.JOINT if MLPS[config.mlp].gated or names[0] != "mlp.gate"}
    lacking = sorted(name for name in joints if f"{name}.weight" not in joint.block(0))
    subject.equal(lacking, [], "what was not joined")
    expected, here = model.forward(ids, mask=mask), {"mask": subject.array(mask)}
    kernels = m.ops.Kernels(**subject.kernels)
    found = subject.compiled(m.model.forward, kernels=kernels)(joint, subject.array(ids), **here)
    subject.close(subject.host(found)[mask], expected[mask], "logits of joint projections")
    cache = other.new_cache(len(ids), ids.shape[1])
    found, _ = subject.compiled(m.model.extend, kernels=kernels)(joint, subject.array(ids), cache, **here)
    subject.close(subject.host(found)[mask], expected[mask], "logits of joint projections with a cache")


@law(
    "Every value on the way, the cache and the logits keep the parameters' dtype; the loss is in float32 at "
    "least.",
    of="model",
    region="precision",
    source=CONTRACT + "activations keep the parameters' dtype",
    needs="params trace cache mask",
    examples=8,
)
def dtypes_are_kept(subject: Any, draw: Draw) -> None:
    config = draw("config", subject.configs())
    dtype = draw("dtype", st.sampled_from(subject.backend.dtypes()))
    model = subject.build(config, random_arrays(config, draw("seed", seeds())), dtype)
    ids, mask = padded(subject, draw, model)
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
    wanted = "float64" if dtype == "float64" else "float32"
    subject.equal(bare_name(loss.dtype), wanted, "dtype of the loss")
    if not np.isfinite(subject.host(loss)):
        raise AssertionError(f"loss is {loss} in {dtype}")


@law(
    "float16 and bfloat16 logits are as near to the float64 referee as rounding in that dtype makes them.",
    of="model",
    region="precision",
    source="norms, softmax, scores and rotary tables are computed in float32 at least",
    needs="params",
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
    truth = exact(config, rounded, ids)
    # Some sixty roundings on the way through one block, each of half an epsilon of a value near the largest.
    allowed = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype] * 60.0
    subject.close(model.forward(ids).astype(np.float64), truth, f"{dtype} logits", within=allowed)


@law(
    "Whatever device the parameters lie on, everything is computed there, from ids and masks of the host.",
    of="model",
    region="devices",
    source=CONTRACT + "device= on every creation",
    needs="params devices cache mask",
)
def everything_stays_on_its_device(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = padded(subject, draw, model)
    backend, m = subject.backend, subject.modules
    params = model.params.to(device=backend.devices()[-1])
    given = {"mask": mask.tolist()}
    cache = m.cache.new_cache(params, *ids.shape)
    logits, cache = m.model.extend(params, ids.tolist(), cache, **given)
    found = {
        "forward": m.model.forward(params, ids.tolist(), **given),
        "extend": logits,
        "the cache": cache.keys[0],
        "loss": m.model.loss(params, ids.tolist(), ids.tolist(), **given),
    }
    device = backend.device_of(params["embed.weight"])
    for name, x in found.items():
        subject.equal(str(backend.device_of(x)), str(device), f"device of {name}")
        if backend.is_concrete(x) and name in ("forward", "extend"):
            subject.close(subject.host(x), model.forward(ids, mask=mask), f"{name} on {device}")


def without_attention(q: Any, k: Any, v: Any, visible: Any, *, xp: Any, tap: Any = None) -> Any:
    """A kernel that reads nothing."""
    return 0.0 * q


def logits_of_extend(params: Any, ids: Any, cache: Any, *, model: Any, kernels: Any) -> Any:
    logits, _ = model.extend(params, ids, cache, kernels=kernels)
    return logits


@law(
    "A kernel that a caller puts in is what forward, loss and extend compute with: an attention that reads "
    "nothing leaves what a model without output matrices of attention leaves.",
    of="model",
    region="kernels",
    source="tinyxp's own contract: kernels",
    needs="params cache",
)
def kernels_that_are_given_are_used(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    silent = {name: 0.0 * x for name, x in model.arrays.items() if name.endswith("attn.o.weight")}
    other, m, there = model.but(**silent), subject.modules.model, subject.array(ids)
    kernels = m.Kernels(attention=without_attention)
    logits = subject.compiled(m.forward, kernels=kernels)(model.params, there)
    subject.close(subject.host(logits), other.forward(ids), "logits of forward")
    loss = subject.compiled(m.loss, kernels=kernels)(model.params, there, there)
    subject.close(float(subject.host(loss)), other.loss(ids, ids), "loss")
    step = subject.compiled(logits_of_extend, model=m, kernels=kernels)
    fed = step(model.params, there, model.new_cache(*ids.shape))
    subject.close(subject.host(fed), other.forward(ids), "logits of extend")


@law(
    "Tables of cos and sin are in float32, or in float64 where the parameters are, whatever is narrower.",
    of="model",
    region="precision",
    source="in bfloat16 only 641 of the first 2048 positions are distinct",
    needs="params",
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
            wanted = "float64" if dtype == "float64" else "float32"
            subject.equal(bare_name(x.dtype), wanted, f"dtype of a table for {dtype}")
