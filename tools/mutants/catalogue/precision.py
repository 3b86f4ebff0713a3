"""Mutants of precision: what is computed in too few digits, or returned in a wrong dtype."""

from ..mutant_registry import Patch, mutant

WIDENED = "cast(x, xp.result_type(x.dtype, xp.float32), xp=xp)"
TABLES = "precision = xp.result_type(dtype, xp.float32)"

mutant(
    "float64-in-float32",
    "Norms, softmax and loss are computed in float32, also in a float64 model.",
    Patch("ops", WIDENED, "cast(x, xp.float32, xp=xp)"),
    region="precision",
    killers="dtypes-are-kept layer-norm-divides-by-the-deviation masking-leaves-out",
)
mutant(
    "float32-in-float64",
    "Norms, softmax and loss are computed in float64, and the loss of a float32 model stays float64.",
    Patch("ops", WIDENED, "cast(x, xp.float64, xp=xp)"),
    region="precision",
    killers="dtypes-are-kept the-loss-is-wide",
)
mutant(
    "scores-in-half-precision",
    "Products of queries and keys are summed in half precision, and overflow.",
    Patch(
        "ops",
        "xp.matmul(widen(grouped, xp=xp), xp.matrix_transpose(widen(k, xp=xp)))",
        "xp.matmul(grouped, xp.matrix_transpose(k))",
    ),
    region="attention",
    killers="scores-are-summed-in-float32",
)
mutant(
    "softmax-in-half-precision",
    "Softmax sums its exponentials in the dtype of its scores.",
    Patch("ops", "    wide = widen(x, xp=xp)\n    if visible", "    wide = x\n    if visible"),
    region="precision",
    killers="half-precision-costs-one-rounding",
)
mutant(
    "softmax-stays-wide",
    "Softmax returns the dtype that it computed in.",
    Patch(
        "ops",
        "return cast(e / xp.where(total > 0.0, total, 1.0), x.dtype, xp=xp)",
        "return e / xp.where(total > 0.0, total, 1.0)",
    ),
    region="precision",
    killers="operations-keep-the-dtype dtypes-are-kept attention-points-keep-the-dtype",
)
mutant(
    "layer-norm-in-half-precision",
    "LayerNorm squares in the dtype of its input.",
    Patch("ops", "    wide = widen(x, xp=xp)\n    centred", "    wide = x\n    centred"),
    region="precision",
    killers="half-precision-costs-one-rounding norms-neither-overflow-nor-vanish",
    families="gpt2",
)
mutant(
    "rms-norm-in-half-precision",
    "RMSNorm squares in the dtype of its input.",
    Patch("ops", "    wide = widen(x, xp=xp)\n    scale", "    wide = x\n    scale"),
    region="precision",
    killers="half-precision-costs-one-rounding norms-neither-overflow-nor-vanish",
    families="llama",
)
mutant(
    "layer-norm-stays-wide",
    "LayerNorm returns the dtype that it computed in.",
    Patch("ops", "    return cast(y, x.dtype, xp=xp)\n", "    return y\n"),
    region="precision",
    killers="operations-keep-the-dtype dtypes-are-kept",
    families="gpt2",
)
mutant(
    "rms-norm-rounded-last",
    "RMSNorm multiplies by its weight before it rounds to its input's dtype.",
    Patch(
        "ops",
        "cast(wide * scale, x.dtype, xp=xp) * cast(weight, x.dtype, xp=xp)",
        "cast(wide * scale * cast(weight, wide.dtype, xp=xp), x.dtype, xp=xp)",
    ),
    region="norm",
    killers="rms-norm-rounds-before-its-weight",
    families="llama",
)
mutant(
    "linear-in-the-weights-dtype",
    "A matrix multiplies in the dtype of its weight, not of its input.",
    Patch(
        "ops",
        "xp.matmul(x, xp.matrix_transpose(cast(weight, x.dtype, xp=xp)))",
        "xp.matmul(cast(x, weight.dtype, xp=xp), xp.matrix_transpose(weight))",
    ),
    region="precision",
    killers="operations-keep-the-dtype",
)
mutant(
    "rope-tables-in-half-precision",
    "Angles are computed in the model's dtype: in half precision distant positions coincide.",
    Patch("rope", TABLES, "precision = dtype"),
    region="precision",
    killers="rotary-tables-are-wide",
    families="llama",
)
mutant(
    "rope-tables-in-float32",
    "Angles are computed in float32, also in a float64 model.",
    Patch("rope", TABLES, "precision = xp.float32"),
    region="precision",
    killers="rotary-tables-are-wide rotary-angles agrees-with-the-referee",
    families="llama",
)
mutant(
    "rope-stays-wide",
    "cos and sin are not rounded to the dtype of x, so the result has theirs.",
    Patch("ops", "    cos, sin = cast(cos, x.dtype, xp=xp), cast(sin, x.dtype, xp=xp)\n", ""),
    region="precision",
    killers="operations-keep-the-dtype dtypes-are-kept",
    families="llama",
)
mutant(
    "loss-in-half-precision",
    "The loss is computed in the dtype of the logits.",
    Patch("ops", "    wide = widen(logits, xp=xp)\n", "    wide = logits\n"),
    region="precision",
    killers="dtypes-are-kept the-loss-is-wide",
)
mutant(
    "layer-norm-in-place",
    "LayerNorm subtracts the mean from its argument in place.",
    Patch(
        "ops",
        "    centred = wide - xp.mean(wide, axis=-1, keepdims=True)\n",
        "    wide -= xp.mean(wide, axis=-1, keepdims=True)\n    centred = wide\n",
    ),
    region="precision",
    killers="operations-leave-their-arguments",
    families="gpt2",
)
