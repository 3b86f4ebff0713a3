"""Mutants of the choice of a token: greedy, temperature, top-k, top-p, and the draw."""

from ..mutant_registry import Patch, mutant

BEST = "best: Array = xp.argmax(logits, axis=-1)"
TEMPERED = "wide = (wide - xp.max(wide, axis=-1, keepdims=True)) / temperature"
CHOSEN = "    return softmax(wide, visible=visible, xp=xp)"
TOP_K = "visible = rank < (wide.shape[-1] if top_k is None else top_k)"
MASS = "mass_before = xp.cumulative_sum(descending, axis=-1) - descending"

mutant(
    "greedy-takes-the-highest-id-of-equals",
    "Of equal logits the last is taken.",
    Patch(
        "sampling", BEST, "best: Array = logits.shape[-1] - 1 - xp.argmax(xp.flip(logits, axis=-1), axis=-1)"
    ),
    region="sampling",
    killers="greedy-is-the-argmax-of-each-row",
)
mutant(
    "greedy-of-the-flat-array",
    "argmax has no axis: it counts through the whole batch.",
    Patch("sampling", BEST, "best: Array = xp.argmax(logits) + xp.zeros(logits.shape[:1], dtype=xp.int64)"),
    region="sampling",
    killers="greedy-is-the-argmax-of-each-row",
)
mutant(
    "greedy-draws",
    "Temperature 0 draws at temperature 1.",
    Patch("sampling", "if self.temperature == 0.0:", "if False:"),
    Patch("sampling", "temperature=self.temperature,", "temperature=self.temperature or 1.0,"),
    region="sampling",
    killers="temperature-0-is-greedy",
)
mutant(
    "always-greedy",
    "The likeliest token is taken at every temperature.",
    Patch("sampling", "if self.temperature == 0.0:", "if True:"),
    region="sampling",
    killers="a-seed-decides-every-draw frequencies-match-probabilities",
)
mutant(
    "temperature-multiplied",
    "Logits are multiplied by the temperature.",
    Patch("sampling", TEMPERED, TEMPERED.replace("/ temp", "* temp")),
    region="sampling",
    killers="temperature-divides-logits known-distributions",
)
mutant(
    "temperature-last",
    "Temperature comes after top-p, which keeps what it would at temperature 1.",
    Patch("sampling", TEMPERED, TEMPERED.removesuffix(" / temperature")),
    Patch("sampling", CHOSEN, "    return softmax(wide / temperature, visible=visible, xp=xp)"),
    region="sampling",
    killers="truncation-is-exact",
)
mutant(
    "top-k-one-too-many",
    "Top-k keeps k + 1 tokens.",
    Patch("sampling", TOP_K, TOP_K.replace("rank <", "rank <=")),
    region="sampling",
    killers="truncation-is-exact known-distributions limits-that-leave-the-greedy-id",
)
mutant(
    "top-k-keeps-equals",
    "Top-k keeps every token that equals the k-th.",
    Patch(
        "sampling",
        TOP_K,
        f"{TOP_K}\n        visible = wide >= xp.min(xp.where(visible, wide, 0.0), axis=-1, keepdims=True)",
    ),
    region="sampling",
    killers="of-equals-the-lower-ids-stay truncation-is-exact",
)
mutant(
    "top-p-beyond-its-boundary",
    "Top-p keeps one more token when the mass equals p exactly.",
    Patch("sampling", "< top_p - TIE", "<= top_p + TIE"),
    region="sampling",
    killers="known-distributions truncation-is-exact",
)
mutant(
    "top-p-without-the-crossing-token",
    "Top-p drops the token with which the mass reaches p.",
    Patch("sampling", MASS, "mass_before = xp.cumulative_sum(descending, axis=-1)"),
    region="sampling",
    killers="known-distributions truncation-is-exact",
)
mutant(
    "top-p-may-keep-none",
    "Top-p does not always keep the likeliest token: p = 0 keeps none.",
    Patch("sampling", "visible & (within | (rank == 0))", "visible & within"),
    region="sampling",
    killers="limits-that-leave-the-greedy-id probabilities-are-a-distribution known-distributions",
)
mutant(
    "top-p-of-all-tokens",
    "Top-p counts the mass of all tokens, not of those that top-k kept.",
    Patch("sampling", "softmax(wide, visible=visible, xp=xp), order", "softmax(wide, xp=xp), order"),
    region="sampling",
    killers="truncation-is-exact",
)
mutant(
    "top-p-not-unsorted",
    "Ranks are the sorting order itself, not its inverse.",
    Patch("sampling", "rank = xp.argsort(order, axis=-1)", "rank = order"),
    region="sampling",
    killers="truncation-is-exact known-distributions",
)
mutant(
    "least-likely-first",
    "Tokens are sorted from the least likely on.",
    Patch("sampling", "xp.argsort(-wide, axis=-1, stable=True)", "xp.argsort(wide, axis=-1, stable=True)"),
    region="sampling",
    killers="truncation-is-exact known-distributions",
)
mutant(
    "kept-tokens-not-rescaled",
    "The probabilities of the tokens that are kept do not add up to 1.",
    Patch(
        "sampling",
        CHOSEN,
        "    p = softmax(wide, xp=xp)\n    return p if visible is None else xp.where(visible, p, 0.0)",
    ),
    region="sampling",
    killers="probabilities-are-a-distribution known-distributions",
)
mutant(
    "draw-at-the-boundary",
    "A uniform equal to the cumulative mass takes the token below, even one of probability 0.",
    Patch("sampling", "likely & (mass > target)", "mass >= target"),
    region="sampling",
    killers="draw-inverts-the-distribution draw-never-takes-what-has-no-probability",
)
mutant(
    "draw-from-the-top",
    "The cumulative mass is counted from the last id.",
    Patch("sampling", "target = uniforms[..., None]", "target = (1.0 - uniforms[..., None])"),
    region="sampling",
    killers="draw-inverts-the-distribution a-seed-decides-every-draw",
)
mutant(
    "seed-of-all-rows",
    "All rows draw the same uniforms.",
    Patch("sampling", "[self.seed, row]", "[self.seed, 0]"),
    region="sampling",
    killers="a-seed-decides-every-draw",
)
mutant(
    "seed-ignored",
    "The seed is not used.",
    Patch("sampling", "None if self.seed is None else [self.seed, row]", "None"),
    region="sampling",
    killers="a-seed-decides-every-draw",
)
mutant(
    "no-seed-is-seed-0",
    "Without a seed every generation draws the uniforms of seed 0.",
    Patch("sampling", "None if self.seed is None else [self.seed, row]", "[self.seed or 0, row]"),
    region="sampling",
    killers="no-seed-is-a-new-one",
)
mutant(
    "top-p-above-1-accepted",
    "A top_p above 1 is accepted.",
    Patch("sampling", "not 0.0 <= self.top_p <= 1.0", "not 0.0 <= self.top_p"),
    region="sampling",
    killers="bad-settings-are-named",
)
mutant(
    "top-p-1-truncates",
    "top_p 1 is applied like any other: rounding drops the least likely ids.",
    Patch("sampling", "if top_p is not None and top_p >= 1.0:", "if False:"),
    region="sampling",
    killers="limits-that-leave-all",
)
mutant(
    "probabilities-in-half-precision",
    "Temperature and top-p are applied in the dtype of the logits.",
    Patch("sampling", "    wide = widen(logits, xp=xp)\n", "    wide = logits\n"),
    region="sampling",
    killers="half-precision-is-widened",
)
