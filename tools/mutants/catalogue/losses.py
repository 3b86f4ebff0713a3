"""Mutants of the loss, of initial weights and of parameter counts."""

from ..mutant_registry import Patch, mutant

START = "    wide = widen(logits, xp=xp)\n    counted"
MEAN = "mean: Array = xp.sum(losses) / xp.where(count > 0.0, count, 1.0)"
COUNT = "count = xp.sum(xp.astype(counted, wide.dtype))"
COUNTED = "counted = xp.not_equal(targets, IGNORED)"

mutant(
    "loss-shifts-targets",
    "The loss shifts its targets by one, which the caller has done already.",
    Patch("ops", START, "    logits, targets = logits[:, :-1, :], targets[:, 1:]\n" + START),
    region="loss",
    killers="cross-entropy-is-the-mean-surprise loss-is-cross-entropy",
)
mutant(
    "loss-counts-what-is-ignored",
    "Targets of -100 are counted, as id 0.",
    Patch(
        "ops",
        "    below_top =",
        "    targets = xp.where(counted, targets, 0)\n    counted = targets >= 0\n    below_top =",
    ),
    region="loss",
    killers="cross-entropy-is-the-mean-surprise left-out-targets-move-nothing loss-is-cross-entropy",
)
mutant(
    "loss-ignores-id-0",
    "Targets of id 0 are ignored as padding.",
    Patch("ops", COUNTED, COUNTED + " & xp.not_equal(targets, 0)"),
    region="loss",
    killers="cross-entropy-is-the-mean-surprise loss-is-cross-entropy",
)
mutant(
    "loss-over-all-targets",
    "The sum is divided by the number of all targets, including ignored ones.",
    Patch("ops", COUNT, "count = xp.sum(xp.ones_like(losses))"),
    region="loss",
    killers="cross-entropy-is-the-mean-surprise pieces-weigh-by-their-targets loss-is-cross-entropy",
)
mutant(
    "loss-of-rows-first",
    "The loss is the mean of the rows' means: tokens of short rows weigh more.",
    Patch("ops", COUNT, "count = xp.sum(xp.astype(counted, wide.dtype), axis=-1)"),
    Patch("ops", MEAN, "mean: Array = xp.mean(xp.sum(losses, axis=-1) / xp.where(count > 0.0, count, 1.0))"),
    region="loss",
    killers="cross-entropy-is-the-mean-surprise pieces-weigh-by-their-targets loss-is-cross-entropy",
)
mutant(
    "loss-summed",
    "The loss is the sum over targets, not the mean.",
    Patch("ops", MEAN, "mean: Array = xp.sum(losses)"),
    region="loss",
    killers="cross-entropy-is-the-mean-surprise cross-entropy-of-equals-is-ln-n loss-is-cross-entropy",
)
mutant(
    "loss-in-bits",
    "The loss is in bits, not in nats.",
    Patch("ops", MEAN, MEAN + " / math.log(2.0)"),
    region="loss",
    killers="cross-entropy-is-the-mean-surprise cross-entropy-of-equals-is-ln-n loss-is-cross-entropy",
)
mutant(
    "loss-unshifted",
    "logsumexp does not subtract the largest logit before it exponentiates.",
    Patch("ops", "below_top = wide - xp.max(wide, axis=-1, keepdims=True)", "below_top = wide"),
    region="loss",
    killers="cross-entropy-ignores-a-constant",
)
mutant(
    "loss-nan-of-nothing",
    "Without any target the loss is 0 / 0.",
    Patch("ops", MEAN, "mean: Array = xp.sum(losses) / count"),
    region="loss",
    killers="left-out-targets-move-nothing",
)
mutant(
    "loss-of-probabilities",
    "Softmax is applied twice: the loss receives probabilities instead of logits.",
    Patch("ops", START, "    logits = softmax(logits, xp=xp)\n" + START),
    region="loss",
    killers="cross-entropy-is-the-mean-surprise cross-entropy-of-a-sure-guess loss-is-cross-entropy",
)
mutant(
    "init-residual-not-scaled",
    "Matrices that write into the residual stream are initialised as large as the others.",
    Patch("initialization", "residual_std if writes_residual else INIT_STD", "INIT_STD"),
    region="initialisation",
    killers="initial-values initial-stream-keeps-its-size",
)
mutant(
    "init-residual-by-layers",
    "Matrices that write into the residual stream are scaled by 1 / sqrt(L), although each layer has two.",
    Patch("initialization", "math.sqrt(2 * config.n_layers)", "math.sqrt(config.n_layers)"),
    region="initialisation",
    killers="initial-values",
)
mutant(
    "init-biases-drawn",
    "Biases are initialised randomly.",
    Patch(
        "initialization",
        "host = np.zeros(shape)",
        "host = np.random.default_rng(0).normal(0.0, INIT_STD, shape)",
    ),
    region="initialisation",
    killers="initial-values",
)
mutant(
    "init-norms-0",
    "Norm weights are initialised to 0.",
    Patch("initialization", "host = np.ones(shape)", "host = np.zeros(shape)"),
    region="initialisation",
    killers="initial-values",
)
mutant(
    "init-by-width",
    "Matrices are initialised with standard deviation 1 / sqrt(in), as in PyTorch.",
    Patch("initialization", "else INIT_STD, shape)", "else shape[1] ** -0.5, shape)"),
    region="initialisation",
    killers="initial-values loss-at-initialisation",
)
mutant(
    "init-uniform",
    "Matrices are drawn from a uniform distribution of the same variance.",
    Patch(
        "initialization",
        "rng.normal(0.0, residual_std if writes_residual else INIT_STD, shape)",
        "(residual_std if writes_residual else INIT_STD) * rng.uniform(-(3.0**0.5), 3.0**0.5, shape)",
    ),
    region="initialisation",
    killers="initial-values initial-values-are-the-same-everywhere",
)
mutant(
    "count-of-tied-head",
    "A tied head is counted twice.",
    Patch("shapes", "d * (not c.tie_embeddings)", "d"),
    region="counts",
    killers="counts-are-sums-over-shapes known-counts",
)
mutant(
    "count-without-grouping",
    "Key/value heads are counted as if there were as many as query heads.",
    Patch("shapes", "2 * d * (q_width + kv_width)", "4 * d * q_width"),
    region="counts",
    killers="counts-are-sums-over-shapes known-counts",
    families="llama",
)
mutant(
    "count-without-biases",
    "Biases of attention and MLP are not counted.",
    Patch("shapes", "    attention += (q_width + 2 * kv_width) * c.attn_bias + d * c.attn_out_bias\n", ""),
    Patch("shapes", " + (inputs * c.d_ff + d) * c.mlp_bias", ""),
    region="counts",
    killers="counts-are-sums-over-shapes known-counts",
)
mutant(
    "count-without-final-norm",
    "The norm before the head is not counted.",
    Patch("shapes", "(2 * c.n_layers + 1) * d", "2 * c.n_layers * d"),
    region="counts",
    killers="counts-are-sums-over-shapes known-counts",
)
mutant(
    "count-without-positions",
    "Learned positions are not counted.",
    Patch("shapes", 'c.max_seq_len * d * (c.position == "learned")', "0"),
    region="counts",
    killers="transformers-counts-as-many counts-are-sums-over-shapes known-counts",
    families="gpt2",
)
