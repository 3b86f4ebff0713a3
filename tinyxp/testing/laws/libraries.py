"""Laws of agreement: with the library's own implementation of an operation, and with a backend's kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.engine import engine_of
from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws import activations, attention, linear, loss_op, norms, rotation, slots, softmax
from tinyxp.testing.laws.operands import tight, widest
from tinyxp.testing.subjects.decoder import Decoder

law = laws_of("op", "libraries", "the library's documentation", "ops references")


def for_linear(subject: Decoder, draw: Draw) -> tuple[Any, ...]:
    given = linear.draw_operands(subject, draw)
    return given if draw("with a bias", st.booleans()) else given[:2]


def for_rms_norm(subject: Decoder, draw: Draw) -> tuple[Any, ...]:
    x = norms.draw_rows(subject, draw)
    return x, norms.draw_affine(draw, x.shape[-1])[0], norms.draw_eps(subject, draw)


def for_layer_norm(subject: Decoder, draw: Draw) -> tuple[Any, ...]:
    x = norms.draw_rows(subject, draw)
    return x, *norms.draw_affine(draw, x.shape[-1]), norms.draw_eps(subject, draw)


def for_softmax(subject: Decoder, draw: Draw) -> tuple[Any, ...]:
    x, _, _ = softmax.draw_scores(subject, draw)
    visible = softmax.draw_visible(draw, x.shape)
    visible[..., :1] = True  # libraries differ on rows that see nothing
    return x, visible


def for_activation(subject: Decoder, draw: Draw) -> tuple[Any, ...]:
    return (activations.draw_inputs(subject, draw),)


def for_rotary(subject: Decoder, draw: Draw) -> tuple[Any, ...]:
    x, angles = rotation.draw_heads(subject, draw)
    return x, np.cos(angles), np.sin(angles)


def for_attention(subject: Decoder, draw: Draw) -> tuple[Any, ...]:
    return attention.draw_operands(subject, draw, least=1)


def for_write_cache(subject: Decoder, draw: Draw) -> tuple[Any, ...]:
    cache, new, numbers = slots.draw_columns(subject, draw)
    start = draw("start", st.integers(0, cache.shape[2] - new.shape[2]))
    return cache, new, np.asarray(start), numbers


ARGUMENTS: dict[str, Callable[[Decoder, Draw], tuple[Any, ...]]] = {
    "linear": for_linear,
    "rms_norm": for_rms_norm,
    "layer_norm": for_layer_norm,
    "softmax": for_softmax,
    "silu": for_activation,
    "gelu": for_activation,
    "gelu_tanh": for_activation,
    "relu2": for_activation,
    "rotary": for_rotary,
    "attention": for_attention,
    "write_cache": for_write_cache,
    "cross_entropy": loss_op.draw_operands,
}
"""Operation -> how to draw its arguments."""

IN_FLOAT32 = {("jax", "attention")}
"""Forms of a library that are in float32 for inputs of any dtype: jax.nn's attention takes its softmax so."""


def operation(ops: Any, xp: Any, *args: Any, name: str, function: Callable[..., Any] | None = None) -> Any:
    """Call the operation of that name, or ``function`` in its place."""
    f = getattr(ops, name) if function is None else function
    if name == "softmax":
        return f(args[0], visible=args[1], xp=xp)
    return f(*args, xp=xp)


def judge_twin(subject: Decoder, draw: Draw, twins: Mapping[str, Callable[..., Any]], dtype: str) -> None:
    """Compare one of ``twins``, functions by the names of operations, with the operation itself."""
    name = draw("name", st.sampled_from(sorted(set(twins) & set(ARGUMENTS))))
    args = ARGUMENTS[name](subject, draw)
    expected = subject.run(operation, *args, dtype=dtype, name=name, function=twins[name])
    found = subject.run(operation, *args, dtype=dtype, name=name)
    narrow = (subject.backend.name, name) in IN_FLOAT32 and dtype == "float64"
    subject.close(found, expected, name, within=tight(subject, "float32" if narrow else dtype))


@law(
    "Each operation agrees with the library's own to a few roundings of the largest value.", is_reference=True
)
def operations_agree_with_the_library(subject: Decoder, draw: Draw) -> None:
    judge_twin(subject, draw, engine_of(subject.backend).references, widest(subject))


@law(
    "Each kernel of a backend computes the operation that it replaces.",
    source="tinyxp's own contract: kernels have the signature and the meaning of the operation",
    needs="ops kernels",
)
def kernels_are_the_operations(subject: Decoder, draw: Draw) -> None:
    judge_twin(subject, draw, engine_of(subject.backend).kernels, subject.dtype)
