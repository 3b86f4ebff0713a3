"""Laws of the activations: their formulas, their symmetry, and large arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.dtypes import EPSILON
from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.operands import dtypes, gradient, no_warnings, normal, round_to, shapes, tight
from tinyxp.testing.strategies import seeds
from tinyxp.testing.subjects.decoder import Decoder

SILU = "Elfwing, Uchibe & Doya, 2017: Sigmoid-weighted linear units"
GELU = "Hendrycks & Gimpel, 2016: Gaussian error linear units"
BOTH = f"{SILU}; {GELU}"
NAMES = ("silu", "gelu", "gelu_tanh")

law = laws_of("op", "mlp", BOTH, "ops")


def all_three(ops: Any, xp: Any, x: Any) -> Any:
    return ops.silu(x, xp=xp), ops.gelu(x, xp=xp), ops.gelu_tanh(x, xp=xp)


def erf(ops: Any, xp: Any, x: Any) -> Any:
    return ops.erf(x, xp=xp)


def draw_inputs(subject: Decoder, draw: Draw) -> np.ndarray:
    """Draw numbers (a, b) near 0, where activations curve, or far out on both sides."""
    shape = draw("shape", shapes(subject, (1, 3), (1, 9), pool=[(2, 7)]))
    return normal(draw("seed", seeds()), *shape, scale=draw("scale", st.sampled_from([2.0, 0.0, 0.1, 12.0])))


def judge_formula(subject: Decoder, draw: Draw, f: Any, formula: Callable[[float], float]) -> None:
    """Compare elementwise, to a few roundings of max(1, |x|)."""
    x = draw_inputs(subject, draw)
    size = np.maximum(np.abs(x), 1.0)
    expected = np.vectorize(formula, otypes=[float])(x)
    subject.close(
        subject.run(f, x) / size, expected / size, "the result over max(1, |x|)", within=tight(subject)
    )


def silu(ops: Any, xp: Any, x: Any) -> Any:
    return ops.silu(x, xp=xp)


def gelu(ops: Any, xp: Any, x: Any) -> Any:
    return ops.gelu(x, xp=xp)


def gelu_tanh(ops: Any, xp: Any, x: Any) -> Any:
    return ops.gelu_tanh(x, xp=xp)


def relu2(ops: Any, xp: Any, x: Any) -> Any:
    return ops.relu2(x, xp=xp)


@law("silu is x / (1 + exp(-x)).", source=SILU)
def silu_is_x_times_the_logistic(subject: Decoder, draw: Draw) -> None:
    judge_formula(subject, draw, silu, lambda x: 0.5 * x * (1.0 + math.tanh(0.5 * x)))


@law("gelu is x times the normal distribution function of x.", source=GELU)
def gelu_is_x_times_the_normal_distribution(subject: Decoder, draw: Draw) -> None:
    judge_formula(subject, draw, gelu, lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2.0)))


@law("gelu_tanh is x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).", source=GELU)
def gelu_tanh_is_its_formula(subject: Decoder, draw: Draw) -> None:
    root = math.sqrt(2.0 / math.pi)
    judge_formula(
        subject, draw, gelu_tanh, lambda x: 0.5 * x * (1.0 + math.tanh(root * (x + 0.044715 * x**3)))
    )


@law("relu2 is max(x, 0)^2.", source="So et al., 2021: Primer")
def relu2_is_the_square_of_the_positive_part(subject: Decoder, draw: Draw) -> None:
    judge_formula(subject, draw, relu2, lambda x: max(x, 0.0) ** 2)


@law("f(x) - f(-x) = x for silu, gelu and gelu_tanh.")
def activations_mirror_into_x(subject: Decoder, draw: Draw) -> None:
    x = draw_inputs(subject, draw)
    size = np.maximum(np.abs(x), 1.0)
    for name, ahead, behind in zip(NAMES, subject.run(all_three, x), subject.run(all_three, -x), strict=True):
        subject.close((ahead - behind) / size, x / size, f"{name}(x) - {name}(-x)", within=tight(subject))


@law("Large numbers are unchanged and large negative numbers become 0, in every dtype, without a warning.")
def activations_do_not_overflow(subject: Decoder, draw: Draw) -> None:
    dtype = draw("dtype", dtypes(subject))
    sizes = draw("sizes", st.lists(st.floats(100.0, 65504.0, width=16), min_size=5, max_size=5))
    x = round_to(subject, np.asarray([*sizes, 100.0, 1e4, 65504.0 if dtype == "float16" else 1e6]), dtype)
    with no_warnings():
        ahead, behind = (subject.run(all_three, sign * x, dtype=dtype) for sign in (1.0, -1.0))
    for name, large, small in zip(NAMES, ahead, behind, strict=True):
        subject.equal(large, x, f"{name} of large numbers in {dtype}")
        subject.close(small, 0.0 * x, f"{name} of large negative numbers in {dtype}", within=1e-30)


@law("gelu and gelu_tanh differ by at most 4.8e-4, and by at least 4e-4 near -2.70.", source=GELU)
def gelu_has_two_forms(subject: Decoder, draw: Draw) -> None:
    x = draw_inputs(subject, draw)
    x.flat[0] = -2.70 + draw("beside", st.floats(-0.05, 0.05))
    _, exact, by_tanh = subject.run(all_three, x)
    difference = np.abs(exact - by_tanh)
    rounding = tight(subject) * max(1.0, float(np.abs(x).max()))
    assert difference.max() <= 4.8e-4 + rounding, f"the two forms differ by {difference.max():.3g}"
    assert difference.flat[0] >= 4e-4 - rounding, (
        f"at {x.flat[0]} the two forms differ only by {difference.flat[0]:.3g}"
    )


@law(
    "erf is the error function: odd, between -1 and 1, and equal to the C library's.",
    source="Abramowitz & Stegun, 1964, section 7.1.1",
)
def erf_is_the_error_function(subject: Decoder, draw: Draw) -> None:
    x = np.random.default_rng(draw("seed", seeds())).uniform(-7.0, 7.0, size=80)
    x[0] = draw("first", st.sampled_from([0.0, 6.0, 1e4, math.inf]))
    with no_warnings():
        found = subject.run(erf, x)
    within = 16.0 * EPSILON[subject.dtype]
    subject.close(found, np.vectorize(math.erf, otypes=[float])(x), "erf", within=within)
    subject.equal(subject.run(erf, -x), -found, "erf of -x")
    assert np.abs(found).max() <= 1.0 + within, f"erf reaches {np.abs(found).max()}"


@law(
    "The slope of silu, gelu and gelu_tanh is 1/2 at 0, 1 at large x and 0 at large negative x.",
    needs="ops gradients",
)
def activations_have_slopes_everywhere(subject: Decoder, draw: Draw) -> None:
    size = draw("size", st.floats(60.0, 1e4))
    for name, f in zip(NAMES, (silu, gelu, gelu_tanh), strict=True):
        found = gradient(subject, f, np.asarray([-size, 0.0, size]))
        subject.close(found, [0.0, 0.5, 1.0], f"slope of {name} at {-size}, 0 and {size}")


@law(
    "The slopes of silu, gelu and gelu_tanh at x and -x add up to 1, and equal central differences.",
    needs="ops gradients",
)
def activation_slopes_are_differences(subject: Decoder, draw: Draw) -> None:
    x = normal(draw("seed", seeds()), 5, scale=2.0)
    step = EPSILON[subject.dtype] ** (1.0 / 3.0)  # rounding and curvature cost the same here
    for name, f in zip(NAMES, (silu, gelu, gelu_tanh), strict=True):
        found = gradient(subject, f, x)
        subject.close(found + gradient(subject, f, -x), np.ones(5), f"slopes of {name} at x and -x")
        difference = (subject.run(f, x + step) - subject.run(f, x - step)) / (2.0 * step)
        subject.close(found, difference, f"slope of {name}", within=32.0 * step * step)
