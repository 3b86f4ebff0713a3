"""Mutants of positions: rotary pairs and angles, learned tables, and how positions count."""

from ..mutant_registry import Patch, mutant

FREQUENCY = "config.rope_theta ** (-2.0 * i / config.head_dim)"
COUNTED = "    check_learned_positions(inputs, positions)\n"

mutant(
    "rope-interleaved",
    "Neighbours are paired, (x[2i], x[2i + 1]), instead of halves: the most common fault of ports.",
    Patch("ops", "a, b = x[..., :half], x[..., half:]", "a, b = x[..., 0::2], x[..., 1::2]"),
    Patch(
        "ops",
        "xp.concat([a * cos - b * sin, b * cos + a * sin], axis=-1)",
        "xp.reshape(xp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1), (*x.shape[:-1], 2 * half))",
    ),
    region="rotation",
    killers="rotary-multiplies-complex-numbers rotary-angles",
    families="llama",
)
mutant(
    "rope-backwards",
    "The rotation has the other sign.",
    Patch("ops", "[a * cos - b * sin, b * cos + a * sin]", "[a * cos + b * sin, b * cos - a * sin]"),
    region="rotation",
    killers="rotary-multiplies-complex-numbers rotary-angles",
    families="llama",
)
mutant(
    "rope-no-rotation",
    "The swapped half keeps its sign, so lengths change.",
    Patch("ops", "[a * cos - b * sin, b * cos + a * sin]", "[a * cos + b * sin, b * cos + a * sin]"),
    region="rotation",
    killers="rotary-keeps-lengths rotary-multiplies-complex-numbers rotations-compose shift-invariance",
    families="llama",
)
mutant(
    "rope-on-values",
    "Values are rotated too.",
    Patch(
        "model",
        "    if cache is not None:\n        k = ctx.kernels.write_cache(",
        "    if ctx.rotation is not None:\n        v = ctx.kernels.rotary(v, *ctx.rotation, xp=xp)\n"
        "    if cache is not None:\n        k = ctx.kernels.write_cache(",
    ),
    region="positions",
    killers="shift-invariance heads-attend",
    families="llama",
)
mutant(
    "rope-on-queries-only",
    "Keys are not rotated.",
    Patch("model", "ctx.kernels.rotary(k, *ctx.rotation, xp=xp)", "k"),
    region="positions",
    killers="rotary-angles shift-invariance",
    families="llama",
)
mutant(
    "rope-theta-fixed",
    "theta is always 10000.",
    Patch("rope", FREQUENCY, "10000.0 ** (-2.0 * i / config.head_dim)"),
    region="positions",
    killers="rotary-angles",
    families="llama",
)
mutant(
    "rope-exponent-halved",
    "The exponent is i/hd, not 2i/hd.",
    Patch("rope", FREQUENCY, "config.rope_theta ** (-1.0 * i / config.head_dim)"),
    region="positions",
    killers="rotary-angles",
    families="llama",
)
mutant(
    "rope-exponent-by-model-width",
    "The exponent is divided by the width of the model, not of a head.",
    Patch("rope", FREQUENCY, "config.rope_theta ** (-2.0 * i / config.d_model)"),
    region="positions",
    killers="rotary-angles",
    families="llama",
)
mutant(
    "rope-scaling-ignored",
    "rope_scaling is not read.",
    Patch("rope", "    if scaling is None:", "    if True:"),
    region="positions",
    killers="rotary-angles",
    families="llama",
)
mutant(
    "linear-scaling-inverted",
    "Linear scaling multiplies the frequencies by the factor.",
    Patch("rope", "    return frequency / scaling.factor", "    return frequency * scaling.factor"),
    region="positions",
    killers="rotary-angles",
    families="llama",
)
mutant(
    "llama3-scaling-as-linear",
    "Every scaling is treated as linear.",
    Patch("rope", "SCALINGS[scaling.rope_type](", "scale_linear("),
    region="positions",
    killers="rotary-angles",
    families="llama",
)
mutant(
    "llama3-scaling-inverted",
    "Short wavelengths are stretched and long ones kept.",
    Patch(
        "rope",
        "keep * frequency + (1.0 - keep) * frequency / scaling.factor",
        "(1.0 - keep) * frequency + keep * frequency / scaling.factor",
    ),
    region="positions",
    killers="rotary-angles",
    families="llama",
)
mutant(
    "llama3-scaling-by-radians",
    "Wavelengths are 1 / frequency: the factor 2 pi is missing.",
    Patch("rope", "frequency / (2.0 * math.pi)", "frequency"),
    region="positions",
    killers="rotary-frequencies rotary-angles",
    families="llama",
)
mutant(
    "llama3-scaling-unclamped",
    "The blend of stretched and kept frequencies extends beyond both ends.",
    Patch("rope", "keep = min(max(keep, 0.0), 1.0)", "keep = 1.0 * keep"),
    region="positions",
    killers="rotary-angles",
    families="llama",
)
mutant(
    "positions-from-1",
    "Positions count from 1.",
    Patch(
        "cache", COUNTED, "    if inputs.positions is None:\n        positions = positions + 1\n" + COUNTED
    ),
    region="positions",
    killers="positions-count-from-0",
)
mutant(
    "positions-of-columns",
    "Positions are column numbers: padding is counted.",
    Patch("cache", "        if mask is not None:\n            count", "        if False:\n            count"),
    region="padding",
    killers="padding-invariance positions-count-from-0",
)
mutant(
    "positions-given-are-ignored",
    "The caller's positions are ignored.",
    Patch("cache", "    if positions is None:", "    if True:"),
    region="positions",
    killers="learned-positions-are-rows rotary-angles given-positions-with-a-cache",
)
mutant(
    "learned-positions-off-by-one",
    "Learned positions are read one row too late, as if the table had a row for padding.",
    Patch(
        "model",
        "ctx.placement.positions, xp=ctx.xp)",
        "(ctx.placement.positions + 1) % ctx.config.max_seq_len, xp=ctx.xp)",
    ),
    region="embedding",
    killers="tokens-are-looked-up learned-positions-are-rows",
    families="gpt2",
)
mutant(
    "learned-positions-missing",
    "Learned positions are not added.",
    Patch("model", 'if ctx.config.position == "learned":', "if False:"),
    region="embedding",
    killers="tokens-are-looked-up learned-positions-are-rows order-matters",
    families="gpt2",
)
mutant(
    "learned-positions-twice",
    "Learned positions are added twice.",
    Patch(
        "model",
        'x = x + look_up(params["pos_embed.weight"]',
        'x = x + 2.0 * look_up(params["pos_embed.weight"]',
    ),
    region="embedding",
    killers="tokens-are-looked-up learned-positions-are-rows",
    families="gpt2",
)
mutant(
    "rope-angle-offset",
    "Every pair is rotated a little further than its angle.",
    Patch(
        "ops",
        "    cos, sin = cast(cos, x.dtype, xp=xp), cast(sin, x.dtype, xp=xp)\n",
        "    cos, sin = cast(cos - 1e-4 * sin, x.dtype, xp=xp), cast(sin + 1e-4 * cos, x.dtype, xp=xp)\n",
    ),
    region="rotation",
    killers="rotary-by-nothing-is-the-identity rotary-multiplies-complex-numbers",
    families="llama",
)
