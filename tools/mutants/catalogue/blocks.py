"""Mutants of the rest of a model: MLPs, residuals, the order of layers, embedding and head."""

from ..mutant_registry import Patch, mutant

ACTIVATION = "act = getattr(ctx.kernels, activation)"
GATED = "act(gate, xp=ctx.xp) * up"
ATTENTION_ADDS = 'tap("attn_residual", x + tap("attn.out"'
MLP_ADDS = 'tap("residual", x + tap("mlp.out"'
BLOCK = 'x, layers[i] = block(params.block(i), x, before, ctx, prefix(tap, f"blocks.{i}"))'
TABLE = 'params["embed.weight" if config.tie_embeddings else "head.weight"]'
LOOKED_UP = 'look_up(params["embed.weight"], ids, xp=ctx.xp)'

mutant(
    "gate-and-up-swapped",
    "The gate is multiplied by silu of up.",
    Patch("model", GATED, "gate * act(up, xp=ctx.xp)"),
    region="mlp",
    killers="mlps-bend gated-mlps-are-linear-in-their-values",
    families="llama",
)
mutant(
    "gate-alone",
    "The hidden units are silu of the gate alone: up is not used.",
    Patch("model", GATED, "act(gate, xp=ctx.xp)"),
    region="mlp",
    killers="mlps-bend gated-mlps-are-linear-in-their-values",
    families="llama",
)
mutant(
    "gate-not-activated",
    "The gate is multiplied without silu.",
    Patch("model", GATED, "gate * up"),
    region="mlp",
    killers="mlps-bend",
    families="llama",
)
mutant(
    "gelu-for-silu",
    "The gate goes through GELU, not silu.",
    Patch("model", GATED, "ctx.kernels.gelu(gate, xp=ctx.xp) * up"),
    region="mlp",
    killers="mlps-bend",
    families="llama",
)
mutant(
    "relu-for-silu",
    "The gate goes through ReLU, not silu.",
    Patch("model", GATED, "ctx.xp.where(gate > 0.0, gate, 0.0) * up"),
    region="mlp",
    killers="mlps-bend",
    families="llama",
)
mutant(
    "relu-for-gelu",
    "The MLP goes through ReLU, not GELU.",
    Patch(
        "model",
        ACTIVATION,
        f"{ACTIVATION} if gated else lambda x, *, xp: xp.where(x > 0.0, x, 0.0)",
    ),
    region="mlp",
    killers="mlps-bend",
    families="gpt2",
)
mutant(
    "gelu-tanh-for-gelu",
    "GELU is the tanh form although the config names the exact one.",
    Patch(
        "model",
        ACTIVATION,
        f'activation = {{"gelu": "gelu_tanh"}}.get(activation, activation)\n    {ACTIVATION}',
    ),
    region="mlp",
    killers="mlps-bend",
    families="gpt2",
)
mutant(
    "gelu-for-gelu-tanh",
    "GELU is the exact form although the config names the tanh form.",
    Patch(
        "model",
        ACTIVATION,
        f'activation = {{"gelu_tanh": "gelu"}}.get(activation, activation)\n    {ACTIVATION}',
    ),
    region="mlp",
    killers="mlps-bend",
    families="gpt2",
)
mutant(
    "gelu-by-sigmoid",
    "GELU is x sigmoid(1.702 x).",
    Patch(
        "ops",
        "cast(0.5 * wide * (1.0 + erf(wide * math.sqrt(0.5), xp=xp)), x.dtype, xp=xp)",
        "silu(1.702 * x, xp=xp) / 1.702",
    ),
    region="mlp",
    killers="gelu-is-x-times-the-normal-distribution mlps-bend",
    families="gpt2",
)
mutant(
    "gelu-of-x-unscaled",
    "GELU takes erf(x), not erf(x / sqrt(2)).",
    Patch("ops", "erf(wide * math.sqrt(0.5), xp=xp)", "erf(wide, xp=xp)"),
    region="mlp",
    killers="gelu-is-x-times-the-normal-distribution mlps-bend",
    families="gpt2",
)
mutant(
    "gelu-tanh-without-cube",
    "The cubic term of the tanh GELU is missing.",
    Patch("ops", "(wide + 0.044715 * wide * wide * wide)", "wide"),
    region="mlp",
    killers="gelu-tanh-is-its-formula gelu-has-two-forms mlps-bend",
    families="gpt2",
)
mutant(
    "relu2-not-squared",
    "The squared ReLU is not squared.",
    Patch("ops", "squared: Array = positive * positive", "squared: Array = positive"),
    region="mlp",
    killers="relu2-is-the-square-of-the-positive-part mlps-bend",
    families="mixed",
)
mutant(
    "relu2-of-both-signs",
    "Negative numbers are squared too.",
    Patch("ops", "positive = xp.where(x < 0.0, 0.0, x)", "positive = x"),
    region="mlp",
    killers="relu2-is-the-square-of-the-positive-part mlps-bend",
    families="mixed",
)
mutant(
    "head-bias-dropped",
    "The head's bias is not added.",
    Patch("model", ', params.get("head.bias")', ", None"),
    region="head",
    killers="logits-are-the-head",
    families="mixed",
)
mutant(
    "silu-overflows",
    "silu is x exp(x) / (1 + exp(x)), which is infinity over infinity for large x.",
    Patch("ops", "e = xp.exp(-xp.abs(wide))", "e = xp.exp(wide)"),
    Patch("ops", "wide * xp.where(wide >= 0.0, 1.0, e) / (1.0 + e)", "wide * e / (1.0 + e)"),
    region="mlp",
    killers="activations-do-not-overflow",
    families="llama",
)
mutant(
    "mlp-bias-dropped",
    "The bias of the MLP's output is not added.",
    Patch(
        "model",
        'linear(w, "mlp.down", expand(w, m, ctx, tap), ctx)',
        'ctx.kernels.linear(expand(w, m, ctx, tap), w["mlp.down.weight"], xp=ctx.xp)',
    ),
    region="mlp",
    killers="mlps-bend",
)
mutant(
    "linear-bias-dropped",
    "No matrix adds its bias.",
    Patch("ops", "return y if bias is None else y + cast(bias, x.dtype, xp=xp)", "return y"),
    region="linear",
    killers="linear-sums-products linear-is-linear projections mlps-bend",
)
mutant(
    "attention-residual-missing",
    "The attention's output replaces the stream.",
    Patch("model", ATTENTION_ADDS, 'tap("attn_residual", tap("attn.out"'),
    region="residual",
    killers="sublayers-add-to-the-stream zero-outputs-make-the-identity",
)
mutant(
    "mlp-residual-missing",
    "The MLP's output replaces the stream.",
    Patch("model", MLP_ADDS, 'tap("residual", tap("mlp.out"'),
    region="residual",
    killers="sublayers-add-to-the-stream zero-outputs-make-the-identity",
)
mutant(
    "attention-residual-of-the-norm",
    "The attention's output is added to the normed stream.",
    Patch("model", ATTENTION_ADDS, 'tap("attn_residual", a + tap("attn.out"'),
    region="residual",
    killers="sublayers-add-to-the-stream zero-outputs-make-the-identity",
)
mutant(
    "mlp-residual-of-the-norm",
    "The MLP's output is added to the normed stream.",
    Patch("model", MLP_ADDS, 'tap("residual", m + tap("mlp.out"'),
    region="residual",
    killers="sublayers-add-to-the-stream zero-outputs-make-the-identity",
)
mutant(
    "parallel-sublayers",
    "The MLP reads the stream as it was before the attention.",
    Patch("model", '    a = tap("attn_norm"', '    entering = x\n    a = tap("attn_norm"'),
    Patch("model", 'normalize(w, "mlp_norm", x, ctx)', 'normalize(w, "mlp_norm", entering, ctx)'),
    region="residual",
    killers="norms-stand-before",
)
mutant(
    "layer-skipped",
    "The last block is skipped.",
    Patch(
        "model",
        BLOCK,
        BLOCK.replace("x, l", "y, l", 1) + "\n        x = y if i + 1 < ctx.config.n_layers else x",
    ),
    region="structure",
    killers="blocks-stand-in-order norms-stand-before",
)
mutant(
    "layers-in-reverse",
    "Blocks run from the last to the first.",
    Patch("model", "params.block(i)", "params.block(ctx.config.n_layers - 1 - i)"),
    region="structure",
    killers="blocks-stand-in-order norms-stand-before projections mlps-bend",
)
mutant(
    "layers-of-the-first-block",
    "Every block has the weights of the first.",
    Patch("model", "params.block(i)", "params.block(0)"),
    region="structure",
    killers="blocks-stand-in-order norms-stand-before projections mlps-bend",
)
mutant(
    "embedding-scaled",
    "Embeddings are multiplied by sqrt(d).",
    Patch("model", LOOKED_UP, f"ctx.config.d_model**0.5 * {LOOKED_UP}"),
    region="embedding",
    killers="tokens-are-looked-up",
)
mutant(
    "ids-shifted-inside",
    "The model shifts its ids to the right, as decoders that follow an encoder do.",
    Patch("model", LOOKED_UP, LOOKED_UP.replace("ids", "ctx.xp.concat([ids[:, :1], ids[:, :-1]], axis=1)")),
    region="embedding",
    killers="tokens-are-looked-up",
)
mutant(
    "batch-looked-up-in-columns",
    "Embeddings are looked up column by column and put back row by row.",
    Patch("model", "xp.reshape(index, (-1,))", "xp.reshape(xp.permute_dims(index, (1, 0)), (-1,))"),
    region="batch",
    killers="rows-are-independent tokens-are-looked-up",
)
mutant(
    "head-always-tied",
    "Logits come from the embedding although the model has its own head.",
    Patch("model", TABLE, 'params["embed.weight"]'),
    region="head",
    killers="logits-are-the-head an-untied-head-is-its-own",
)
mutant(
    "tied-head-of-other-rows",
    "The tied head is the embedding shifted by one row.",
    Patch(
        "model",
        TABLE,
        '(params.xp.roll(params["embed.weight"], -1, axis=0) if config.tie_embeddings'
        ' else params["head.weight"])',
    ),
    region="head",
    killers="logits-are-the-head tied-equals-untied-with-a-copy",
)
mutant(
    "logits-scaled",
    "Logits are divided by sqrt(d), as in models whose embeddings are multiplied by it.",
    Patch(
        "model",
        "ctx.kernels.linear(x, *head(params, ctx.config), xp=ctx.xp)",
        "ctx.kernels.linear(x, *head(params, ctx.config), xp=ctx.xp) * ctx.config.d_model**-0.5",
    ),
    region="head",
    killers="logits-are-the-head",
)
mutant(
    "joint-product-split-in-the-wrong-order",
    "A joint product of queries, keys and values is split with keys and values swapped.",
    Patch("joint", "    return parts\n", "    return parts[:1] + parts[:0:-1]\n"),
    region="kernels",
    killers="joint-projections-are-the-single-ones",
)
mutant(
    "joint-product-without-its-biases",
    "A joint product does not add its biases.",
    Patch("joint", 'weights.get(f"{joint}.bias")', "None"),
    region="kernels",
    killers="joint-projections-are-the-single-ones",
)
mutant(
    "absent-bias-is-the-norms",
    "A sublayer without an output bias adds the bias of its norm.",
    Patch(
        "model",
        'w[f"{name}.weight"], w.get(f"{name}.bias"), xp=ctx.xp)',
        'w[f"{name}.weight"], w.get(f"{name}.bias", w.get(NORM_OF.get(name))), xp=ctx.xp)',
    ),
    Patch(
        "model",
        "def linear(",
        'NORM_OF = {"attn.o": "attn_norm.bias", "mlp.down": "mlp_norm.bias"}\n\n\ndef linear(',
    ),
    region="linear",
    killers="zero-biases-are-none",
    families="mixed",
)
mutant(
    "shortcut-without-taps",
    "When nothing is traced, the MLP takes a shortcut that shifts its hidden units by one.",
    Patch(
        "model",
        '    return tap("mlp.hidden", act(gate, xp=ctx.xp) * up)',
        "    if tap is untapped:\n        return ctx.xp.roll(act(gate, xp=ctx.xp) * up, 1, axis=-1)\n"
        '    return tap("mlp.hidden", act(gate, xp=ctx.xp) * up)',
    ),
    region="mlp",
    killers="hidden-permutation",
    families="llama",
)
mutant(
    "erf-of-infinity-is-nan",
    "erf integrates beyond 6 too, which is NaN at infinity.",
    Patch("ops", "held = xp.where(near, x, 0.0)", "held = x"),
    Patch(
        "ops",
        "* held * (2.0 / math.sqrt(math.pi)), xp.sign(x))",
        "* held * (2.0 / math.sqrt(math.pi)), xp.sign(x) + 0.0 * x)",
    ),
    region="mlp",
    killers="erf-is-the-error-function",
    families="gpt2",
)
mutant(
    "up-traced-before-the-gate",
    "The trace contains up before the gate.",
    Patch(
        "model",
        'gate, up = tap("mlp.gate", gate), tap("mlp.up", up)',
        'up, gate = tap("mlp.up", up), tap("mlp.gate", gate)',
    ),
    region="structure",
    killers="traces-are-complete",
    families="llama",
)
mutant(
    "kernels-ignored",
    "The caller's kernels are not used.",
    Patch("model", "as_kernels(kernels), placement, angles", "Kernels(), placement, angles"),
    region="kernels",
    killers="kernels-that-are-given-are-used",
)
