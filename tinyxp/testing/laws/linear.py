"""Laws of linear: a sum of products for each output, and a bias if there is one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.operands import normal, shapes, tight
from tinyxp.testing.strategies import seeds
from tinyxp.testing.subjects.decoder import Decoder

SOURCE = "Vaswani et al., 2017, section 3.3; weights (out, in), as torch.nn.Linear's"

law = laws_of("op", "linear", SOURCE, "ops")


def apply_linear(ops: Any, xp: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    return ops.linear(x, weight, xp=xp) if bias is None else ops.linear(x, weight, bias, xp=xp)


def without_bias(ops: Any, xp: Any, x: Any, weight: Any) -> Any:
    return ops.linear(x, weight, None, xp=xp)


def draw_operands(subject: Decoder, draw: Draw) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw x (a, b, i), weight (o, i) and bias (o,); a square weight hides a transpose."""
    a, b, i, o = draw(
        "shape", shapes(subject, (1, 2), (1, 3), (1, 5), (1, 5), pool=[(2, 3, 4, 4), (1, 2, 3, 5)])
    )
    if draw("square", st.booleans()):
        o = i
    seed = draw("seed", seeds())
    return normal(seed, a, b, i), normal(seed + 1, o, i), normal(seed + 2, o)


@law("Output o is the sum over i of x[i] W[o, i], plus b[o] if there is a bias.")
def linear_sums_products(subject: Decoder, draw: Draw) -> None:
    x, weight, bias = draw_operands(subject, draw)
    bare = [subject.run(apply_linear, x, weight), subject.run(without_bias, x, weight)]
    biased = subject.run(apply_linear, x, weight, bias)
    expected = np.empty((*x.shape[:-1], len(weight)))
    for index in np.ndindex(expected.shape):
        expected[index] = math.fsum(a * w for a, w in zip(x[index[:-1]], weight[index[-1]], strict=True))
    for found in bare:
        subject.close(found, expected, "x W^T", within=tight(subject))
    subject.close(biased, expected + bias, "x W^T + b", within=tight(subject))


@law("linear(x + c y) = linear(x) + c linear(y) without a bias; a bias is added once.")
def linear_is_linear(subject: Decoder, draw: Draw) -> None:
    x, weight, bias = draw_operands(subject, draw)
    y = normal(draw("other", seeds()), *x.shape)
    c = draw("c", st.floats(-3.0, 3.0))
    parts = subject.run(apply_linear, x, weight) + c * subject.run(apply_linear, y, weight)
    subject.close(subject.run(apply_linear, x + c * y, weight), parts, "linear of a sum")
    subject.close(subject.run(apply_linear, x + c * y, weight, bias) - bias, parts, "linear without its bias")
    subject.equal(
        subject.run(apply_linear, 0.0 * x, weight, bias)[0, 0], subject.host(subject.array(bias)), "bias"
    )
