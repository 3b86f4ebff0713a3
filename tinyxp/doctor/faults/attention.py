"""Faults of attention: masks, heads, scales, the softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tinyxp import ops
from tinyxp.config import Config
from tinyxp.doctor.distance import round_to
from tinyxp.doctor.faults.change import Change, Kernel, KernelEdit, edit_attention, edit_rotary
from tinyxp.doctor.faults.fault import Fault, Row, Scope
from tinyxp.doctor.faults.narrow import compute_in
from tinyxp.model import Context, join_heads, split_heads
from tinyxp.typing import Array, Namespace, Tap

Visible = Callable[[np.ndarray], np.ndarray]
"""What a right query sees (b or 1, 1, t, s) -> what it sees with the fault."""

WEIGHTS = ("attn.weights",)


def attention_faults(config: Config) -> Iterator[Row]:
    yield from mask_faults()
    yield from softmax_faults()
    yield from scale_faults(config)
    yield from group_faults(config)
    yield from head_faults(config)


def mask_faults() -> Iterator[Fault]:
    causal_fix = "let query i see keys 0 to i"
    convention = (
        "invert the mask: True means visible in scaled_dot_product_attention, hidden in masked_fill",
    )[0]
    masks: tuple[tuple[str, Visible, str, str], ...] = (
        (
            "no causal mask",
            lambda sees: np.broadcast_to(_real(sees), sees.shape),
            "lets every token see the whole sequence: the causal mask is missing",
            causal_fix,
        ),
        (
            "mask off by one",
            lambda sees: sees & ~np.eye(sees.shape[-1], dtype=bool),
            "does not let a token see itself: the mask is off by one",
            causal_fix,
        ),
        (
            "mask one ahead",
            lambda sees: np.tri(sees.shape[-1], k=1, dtype=bool) & _real(sees),
            "lets a token see the next one: the mask is off by one",
            causal_fix,
        ),
        (
            "mask inverted",
            lambda sees: ~sees,
            "sees the keys that should be masked and masks the others: the mask is inverted",
            convention,
        ),
        (
            "mask of the future",
            lambda sees: np.tri(sees.shape[-1], dtype=bool).T & _real(sees),
            "sees the future, not the past: the causal mask is transposed",
            causal_fix,
        ),
        (
            "padding not masked",
            lambda sees: np.tri(sees.shape[-1], dtype=bool) & np.ones_like(sees),
            "lets tokens see padding",
            "mask the columns of padding too",
        ),
        (
            "padding mask inverted",
            lambda sees: np.tri(sees.shape[-1], dtype=bool) & ~_real(sees),
            "inverts the padding mask: it sees padding and hides tokens",
            "invert the padding mask",
        ),
    )
    for key, visible, says, fix in masks:
        row = partial(Fault, says=f"{{it}} {says}", fix=fix, points=WEIGHTS, choice="mask")
        yield row(key, change=change_mask(visible))
        if key in ("mask off by one", "mask inverted", "padding mask inverted"):  # some query sees nothing
            yield row(f"{key} (filled with -1e9)", change=change_mask(visible, fill=-1e9))
    yield Fault(
        "mask after the softmax",
        "{it} masks after the softmax, so the weights do not sum to 1",
        "mask the scores before the softmax",
        WEIGHTS,
        change_softmax(
            lambda scores, sees: scores, lambda weights, scores, sees: np.where(sees, weights, 0.0)
        ),
        "mask",
    )
    yield Fault(
        "boolean mask added",
        "{it} adds the boolean mask to the scores as 0 and 1",
        "set masked scores to -inf, or pass the mask as booleans",
        WEIGHTS,
        change_softmax(lambda scores, sees: scores + sees),
        "mask",
    )
    for fill in (-100.0, -10.0, 0.0):
        yield Fault(
            f"masked with {fill:g}",
            f"{{it}} sets masked scores to {fill:g}, so masked keys keep some weight",
            "set masked scores to -inf",
            WEIGHTS,
            change_mask(lambda sees: sees, fill=fill),
            "fill",
            rank=3,
        )


def softmax_faults() -> Iterator[Fault]:
    def over_queries(weights: Any, scores: Any, sees: np.ndarray) -> Any:
        return ops.softmax(scores, visible=sees, axis=-2, xp=np)

    yield Fault(
        "softmax over queries",
        "{it} takes the softmax over the queries, not over the keys",
        "take the softmax along the last axis",
        WEIGHTS,
        change_softmax(_hide, over_queries),
        "softmax axis",
    )
    for dtype in ("bfloat16", "float16"):

        def in_digits(weights: Any, scores: Any, sees: np.ndarray, dtype: str = dtype) -> Any:
            softmax = compute_in(dtype)(ops.softmax, None)  # type: ignore[arg-type]
            return softmax(_hide(scores, sees), xp=np)

        yield Fault(
            f"softmax in {dtype}",
            f"{{it}} computes the softmax in {dtype}",
            "compute the softmax in float32 and cast the weights",
            WEIGHTS,
            change_softmax(_hide, in_digits),
            "softmax dtype",
            rank=4,
            narrow=dtype,
        )


def scale_faults(config: Config) -> Iterator[Fault]:
    hd, d, h = config.head_dim, config.d_model, config.n_heads
    scales = (
        (1.0, "scores not scaled", "does not divide the scores by sqrt(hd)"),
        (1.0 / hd, "scores scaled by 1/hd", "divides the scores by hd, not by sqrt(hd)"),
        (
            1.0 / math.sqrt(d),
            "scores scaled by 1/sqrt(d)",
            "divides the scores by the square root of the model's width, not of the head size",
        ),
        (
            math.sqrt(h / d),
            "scores scaled by 1/sqrt(d/h)",
            "uses d_model / n_heads as the head size; this model has its own head_dim",
        ),
        (
            1.0 / math.sqrt(h),
            "scores scaled by 1/sqrt(h)",
            "divides the scores by the square root of the number of heads",
        ),
        (math.sqrt(hd), "scores multiplied by sqrt(hd)", "multiplies the scores by sqrt(hd)"),
    )
    seen = [1.0 / math.sqrt(hd)]
    for scale, key, says in scales:
        if any(math.isclose(scale, other) for other in seen):
            continue
        seen.append(scale)
        times = scale * math.sqrt(hd)
        yield Fault(
            key,
            f"{{it}} {says}",
            "multiply the scores by 1/sqrt(hd), once",
            ("attn.scores",),
            Change(kernels={"attention": edit_attention(partial(_scale_queries, times))}),
            "scale",
        )


def _scale_queries(times: float, q: Any, k: Any, v: Any, ctx: Context) -> tuple[Any, Any, Any]:
    return q * times, k, v


def group_faults(config: Config) -> Iterator[Fault]:
    """Query heads that read another key/value head than their own."""
    h, g = config.n_heads, config.n_kv_heads
    if not 1 < g < h:
        return
    choose: Callable[[np.ndarray, int, int], np.ndarray]
    fix = "query head i reads key/value head i // (h / g)"
    for key, choose, says, what, rank in (
        (
            "kv heads tiled",
            lambda i, h, g: i % g,
            "tiles k and v: query head i reads key/value head i mod g, not i // (h / g)",
            "repeat each key/value head: repeat_interleave in torch, numpy.repeat, not tile",
            1,
        ),
        (
            "first kv head for all",
            lambda i, h, g: 0 * i,
            "uses the first key/value head for every query head",
            fix,
            2,
        ),
        (
            "kv heads of the next group",
            lambda i, h, g: (i // (h // g) + 1) % g,
            "reads the key/value head of the next group of query heads",
            fix,
            2,
        ),
    ):
        change = Change(kernels={"attention": edit_attention(partial(_choose_heads, choose))})
        points = ("attn.scores", "attn.heads")
        yield Fault(key, f"{{it}} {says}", what, points, change, "groups", rank)


def _choose_heads(
    choose: Callable[[np.ndarray, int, int], np.ndarray], q: Any, k: Any, v: Any, ctx: Context
) -> tuple[Any, Any, Any]:
    """Keys and values for each query head: those of the key/value head that it chooses."""
    h, g = q.shape[1], k.shape[1]
    heads = choose(np.arange(h), h, g)
    return q, k[:, heads], v[:, heads]


def head_faults(config: Config) -> Iterator[Fault]:
    """Heads that are cut, joined or counted wrongly."""
    cut_at = ("attn.q_rotated", "attn.k_rotated") if config.position == "rope" else ("attn.scores",)
    rotary = edit_rotary(lambda rotary, x, cos, sin, xp: rotary(_cut_again(x), cos, sin)).kernels

    def cut(q: Any, k: Any, v: Any, ctx: Context) -> tuple[Any, Any, Any]:
        return (q, k, _cut_again(v)) if ctx.rotation else (_cut_again(q), _cut_again(k), _cut_again(v))

    yield Fault(
        "heads cut without transposing",
        "{it} reshapes q, k and v to (b, h, t, hd) directly, without transposing",
        "reshape to (b, t, h, hd), then transpose",
        (*cut_at, "attn.heads"),
        Change(kernels={**rotary, "attention": edit_attention(cut)}),
        "cut",
    )
    yield Fault(
        "heads joined without transposing",
        "{it} reshapes (b, h, t, hd) to (b, t, h * hd) directly, without transposing",
        "transpose to (b, t, h, hd), then reshape",
        ("attn.heads",),
        Change(
            taps={"attn.heads": lambda x, at: _split(x, at.ctx.config.n_heads).reshape(x.shape)},
        ),
        "join",
    )
    h, g, width = config.n_heads, config.n_kv_heads, config.head_dim
    for up, down in ((2, 1), (4, 1), (3, 1), (3, 2), (1, 2), (1, 3), (1, 4), (2, 3)):
        odd = config.position == "rope" and width * down // up % 2
        if h * up % down or g * up % down or width * down % up or odd:
            continue
        heads, kv_heads, size = h * up // down, g * up // down, width * down // up
        yield Fault(
            f"{heads} heads for {h}",
            f"{{it}} splits q, k and v into {heads} heads; this model has {h}",
            f"take n_heads {h} from the config",
            ("attn.q_rotated", "attn.k_rotated", "attn.scores", "attn.weights", "attn.heads"),
            change_heads(heads, kv_heads, size),
            "heads",
            scope=Scope.MODEL,
        )


def change_heads(heads: int, kv_heads: int, size: int) -> Change:
    return Change(config=lambda c: replace(c, n_heads=heads, n_kv_heads=kv_heads, head_dim=size))


def _split(x: Any, heads: int) -> Any:
    return split_heads(x, heads, xp=np)


def _cut_again(x: Any) -> Any:
    """Heads (b, heads, t, hd) that were split right -> as a reshape alone splits them."""
    joined: Any = join_heads(x, xp=np)
    return joined.reshape(x.shape)


def product_faults(config: Config) -> Iterator[Row]:
    """Matrix products of few digits."""
    products = (
        "attn.q", "attn.k", "attn.v", "attn.scores", "attn.heads", "attn.out", "mlp.gate", "mlp.up",
        "mlp.out", "logits",
    )  # fmt: skip
    for dtype in ("bfloat16", "tf32", "float16"):
        yield Fault(
            f"products in {dtype}",
            f"{{it}} rounds the operands of its matrix products to {dtype}",
            "request full precision: jax.default_matmul_precision, torch.set_float32_matmul_precision",
            products,
            Change(kernels={"linear": round_linear(dtype), "attention": round_attention(dtype)}),
            "product dtype",
            rank=3,
            narrow=dtype,
        )


def round_linear(dtype: str) -> KernelEdit:
    def wrap(kernel: Kernel, ctx: Context) -> Kernel:
        def linear(x: Any, weight: Any, bias: Any = None, *, xp: Namespace) -> Any:
            return kernel(round_to(x, dtype), round_to(np.asarray(weight, np.float64), dtype), bias, xp=xp)

        return linear

    return wrap


def round_attention(dtype: str) -> KernelEdit:
    def wrap(kernel: Kernel, ctx: Context) -> Kernel:
        def attention(q: Any, k: Any, v: Any, visible: Any, *, xp: Namespace, tap: Tap = ops.untapped) -> Any:
            def round_weights(name: str, x: Array) -> Any:
                y: Any = tap(name, x)
                return round_to(y, dtype) if name == "weights" else y

            q, k, v = (round_to(x, dtype) for x in (q, k, v))
            return kernel(q, k, v, visible, xp=xp, tap=round_weights)

        return attention

    return wrap


def change_mask(visible: Visible, fill: float = -math.inf) -> Change:
    """Other keys are masked, or their scores are set to ``fill``.

    As in code that fills with -inf, a query that should see a key and sees none gets NaN.
    """

    def scores(x: np.ndarray, sees: np.ndarray) -> np.ndarray:
        return np.where(visible(sees), x, fill)

    def weights(y: np.ndarray, x: np.ndarray, sees: np.ndarray) -> np.ndarray:
        lost = sees.any(axis=-1, keepdims=True) & ~visible(sees).any(axis=-1, keepdims=True)
        return np.where(lost, np.nan, y)

    return change_softmax(scores, weights if fill == -math.inf else None)


def change_softmax(
    scores: Callable[[Any, np.ndarray], Any], weights: Callable[[Any, Any, np.ndarray], Any] | None = None
) -> Change:
    """Other masking: ``scores(x, visible)`` go into the softmax, ``weights(y, scores, visible)`` are used."""

    def wrap(kernel: Kernel, ctx: Context) -> Kernel:
        def attention(q: Any, k: Any, v: Any, visible: Any, *, xp: Namespace, tap: Tap = ops.untapped) -> Any:
            raw: list[Any] = []
            masked: list[Any] = []

            def inner(name: str, x: Any) -> Any:
                if name == "scores":
                    raw.append(tap(name, x))
                    masked.append(scores(raw[0], visible))
                    return masked[0]
                # A plain softmax gives NaN to all of a row that holds one; the model's own does not.
                x = np.where(np.isnan(masked[0]).any(axis=-1, keepdims=True), np.nan, x)
                return tap(name, x if weights is None else weights(x, raw[0], visible))

            return kernel(q, k, v, np.ones_like(visible), xp=xp, tap=inner)

        return attention

    return Change(kernels={"attention": wrap})


def _real(visible: np.ndarray) -> np.ndarray:
    """The keys that are no padding: those that the last query sees."""
    return visible[:, :, -1:, :]


def _hide(scores: Any, visible: np.ndarray) -> Any:
    return np.where(visible, scores, -math.inf)
