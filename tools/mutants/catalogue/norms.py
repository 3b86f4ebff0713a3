"""Mutants of norms: their statistics, eps, weight and bias, and their place in the block."""

from ..mutant_registry import Patch, mutant

LAYER_SCALE = "(xp.mean(centred * centred, axis=-1, keepdims=True) + eps) ** -0.5"
RMS_SCALE = "(xp.mean(wide * wide, axis=-1, keepdims=True) + eps) ** -0.5"
LAYER_WEIGHT = "centred * scale * cast(weight, wide.dtype, xp=xp)"
RMS_WEIGHT = "cast(wide * scale, x.dtype, xp=xp) * cast(weight, x.dtype, xp=xp)"
FINAL = 'normalize(params, "final_norm", x, ctx)'
FINAL_OF_THE_LOSS = 'normalize(inputs.params, "final_norm", x, ctx)'
MLP_ADDED = 'x + tap("mlp.out", linear(w, "mlp.down", expand(w, m, ctx, tap), ctx))'
EPS = "*parts, ctx.config.norm_eps"

mutant(
    "layer-norm-eps-outside-the-root",
    "LayerNorm adds eps to the standard deviation, not to the variance.",
    Patch("ops", LAYER_SCALE, "1.0 / (xp.mean(centred * centred, axis=-1, keepdims=True) ** 0.5 + eps)"),
    region="norm",
    killers="layer-norm-divides-by-the-deviation normed-rows-have-size-one",
    families="gpt2",
)
mutant(
    "rms-norm-eps-outside-the-root",
    "RMSNorm adds eps to the root, not to the mean square.",
    Patch("ops", RMS_SCALE, "1.0 / (xp.mean(wide * wide, axis=-1, keepdims=True) ** 0.5 + eps)"),
    region="norm",
    killers="rms-norm-divides-by-the-root-mean-square normed-rows-have-size-one",
    families="llama",
)
mutant(
    "layer-norm-eps-dropped",
    "LayerNorm has no eps.",
    Patch("ops", LAYER_SCALE, "xp.mean(centred * centred, axis=-1, keepdims=True) ** -0.5"),
    region="norm",
    killers="layer-norm-divides-by-the-deviation normed-rows-have-size-one norms-of-zeros",
    families="gpt2",
)
mutant(
    "rms-norm-eps-dropped",
    "RMSNorm has no eps.",
    Patch("ops", RMS_SCALE, "xp.mean(wide * wide, axis=-1, keepdims=True) ** -0.5"),
    region="norm",
    killers="rms-norm-divides-by-the-root-mean-square normed-rows-have-size-one norms-of-zeros",
    families="llama",
)
mutant(
    "layer-norm-eps-fixed",
    "LayerNorm's eps is always 1e-6.",
    Patch("model", EPS, '*parts, 1e-6 if ctx.config.norm == "layer" else ctx.config.norm_eps'),
    region="norm",
    killers="norms-are-the-configs norms-stand-before",
    families="gpt2",
)
mutant(
    "rms-norm-eps-fixed",
    "RMSNorm's eps is always 1e-6.",
    Patch("model", EPS, '*parts, 1e-6 if ctx.config.norm == "rms" else ctx.config.norm_eps'),
    region="norm",
    killers="norms-are-the-configs norms-stand-before",
    families="llama",
)
mutant(
    "layer-norm-by-n-minus-1",
    "LayerNorm's variance divides by d - 1.",
    Patch("ops", LAYER_SCALE, "(xp.var(wide, axis=-1, correction=1.0, keepdims=True) + eps) ** -0.5"),
    region="norm",
    killers="layer-norm-divides-by-the-deviation normed-rows-have-size-one",
    families="gpt2",
)
mutant(
    "layer-norm-keeps-the-mean",
    "LayerNorm divides by the standard deviation, but does not subtract the mean.",
    Patch("ops", LAYER_WEIGHT, "wide * scale * cast(weight, wide.dtype, xp=xp)"),
    region="norm",
    killers="layer-norm-divides-by-the-deviation layer-norm-ignores-a-constant normed-rows-have-size-one",
    families="gpt2",
)
mutant(
    "layer-norm-as-rms-norm",
    "RMSNorm is used instead of LayerNorm: neither mean nor bias.",
    Patch("model", "norm = NORMS[ctx.config.norm]", 'norm = NORMS["rms"]'),
    region="norm",
    killers="norms-are-the-configs norms-stand-before",
    families="gpt2",
)
mutant(
    "rms-norm-as-layer-norm",
    "RMSNorm subtracts the mean, as LayerNorm does.",
    Patch(
        "ops",
        f"    scale = {RMS_SCALE}",
        f"    wide = wide - xp.mean(wide, axis=-1, keepdims=True)\n    scale = {RMS_SCALE}",
    ),
    region="norm",
    killers="rms-norm-divides-by-the-root-mean-square normed-rows-have-size-one",
    families="llama",
)
mutant(
    "layer-norm-weight-dropped",
    "LayerNorm does not multiply by its weight.",
    Patch("ops", LAYER_WEIGHT, "centred * scale"),
    region="norm",
    killers="norm-weights-multiply-and-biases-add layer-norm-divides-by-the-deviation",
    families="gpt2",
)
mutant(
    "rms-norm-weight-dropped",
    "RMSNorm does not multiply by its weight.",
    Patch("ops", RMS_WEIGHT, "cast(wide * scale, x.dtype, xp=xp)"),
    region="norm",
    killers="norm-weights-multiply-and-biases-add rms-norm-divides-by-the-root-mean-square",
    families="llama",
)
mutant(
    "layer-norm-weight-plus-1",
    "LayerNorm multiplies by 1 + w.",
    Patch("ops", LAYER_WEIGHT, "centred * scale * (1.0 + cast(weight, wide.dtype, xp=xp))"),
    region="norm",
    killers="norm-weights-multiply-and-biases-add layer-norm-divides-by-the-deviation",
    families="gpt2",
)
mutant(
    "rms-norm-weight-plus-1",
    "RMSNorm multiplies by 1 + w, as Gemma does.",
    Patch("ops", RMS_WEIGHT, "cast(wide * scale, x.dtype, xp=xp) * (1.0 + cast(weight, x.dtype, xp=xp))"),
    region="norm",
    killers="norm-weights-multiply-and-biases-add rms-norm-divides-by-the-root-mean-square",
    families="llama",
)
mutant(
    "layer-norm-weight-first",
    "LayerNorm multiplies by its weight before it divides by the standard deviation of the product.",
    Patch(
        "ops",
        f"    scale = {LAYER_SCALE}",
        f"    centred = centred * cast(weight, wide.dtype, xp=xp)\n    scale = {LAYER_SCALE}",
    ),
    Patch("ops", LAYER_WEIGHT, "centred * scale"),
    region="norm",
    killers="norm-weights-multiply-and-biases-add layer-norm-divides-by-the-deviation",
    families="gpt2",
)
mutant(
    "rms-norm-weight-first",
    "RMSNorm multiplies by its weight before it divides by the root mean square of the product.",
    Patch(
        "ops",
        f"    scale = {RMS_SCALE}",
        f"    wide = wide * cast(weight, wide.dtype, xp=xp)\n    scale = {RMS_SCALE}",
    ),
    Patch("ops", RMS_WEIGHT, "cast(wide * scale, x.dtype, xp=xp)"),
    region="norm",
    killers="norm-weights-multiply-and-biases-add rms-norm-divides-by-the-root-mean-square",
    families="llama",
)
mutant(
    "layer-norm-bias-dropped",
    "LayerNorm does not add its bias.",
    Patch("ops", " + cast(bias, wide.dtype, xp=xp)\n", "\n"),
    region="norm",
    killers="norm-weights-multiply-and-biases-add layer-norm-divides-by-the-deviation norms-of-zeros",
    families="gpt2",
)
mutant(
    "rms-norm-without-root",
    "RMSNorm divides by the mean square, not by its root.",
    Patch("ops", RMS_SCALE, "(xp.mean(wide * wide, axis=-1, keepdims=True) + eps) ** -1.0"),
    region="norm",
    killers="rms-norm-divides-by-the-root-mean-square normed-rows-have-size-one norms-ignore-scale",
    families="llama",
)
mutant(
    "rms-norm-over-all-tokens",
    "RMSNorm uses one mean square for the whole batch.",
    Patch("ops", RMS_SCALE, "(xp.mean(wide * wide) + eps) ** -0.5"),
    region="norm",
    killers="rms-norm-divides-by-the-root-mean-square causality rows-are-independent",
    families="llama",
)
mutant(
    "norm-weights-of-the-first",
    "The MLP's norm uses the weights of the attention's.",
    Patch("model", 'normalize(w, "mlp_norm", x, ctx)', 'normalize(w, "attn_norm", x, ctx)'),
    region="residual",
    killers="norms-stand-before",
)
mutant(
    "final-norm-missing",
    "There is no norm before the head.",
    Patch("model", FINAL, "x"),
    Patch("model", FINAL_OF_THE_LOSS, "x"),
    region="residual",
    killers="norms-stand-before without-blocks the-final-norm-scales-the-logits",
)
mutant(
    "final-norm-twice",
    "The norm before the head is applied twice.",
    Patch("model", FINAL, FINAL.replace("x", FINAL, 1)),
    Patch("model", FINAL_OF_THE_LOSS, FINAL_OF_THE_LOSS.replace("x", FINAL_OF_THE_LOSS, 1)),
    region="residual",
    killers="norms-stand-before without-blocks",
)
mutant(
    "post-norm",
    "Norms are applied after the sublayers, as in the first transformer.",
    Patch("model", 'normalize(w, "attn_norm", x, ctx)', "x"),
    Patch(
        "model",
        'x + tap("attn.out", linear(w, "attn.o", heads, ctx))',
        'normalize(w, "attn_norm", x + tap("attn.out", linear(w, "attn.o", heads, ctx)), ctx)',
    ),
    Patch("model", 'normalize(w, "mlp_norm", x, ctx)', "x"),
    Patch(
        "model",
        MLP_ADDED,
        f'normalize(w, "mlp_norm", {MLP_ADDED}, ctx)',
    ),
    region="residual",
    killers="norms-stand-before sublayers-add-to-the-stream",
)
