"""Faults of attention: masks, heads, scales."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tinyxp.config import Config
from tinyxp.doctor.choices import SCALES
from tinyxp.doctor.faults.record import Fault, choosing
from tinyxp.doctor.variant import Variant


def attention(config: Config) -> Iterator[Fault]:
    where = ("attn.weights",)
    fix = "let query i see keys 0 to i"
    kinds = {
        "no causal mask": (
            "none",
            "lets every token see the whole sequence: the causal mask is missing",
            fix,
        ),
        "mask off by one": ("strict", "does not let a token see itself: the mask is off by one", fix),
        "mask one ahead": ("ahead", "lets a token see the one after it: the mask is off by one", fix),
        "mask inverted": (
            "inverted",
            "sees what should be masked and masks the rest: the mask's convention is the other one",
            "invert the mask: True is visible in scaled_dot_product_attention, masked in masked_fill",
        ),
        "mask of the future": (
            "future",
            "sees the future in place of the past: the triangle is transposed",
            fix,
        ),
        "mask after the softmax": (
            "after softmax",
            "masks after the softmax, so that the weights no longer sum to 1",
            "mask the scores before the softmax",
        ),
        "boolean mask added": (
            "added",
            "adds the boolean mask to the scores as 0 and 1",
            "fill masked scores with -inf, or pass the mask as booleans",
        ),
        "padding not masked": (
            "padding ignored",
            "lets tokens see padding",
            "mask the padding's columns too",
        ),
        "padding mask inverted": (
            "padding inverted",
            "reads the padding mask the wrong way round",
            "invert the padding mask",
        ),
    }
    for key, (kind, says, do) in kinds.items():
        yield choosing(key, f"{{it}} {says}", do, where, mask=kind)
        if kind in ("strict", "inverted", "padding inverted"):  # some row sees nothing at all there
            filled = f"{key} (filled with -1e9)"
            yield choosing(filled, f"{{it}} {says}", do, where, mask=kind, fill=-1e9)
    for fill in (-100.0, -10.0, 0.0):
        yield choosing(
            f"masked with {fill:g}",
            f"{{it}} fills masked scores with {fill:g}, which the softmax sees",
            "fill with -inf",
            where,
            likely=3,
            fill=fill,
        )
    if 1 < config.n_kv_heads < config.n_heads:
        yield choosing(
            "kv heads tiled",
            "{it} tiles k and v: query head i reads key head i mod g, not i // (h / g)",
            "repeat each key/value head: repeat_interleave in torch, numpy.repeat, not tile",
            ("attn.scores", "attn.heads"),
            groups="tile",
        )
    names = {
        "1": ("scores not scaled", "does not divide the scores by sqrt(hd)"),
        "1/hd": ("scores scaled by 1/hd", "divides the scores by hd, not by its root"),
        "1/sqrt(d)": (
            "scores scaled by 1/sqrt(d)",
            "divides the scores by the root of the model's width, not of the head's",
        ),
        "1/sqrt(d/h)": (
            "scores scaled by 1/sqrt(d/h)",
            "takes d / n_heads for the size of a head, which head_dim says",
        ),
        "1/sqrt(h)": ("scores scaled by 1/sqrt(h)", "divides the scores by the root of the number of heads"),
        "sqrt(hd)": (
            "scores multiplied by sqrt(hd)",
            "multiplies the scores by sqrt(hd) where it should divide",
        ),
    }
    seen = [SCALES["1/sqrt(hd)"](config)]
    for scale, (key, says) in names.items():
        if all(not math.isclose(SCALES[scale](config), other) for other in seen):
            seen.append(SCALES[scale](config))
            yield choosing(
                key,
                f"{{it}} {says}",
                "multiply the scores by 1/sqrt(hd), once",
                ("attn.scores",),
                scale=scale,
            )
    yield choosing(
        "softmax over queries",
        "{it} takes the softmax over the queries, not over the keys",
        "softmax along the last axis",
        where,
        softmax_axis=-2,
    )
    if config.n_kv_heads < config.n_heads and config.n_kv_heads > 1:
        yield choosing(
            "first kv head for all",
            "{it} uses the first key/value head for every query head",
            "repeat each key/value head h / g times",
            ("attn.scores", "attn.heads"),
            likely=2,
            groups="first",
        )
        yield choosing(
            "kv heads of the next group",
            "{it} reads the key/value head of the group after a query head's own",
            "query head i reads key/value head i // (h / g)",
            ("attn.scores", "attn.heads"),
            likely=2,
            groups="next",
        )
    cut = ("attn.q_rotated", "attn.k_rotated") if config.position == "rope" else ("attn.scores",)
    yield choosing(
        "heads cut without transposing",
        "{it} reshapes q, k and v to (b, h, t, hd) where it must reshape to (b, t, h, hd) and transpose",
        "reshape to (b, t, h, hd), then transpose",
        (*cut, "attn.heads"),
        split="reshape",
    )
    yield choosing(
        "heads joined without transposing",
        "{it} reshapes (b, h, t, hd) to (b, t, h * hd) without transposing first",
        "transpose to (b, t, h, hd), then reshape",
        ("attn.heads",),
        join="reshape",
    )
    for dtype in ("bfloat16", "tf32", "float16"):
        yield choosing(
            f"products in {dtype}",
            f"{{it}} rounds the operands of its matrix products to {dtype}",
            "ask for full precision: jax.default_matmul_precision, torch.set_float32_matmul_precision",
            (
                "attn.q",
                "attn.k",
                "attn.v",
                "attn.scores",
                "attn.heads",
                "attn.out",
                "mlp.gate",
                "mlp.up",
                "mlp.out",
                "logits",
            ),
            likely=3,
            coarse=dtype,
            product_dtype=dtype,
        )
    yield from heads(config)
    for dtype in ("bfloat16", "float16"):
        yield choosing(
            f"softmax in {dtype}",
            f"{{it}} computes the softmax in {dtype}",
            "compute the softmax in float32 and cast the weights",
            where,
            likely=4,
            coarse=dtype,
            softmax_dtype=dtype,
        )


def heads(config: Config) -> Iterator[Fault]:
    """The same matrices cut into another number of heads."""
    h, g, width = config.n_heads, config.n_kv_heads, config.head_dim
    for up, down in ((2, 1), (4, 1), (3, 1), (3, 2), (1, 2), (1, 3), (1, 4), (2, 3)):
        if (
            h * up % down
            or g * up % down
            or width * down % up
            or (config.position == "rope" and width * down // up % 2)
        ):
            continue
        other = replace(
            config, n_heads=h * up // down, n_kv_heads=g * up // down, head_dim=width * down // up
        )

        def plant(v: Variant, other: Config = other) -> Variant:
            return replace(v, weights=v.weights._replace(config=other))

        yield Fault(
            f"{other.n_heads} heads for {h}",
            f"{{it}} cuts q, k and v into {other.n_heads} heads; this model has {h}",
            f"take n_heads {h} from the config",
            ("attn.q_rotated", "attn.k_rotated", "attn.scores", "attn.weights", "attn.heads"),
            plant,
            sets=frozenset({"heads"}),
        )
