"""Laws of dtypes: results have that of the first argument, and half precision costs one rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.dtypes import EPSILON, bare_name
from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.attention import tapped
from tinyxp.testing.laws.operands import (
    apply_to_arrays,
    call,
    check_rounded_once,
    dtypes,
    normal,
    round_to,
    widest,
)
from tinyxp.testing.strategies import seeds
from tinyxp.testing.subjects.decoder import Decoder

SOURCE = "tinyxp's own contract: an operation returns the dtype of its first argument"
WIDE = "Micikevicius et al., 2017: Mixed precision training, section 3.3"

law = laws_of("op", "precision", SOURCE, "ops")


def of_two_dtypes(ops: Any, xp: Any, x: Any, w: Any) -> dict[str, Any]:
    """Call the operations that take weights, and similar ones, on x (2, 4) and w (4, 4)."""
    heads = xp.reshape(x, (1, 1, 2, 4))
    angles = xp.astype(heads[..., :2], xp.result_type(x.dtype, xp.float32))
    visible = xp.ones((1, 1, 2, 2), dtype=xp.bool)
    return {
        "erf": ops.erf(x, xp=xp),
        "linear": ops.linear(x, w, xp=xp),
        "linear with a bias": ops.linear(x, w, w[0, :], xp=xp),
        "layer_norm": ops.layer_norm(x, w[0, :], w[1, :], 1e-5, xp=xp),
        "rms_norm": ops.rms_norm(x, w[0, :], 1e-5, xp=xp),
        "rotary": ops.rotary(heads, xp.cos(angles), xp.sin(angles), xp=xp),
        "attention": ops.attention(heads, heads, heads, visible, xp=xp),
        "write_cache": ops.write_cache(heads, heads[:, :, :1, :], 0, xp.arange(2), xp=xp),
    }


def once_rounded(ops: Any, xp: Any, x: Any, w: Any) -> dict[str, Any]:
    """Call the operations that compute in at least float32 and then round."""
    return {
        "softmax": ops.softmax(x, xp=xp),
        "masked softmax": ops.softmax(x, xp=xp, visible=w[:2, :] > 0.0),
        "silu": ops.silu(x, xp=xp),
        "gelu": ops.gelu(x, xp=xp),
        "gelu_tanh": ops.gelu_tanh(x, xp=xp),
        "relu2": ops.relu2(x, xp=xp),
        "layer_norm": ops.layer_norm(x, w[0, :], w[1, :], 1e-5, xp=xp),
        "rms_norm": ops.rms_norm(x, xp.ones_like(w[0, :]), 1e-5, xp=xp),
    }


@law(
    "Every operation returns the dtype of its first argument, whatever the dtype of its weights.", examples=12
)
def operations_keep_the_dtype(subject: Decoder, draw: Draw) -> None:
    seed = draw("seed", seeds())
    x, w = normal(seed, 2, 4), normal(seed + 1, 4, 4)
    known = subject.backend.dtypes()
    turn = draw("turn", st.just(1) if subject.pooled else st.integers(0, len(known) - 1))
    exact = subject.run(of_two_dtypes, x, w, dtype=widest(subject))
    for of_x, of_w in zip(known, known[turn:] + known[:turn], strict=True):
        found = apply_to_arrays(subject, of_two_dtypes, subject.array(x, of_x), subject.array(w, of_w))
        # About sixteen roundings of numbers of size 4, in the coarser of the two dtypes.
        within = 32.0 * max(EPSILON[of_x], EPSILON[of_w], EPSILON["float32"])
        for name, y in found.items():
            kind = bare_name(y.dtype)
            assert kind == of_x, f"{name} of {of_x} with weights of {of_w} is in {kind}"
            subject.close(subject.host(y), exact[name], f"{name} of {of_x} and {of_w}", within=within)


def every_operation(ops: Any, xp: Any, x: Any, w: Any) -> list[Any]:
    """Call every operation on x (2, 4) and w (4, 4) of one dtype."""
    loss = ops.cross_entropy(xp.reshape(x, (1, 2, 4)), xp.zeros((1, 2), dtype=xp.int64), xp=xp)
    return [of_two_dtypes(ops, xp, x, w), once_rounded(ops, xp, x, w), loss]


class Float64Recorder:
    """A namespace over another that records the functions that receive or return float64."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self.wide: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._xp, name)
        if isinstance(value, type) or not callable(value):
            return value

        def recorded(*args: Any, **keywords: Any) -> Any:
            result = value(*args, **keywords)
            parts = [part for x in (*args, result) for part in (x if isinstance(x, (list, tuple)) else [x])]
            if any(bare_name(getattr(part, "dtype", "")) == "float64" for part in parts):
                self.wide.add(name)
            return result

        return recorded


def recorded_operations(ops: Any, xp: Any, x: Any, w: Any, *, report: Callable[[set[str]], None]) -> Any:
    """Call every operation on a recording namespace; pass ``report`` the functions that met float64."""
    namespace = Float64Recorder(xp)
    found = every_operation(ops, namespace, x, w)
    report(namespace.wide)
    return found


@law(
    "In float32 nothing becomes float64 on the way: scalars are Python's, which widen no array.",
    source="NEP 50, promotion of scalars: 1 / np.sqrt(64) widens and 1 / 8.0 does not",
    examples=1,
)
def nothing_widens_on_the_way(subject: Decoder, draw: Draw) -> None:
    x, w = (subject.array(y, "float32") for y in (normal(0, 2, 4), normal(1, 4, 4)))
    wide: set[str] = set()
    call(x, w, subject=subject, function=recorded_operations, report=wide.update)
    assert not wide, f"in float32 these functions met float64: {', '.join(sorted(wide))}"


@law("What taps of attention see has the dtype of the queries.", needs="ops trace")
def attention_points_keep_the_dtype(subject: Decoder, draw: Draw) -> None:
    dtype = draw("dtype", dtypes(subject))
    x = subject.array(normal(draw("seed", seeds()), 1, 2, 2, 4), dtype)
    found = apply_to_arrays(subject, tapped, x, x, x, subject.array(np.ones((1, 1, 2, 2), dtype=bool)))
    for name, y in zip(("heads", "scores", "weights"), found, strict=True):
        kind = bare_name(y.dtype)
        assert kind == dtype, f"{name} of {dtype} are in {kind}"


@law("Softmax, activations and norms in any dtype are those of exact arithmetic, rounded once.", source=WIDE)
def half_precision_costs_one_rounding(subject: Decoder, draw: Draw) -> None:
    dtype = draw("dtype", dtypes(subject))
    seed = draw("seed", seeds())
    scale = draw("scale", st.sampled_from([1.0, 4.0]))
    x, w = (round_to(subject, normal(seed + i, 2, 16, scale=scale), dtype) for i in (0, 1))
    found = apply_to_arrays(subject, once_rounded, subject.array(x, dtype), subject.array(w, dtype))
    exact = subject.run(once_rounded, x, w, dtype=widest(subject))
    for name, y in found.items():
        kind = bare_name(y.dtype)
        assert kind == dtype, f"{name} of {dtype} is in {kind}"
        check_rounded_once(subject, subject.host(y), exact[name], dtype, name)


@law(
    "No operation changes its arguments.",
    source="tinyxp's own contract: operations are pure functions",
    needs="ops values",
)
def operations_leave_their_arguments(subject: Decoder, draw: Draw) -> None:
    seed = draw("seed", seeds())
    arrays = [subject.array(x) for x in (normal(seed, 2, 4), normal(seed + 1, 4, 4))]
    before = [subject.host(x).copy() for x in arrays]
    apply_to_arrays(subject, every_operation, *arrays)
    for name, x, expected in zip(("x", "the weights"), arrays, before, strict=True):
        subject.equal(subject.host(x), expected, f"{name}, afterwards")
