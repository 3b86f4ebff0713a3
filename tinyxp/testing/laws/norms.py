"""Laws of the two norms: their formulas, what they ignore, and the places of eps, weight and bias."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.operands import dtypes, no_warnings, normal, round_to, shapes, some
from tinyxp.testing.strategies import seeds
from tinyxp.testing.subjects.decoder import Decoder

RMS = "Zhang & Sennrich, 2019: Root mean square layer normalization"
LAYER = "Ba, Kiros & Hinton, 2016: Layer normalization"
BOTH = f"{RMS}; {LAYER}"
LLAMA = "LlamaRMSNorm in transformers, whose weights expect this order"

law = laws_of("op", "norm", BOTH, "ops")


def rms(ops: Any, xp: Any, x: Any, weight: Any, *, eps: float) -> Any:
    return ops.rms_norm(x, weight, eps, xp=xp)


def layer(ops: Any, xp: Any, x: Any, weight: Any, bias: Any, *, eps: float) -> Any:
    return ops.layer_norm(x, weight, bias, eps, xp=xp)


def both(ops: Any, xp: Any, x: Any, weight: Any, bias: Any, *, eps: float) -> Any:
    return ops.rms_norm(x, weight, eps, xp=xp), ops.layer_norm(x, weight, bias, eps, xp=xp)


def draw_rows(subject: Decoder, draw: Draw) -> np.ndarray:
    """Draw rows (a, b, d), each with its own mean and size, so that eps matters in some."""
    shape = draw("shape", shapes(subject, (1, 2), (1, 4), (1, 9), pool=[(2, 3, 5)]))
    sizes = draw("scale", st.sampled_from([1.0, 1e-3, 30.0])) * np.exp(normal(2, *shape[:2], 1))
    seed = draw("seed", seeds())
    x: np.ndarray = sizes * (normal(seed, *shape) + normal(seed + 1, *shape[:2], 1))
    return x


def draw_eps(subject: Decoder, draw: Draw) -> float:
    """Draw an eps that models use, or one that outweighs the rows."""
    return draw("eps", some(subject, 1e-5, 1e-6, 0.1, 3.0, pool=[1e-5, 0.1]))


def draw_affine(draw: Draw, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw a weight and a bias."""
    weight, bias = normal(draw("weights", seeds()), 2, width)
    return weight, bias


@law("rms_norm is x / sqrt(mean(x^2) + eps) times its weight.", source=RMS)
def rms_norm_divides_by_the_root_mean_square(subject: Decoder, draw: Draw) -> None:
    x, eps = draw_rows(subject, draw), draw_eps(subject, draw)
    weight, _ = draw_affine(draw, x.shape[-1])
    found = subject.run(rms, x, weight, eps=eps)
    subject.equal(found.shape, x.shape, "shape")
    for index in np.ndindex(x.shape[:-1]):
        root = math.sqrt(math.fsum(v * v for v in x[index]) / x.shape[-1] + eps)
        subject.close(found[index], [v / root * w for v, w in zip(x[index], weight, strict=True)], "the row")


@law(
    "layer_norm is (x - mean) / sqrt(variance + eps) times its weight plus its bias; the variance divides by "
    "d.",
    source=LAYER,
)
def layer_norm_divides_by_the_deviation(subject: Decoder, draw: Draw) -> None:
    x, eps = draw_rows(subject, draw), draw_eps(subject, draw)
    weight, bias = draw_affine(draw, x.shape[-1])
    found = subject.run(layer, x, weight, bias, eps=eps)
    subject.equal(found.shape, x.shape, "shape")
    for index in np.ndindex(x.shape[:-1]):
        mean = math.fsum(x[index]) / x.shape[-1]
        root = math.sqrt(math.fsum((v - mean) ** 2 for v in x[index]) / x.shape[-1] + eps)
        expected = [(v - mean) / root * w + b for v, w, b in zip(x[index], weight, bias, strict=True)]
        subject.close(found[index], expected, "the row")


@law(
    "A normed row has mean square m / (m + eps), where m is the row's mean square (rms_norm) or variance "
    "(layer_norm); layer_norm's has mean 0."
)
def normed_rows_have_size_one(subject: Decoder, draw: Draw) -> None:
    x, eps = draw_rows(subject, draw), draw_eps(subject, draw)
    ones = np.ones(x.shape[-1])
    by_rms, by_layer = subject.run(both, x, ones, 0.0 * ones, eps=eps)
    square, variance = np.mean(x**2, axis=-1), np.var(x, axis=-1)
    subject.close(np.mean(by_rms**2, axis=-1), square / (square + eps), "mean square after rms_norm")
    subject.close(np.mean(by_layer**2, axis=-1), variance / (variance + eps), "variance after layer_norm")
    subject.close(np.mean(by_layer, axis=-1), 0.0 * variance, "mean after layer_norm")


@law("A row times c, with eps times c^2, has the same norm up to the sign of c.")
def norms_ignore_scale(subject: Decoder, draw: Draw) -> None:
    x, eps = draw_rows(subject, draw), draw_eps(subject, draw)
    weight, _ = draw_affine(draw, x.shape[-1])
    c = draw("c", some(subject, -4.0, 0.5, 16.0, pool=[-4.0]))
    plain = subject.run(both, x, weight, 0.0 * weight, eps=eps)
    scaled = subject.run(both, c * x, weight, 0.0 * weight, eps=c * c * eps)
    for name, before, after in zip(("rms_norm", "layer_norm"), plain, scaled, strict=True):
        subject.close(after, math.copysign(1.0, c) * before, f"{name} of {c} times the rows")


@law("Adding a constant to a row does not change its layer_norm.", source=LAYER)
def layer_norm_ignores_a_constant(subject: Decoder, draw: Draw) -> None:
    x, eps = draw_rows(subject, draw), draw_eps(subject, draw)
    weight, bias = draw_affine(draw, x.shape[-1])
    constants = np.abs(x).max(axis=-1, keepdims=True) * draw("times", st.sampled_from([1.0, -4.0, 0.3]))
    moved = subject.run(layer, x + constants, weight, bias, eps=eps)
    subject.close(moved, subject.run(layer, x, weight, bias, eps=eps), "layer_norm of the moved rows")


@law("The weight multiplies each element of a normed row; layer_norm then adds its bias to each.")
def norm_weights_multiply_and_biases_add(subject: Decoder, draw: Draw) -> None:
    x, eps = draw_rows(subject, draw), draw_eps(subject, draw)
    weight, bias = draw_affine(draw, x.shape[-1])
    ones = np.ones(x.shape[-1])
    by_rms, by_layer = subject.run(both, x, ones, 0.0 * ones, eps=eps)
    found = subject.run(both, x, weight, bias, eps=eps)
    subject.close(found[0], by_rms * weight, "rms_norm with a weight")
    subject.close(found[1], by_layer * weight + bias, "layer_norm with a weight and a bias")


@law("rms_norm of a row of zeros is zeros; layer_norm of it is the bias.")
def norms_of_zeros(subject: Decoder, draw: Draw) -> None:
    shape = draw("shape", shapes(subject, (1, 2), (1, 4), (1, 9), pool=[(2, 3, 5)]))
    weight, bias = draw_affine(draw, shape[-1])
    dtype = draw("dtype", dtypes(subject))
    with no_warnings():
        found = subject.run(both, np.zeros(shape), weight, bias, eps=1e-6, dtype=dtype)
    subject.equal(found[0], np.zeros(shape), f"rms_norm of zeros in {dtype}")
    subject.equal(found[1], np.broadcast_to(round_to(subject, bias, dtype), shape), f"layer_norm in {dtype}")


@law(
    "In every dtype squares neither overflow nor underflow: rows of plus or minus c become c / sqrt(c^2 + "
    "eps), rounded. In float16 eight 300s become 1, and eight 1e-4 with eps 1e-6 become 0.0995."
)
def norms_neither_overflow_nor_vanish(subject: Decoder, draw: Draw) -> None:
    dtype = draw("dtype", dtypes(subject))
    c = draw("c", st.sampled_from([300.0, 6e4, 1e-4, 3e-3, 1.0]))
    held = float(round_to(subject, np.asarray([c]), dtype)[0])
    signs = np.tile([1.0, -1.0], 4)  # mean 0, so that both norms divide by the same number
    ones = np.ones(8)
    with no_warnings():
        found = subject.run(both, c * signs, ones, 0.0 * ones, eps=1e-6, dtype=dtype)
    expected = round_to(subject, held / math.sqrt(held * held + 1e-6) * signs, dtype)
    for name, y in zip(("rms_norm", "layer_norm"), found, strict=True):
        subject.close(y, expected, f"{name} of {c} in {dtype}", within=1e-6)


@law("rms_norm rounds to the dtype of x before it multiplies by its weight, as Llama does.", source=LLAMA)
def rms_norm_rounds_before_its_weight(subject: Decoder, draw: Draw) -> None:
    dtype = draw("dtype", dtypes(subject))
    x, weight = normal(draw("seed", seeds()), 9, 8), normal(draw("weights", seeds()), 8)
    normed = subject.run(rms, x, np.ones(8), eps=1e-5, dtype=dtype).astype(np.float64)
    product = round_to(subject, normed * round_to(subject, weight, dtype), dtype)
    found = subject.run(rms, x, weight, eps=1e-5, dtype=dtype)
    subject.equal(found, product, f"rms_norm in {dtype}, with its weight")
