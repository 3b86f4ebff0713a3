"""Mutants of attention: its mask, its softmax, its scale, and how heads share keys and are ordered."""

from ..mutant_registry import Patch, mutant

VISIBLE = "    if cache is None:\n        visible ="
PROJECTED = "q, k, v = project(w, "


def but_one(name: str) -> tuple[str, str]:
    """What projects the queries, the keys and the values, and the same without one parameter."""
    return PROJECTED, PROJECTED.replace("w, ", f'{{n: x for n, x in w.items() if n != "{name}"}}, ')


mutant(
    "mask-missing",
    "Attention ignores the mask.",
    Patch("ops", "softmax(scores, visible=visible, xp=xp)", "softmax(scores, xp=xp)"),
    region="causality",
    killers="causality prefix-invariance heads-attend",
)
mutant(
    "mask-upside-down",
    "The upper triangle is kept instead of the lower: tokens see themselves and what follows them.",
    Patch("cache", VISIBLE, "    causal = columns[None, :] >= columns[:, None]\n" + VISIBLE),
    region="causality",
    killers="causality prefix-invariance heads-attend",
)
mutant(
    "mask-one-token-ahead",
    "The triangle starts one column too late: each token sees the one after it.",
    Patch("cache", VISIBLE, "    causal = columns[None, :] <= columns[:, None] + 1\n" + VISIBLE),
    region="causality",
    killers="causality prefix-invariance heads-attend",
)
mutant(
    "mask-without-itself",
    "The triangle excludes its diagonal: no token sees itself.",
    Patch("cache", VISIBLE, "    causal = columns[None, :] < columns[:, None]\n" + VISIBLE),
    region="attention",
    killers="heads-attend",
)
mutant(
    "mask-slides",
    "A sliding window of two tokens was left on.",
    Patch("cache", VISIBLE, "    causal = causal & (columns[None, :] > columns[:, None] - 2)\n" + VISIBLE),
    region="attention",
    killers="heads-attend",
)
mutant(
    "mask-after-softmax",
    "Weights of hidden keys are zeroed after the softmax, without normalising the others again.",
    Patch(
        "ops",
        "softmax(scores, visible=visible, xp=xp)",
        "xp.where(visible, softmax(scores, xp=xp), 0.0)",
    ),
    region="attention",
    killers="attention-by-hand attention-weights-are-softmax-of-scores heads-attend causality",
)
mutant(
    "mask-of-the-first-row",
    "The mask of the first row is used for the whole batch.",
    Patch("cache", "causal & mask[:, None, None, :]", "causal & mask[:1, None, None, :]"),
    region="padding",
    killers="padding-invariance padding-is-unseen heads-attend",
)
mutant(
    "pad-attended",
    "Attention is causal, but the mask of the padding is not applied.",
    Patch(
        "cache",
        "causal[None, None, ...] if mask is None else causal & mask[:, None, None, :]",
        "causal[None, None, ...]",
    ),
    region="padding",
    killers="padding-invariance padding-is-unseen heads-attend",
)
mutant(
    "softmax-nan-where-all-is-masked",
    "Softmax divides by the sum of a row that sees nothing.",
    Patch("ops", "xp.where(total > 0.0, total, 1.0)", "total"),
    region="softmax",
    killers="masking-leaves-out softmax-does-not-overflow",
)
mutant(
    "softmax-masks-by-a-large-number",
    "Hidden scores are -1e9, not minus infinity: a row that sees nothing sees everything.",
    Patch("ops", "xp.where(visible, wide, -math.inf)", "xp.where(visible, wide, -1e9)"),
    region="softmax",
    killers="masking-leaves-out",
)
mutant(
    "softmax-unshifted",
    "Softmax does not subtract the largest score before it exponentiates.",
    Patch("ops", "xp.exp(wide - xp.where(top > -math.inf, top, 0.0))", "xp.exp(wide)"),
    region="softmax",
    killers="softmax-does-not-overflow softmax-ignores-a-constant",
)
mutant(
    "softmax-shifted-by-the-largest-of-all",
    "Softmax subtracts the largest of all scores, not of each row: rows far below it vanish.",
    Patch("ops", "top = xp.max(wide, axis=axis, keepdims=True)", "top = xp.max(wide)"),
    region="softmax",
    killers="softmax-does-not-overflow softmax-ignores-a-constant",
)
mutant(
    "softmax-to-base-2",
    "Softmax uses base 2, not e: the factor log2(e) of a fast kernel is missing.",
    Patch(
        "ops",
        "e = xp.exp(wide - xp.where(top > -math.inf, top, 0.0))",
        "e = 2.0 ** (wide - xp.where(top > -math.inf, top, 0.0))",
    ),
    region="softmax",
    killers="softmax-ratios-are-exponentials masking-leaves-out attention-by-hand",
)
mutant(
    "softmax-over-queries",
    "The weights of attention add up to 1 over the queries, not over the keys.",
    Patch(
        "ops", "softmax(scores, visible=visible, xp=xp)", "softmax(scores, visible=visible, axis=-2, xp=xp)"
    ),
    region="attention",
    killers="attention-by-hand attention-weights-are-softmax-of-scores heads-attend causality",
)
mutant(
    "scale-missing",
    "Scores are not divided by sqrt(hd).",
    Patch("ops", " * (1.0 / math.sqrt(hd))", ""),
    region="attention",
    killers="attention-by-hand scores-are-scaled-products heads-attend",
)
mutant(
    "scale-by-head-size",
    "Scores are divided by hd, not by its root.",
    Patch("ops", "1.0 / math.sqrt(hd)", "1.0 / hd"),
    region="attention",
    killers="attention-by-hand scores-are-scaled-products heads-attend",
)
mutant(
    "scale-by-model-width",
    "Scores are divided by the root of the width of all heads, not of one.",
    Patch("ops", "1.0 / math.sqrt(hd)", "1.0 / math.sqrt(h * hd)"),
    region="attention",
    killers="attention-by-hand scores-are-scaled-products heads-attend",
)
mutant(
    "heads-tiled",
    "Key/value heads are tiled, not repeated: query head i reads head i modulo g.",
    Patch(
        "ops",
        "    g, s = k.shape[1], k.shape[2]\n",
        "    k, v = (xp.concat([x] * (h // x.shape[1]), axis=1) for x in (k, v))\n"
        "    g, s = k.shape[1], k.shape[2]\n",
    ),
    region="heads",
    killers="shared-heads-equal-repeated-heads grouped-heads-equal-repeated-ones heads-attend",
    families="llama",
)
mutant(
    "heads-of-one-key",
    "Every query head reads the first key/value head.",
    Patch(
        "ops",
        "    g, s = k.shape[1], k.shape[2]\n",
        "    k, v = k[:, :1, :, :], v[:, :1, :, :]\n    g, s = k.shape[1], k.shape[2]\n",
    ),
    region="heads",
    killers="head-permutation heads-are-independent heads-attend",
)
mutant(
    "heads-split-without-transposing",
    "(b, t, h*hd) is reshaped to (b, h, t, hd) at once, which mixes tokens and heads.",
    Patch(
        "model",
        "xp.permute_dims(xp.reshape(x, (b, t, heads, width // heads)), (0, 2, 1, 3))",
        "xp.reshape(x, (b, heads, t, width // heads))",
    ),
    region="heads",
    killers="head-permutation heads-attend causality",
)
mutant(
    "heads-interleaved",
    "Heads are split as (hd, h): head i takes every h-th number.",
    Patch(
        "model",
        "xp.permute_dims(xp.reshape(x, (b, t, heads, width // heads)), (0, 2, 1, 3))",
        "xp.permute_dims(xp.reshape(x, (b, t, width // heads, heads)), (0, 3, 1, 2))",
    ),
    region="heads",
    killers="head-permutation heads-attend",
)
mutant(
    "heads-joined-without-transposing",
    "(b, h, t, hd) is reshaped to (b, t, h*hd) at once, which mixes tokens and heads.",
    Patch(
        "model",
        "xp.reshape(xp.permute_dims(x, (0, 2, 1, 3)), (b, t, h * hd))",
        "xp.reshape(x, (b, t, h * hd))",
    ),
    region="heads",
    killers="head-permutation heads-attend causality",
)
mutant(
    "heads-joined-the-other-way",
    "Heads are joined as (hd, h).",
    Patch("model", "xp.permute_dims(x, (0, 2, 1, 3))", "xp.permute_dims(x, (0, 2, 3, 1))"),
    region="heads",
    killers="head-permutation heads-attend",
)
mutant(
    "q-bias-dropped",
    "The bias of the queries is not added.",
    Patch("model", *but_one("attn.q.bias")),
    region="attention",
    killers="projections",
)
mutant(
    "k-bias-dropped",
    "The bias of the keys is not added, which changes logits only with rotary positions.",
    Patch("model", *but_one("attn.k.bias")),
    region="attention",
    killers="projections",
    families="llama",
)
mutant(
    "attention-output-bias-dropped",
    "The bias of the attention's output is not added.",
    Patch(
        "model", 'linear(w, "attn.o", heads, ctx)', 'ctx.kernels.linear(heads, w["attn.o.weight"], xp=ctx.xp)'
    ),
    region="attention",
    killers="projections",
)
mutant(
    "attention-output-transposed",
    "A square output matrix is loaded as (in, out); its shape does not reveal it.",
    Patch(
        "model",
        'linear(w, "attn.o", heads, ctx)',
        'linear({**w, "attn.o.weight": other_way(w["attn.o.weight"], xp=ctx.xp)}, "attn.o", heads, ctx)',
    ),
    Patch(
        "model",
        "def join_heads(",
        "def other_way(x: Array, *, xp: Namespace) -> Array:\n"
        "    return xp.matrix_transpose(x) if x.shape[0] == x.shape[1] else x\n\n\n"
        "def join_heads(",
    ),
    region="attention",
    killers="projections",
)
mutant(
    "full-mask-drops-causality",
    "A mask without padding replaces the triangle instead of joining it.",
    Patch(
        "cache",
        VISIBLE,
        "    if mask is not None and bool(xp.all(mask)):\n        causal = causal | True\n" + VISIBLE,
    ),
    region="padding",
    killers="a-full-mask-is-none padding-invariance",
)
