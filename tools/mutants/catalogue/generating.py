"""Mutants of generation: what is fed back, what ends a row, and what the caller gets."""

from ..mutant_registry import Patch, mutant

YIELDED = "        yield np.where(ended, run.pad, new)\n"
ENDED = "        ended |= np.isin(new, run.eos)\n"

mutant(
    "seed-again-at-each-step",
    "The streams of random numbers restart at each step.",
    Patch(
        "generation",
        "ended[:, None], 0.0, logits), streams)",
        "ended[:, None], 0.0, logits), sampler.streams(b))",
    ),
    region="generation",
    killers="a-seed-means-the-same-everywhere",
)
mutant(
    "step-feeds-the-prompt",
    "The cached step feeds the last id of the prompt, not the new one.",
    Patch("generation", "decoder(new[:, None])", "decoder(run.ids[:, -1:])"),
    region="generation",
    killers="greedy-is-forward-again-and-again generation-without-a-cache",
)
mutant(
    "eos-kept-out",
    "The id that ends a row is not returned.",
    Patch("generation", YIELDED + ENDED, ENDED + YIELDED),
    region="generation",
    killers="rows-end-one-by-one",
)
mutant(
    "rows-do-not-end",
    "A row continues after its end until all rows end at the same step.",
    Patch("generation", ENDED, "        ended = np.isin(new, run.eos)\n"),
    region="generation",
    killers="rows-end-one-by-one",
)
mutant(
    "first-end-ends-all",
    "Generation stops when the first row ends.",
    Patch("generation", "if ended.all():", "if ended.any():"),
    region="generation",
    killers="rows-end-one-by-one",
)
mutant(
    "generation-runs-on",
    "Generation does not stop when all rows have ended.",
    Patch("generation", "if ended.all():", "if False:"),
    region="generation",
    killers="rows-end-one-by-one",
)
mutant(
    "first-eos-alone",
    "Only the first of several eos ids ends a row.",
    Patch("generation", "np.isin(new, run.eos)", "np.isin(new, run.eos[:1])"),
    region="generation",
    killers="rows-end-one-by-one",
)
mutant(
    "pad-is-0",
    "Rows that have ended are filled with 0, not with pad.",
    Patch("generation", "np.where(ended, run.pad, new)", "np.where(ended, 0, new)", count=2),
    region="generation",
    killers="rows-end-one-by-one",
)
mutant(
    "one-token-fewer",
    "Generation returns one token fewer than max_new_tokens.",
    Patch("generation", "range(run.max_new_tokens)", "range(run.max_new_tokens - 1)"),
    region="generation",
    killers="greedy-is-forward-again-and-again",
)
mutant(
    "prompt-returned",
    "The prompt is returned before the new ids.",
    Patch(
        "generation",
        "np.stack(steps, axis=1) if steps else run.ids[:, :0]",
        "np.concatenate([run.ids, *(step[:, None] for step in steps)], axis=1)",
    ),
    region="generation",
    killers="greedy-is-forward-again-and-again",
)
mutant(
    "vocabulary-limit-ignored",
    "Ids of vocab_size or more are chosen.",
    Patch("generation", "logits[:, : run.vocab_size]", "logits"),
    region="generation",
    killers="greedy-is-forward-again-and-again a-seed-means-the-same-everywhere",
)
mutant(
    "prompt-mask-ignored",
    "The prompt's mask is not passed on: its padding is read as text.",
    Patch("generation", "decoder(run.ids, None if run.mask.all() else run.mask)", "decoder(run.ids)"),
    region="generation",
    killers="padded-rows-go-on-as-alone",
)
mutant(
    "whole-pass-without-mask",
    "Without a cache, rows of other lengths are padded and the padding is read as text.",
    Patch("generation", "decoder(ids, None if mask.all() else mask)", "decoder(ids)"),
    region="generation",
    killers="generation-without-a-cache",
)
mutant(
    "window-off-by-one",
    "The sliding window contains one id fewer than max_seq_len.",
    Patch("generation", "row[-run.window :]", "row[1 - run.window :]"),
    region="generation",
    killers="sliding-sees-the-last-ids",
)
mutant(
    "window-does-not-slide",
    "overflow='slide' has no window.",
    Patch("generation", 'config.max_seq_len if overflow == "slide" else None', "None"),
    region="generation",
    killers="sliding-sees-the-last-ids",
)
mutant(
    "last-piece-of-a-long-prompt-alone",
    "Logits after a long prompt come from its last piece, also for rows that end before that.",
    Patch(
        "decoding",
        "logits = np.where(real.any(axis=1, keepdims=True), after, logits)",
        "logits = after",
    ),
    region="generation",
    killers="long-prompts-and-long-texts",
)
mutant(
    "cache-forgets-as-it-grows",
    "A lengthened cache treats its oldest slots as empty.",
    Patch("decoding", "concat((cache.real, spare.real), axis=1)", "concat((spare.real, cache.real), axis=1)"),
    region="generation",
    killers="long-prompts-and-long-texts",
)
mutant(
    "decoder-sees-one-slot-too-few",
    "The in-place decoder does not mark the last used slot as real: a step does not see the previous token.",
    Patch(
        "decoding",
        "whole.real[:, :end] = after.real",
        "whole.real[:, : end - 1] = after.real[:, :-1]",
    ),
    region="generation",
    killers="greedy-is-forward-again-and-again generation-without-a-cache long-prompts-and-long-texts",
)
mutant(
    "decoder-forgets-what-was-padding",
    "The in-place decoder marks every used slot as real.",
    Patch("decoding", "whole.real[:, :end] = after.real", "whole.real[:, :end] = True"),
    region="generation",
    killers="padded-rows-go-on-as-alone",
)
mutant(
    "eos-unchecked",
    "An eos outside the vocabulary is accepted, and never occurs.",
    Patch("generation", 'as_integer("eos", end, low=0, high=n)', "end"),
    region="generation",
    killers="bad-arguments-of-generate-are-named",
)
