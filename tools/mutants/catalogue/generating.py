"""Mutants of generation: what is fed back, what ends a row, and what the caller gets."""

from ..mutant_registry import Patch, mutant

YIELDED = "        yield np.where(ended, run.pad, new)\n"
ENDED = "        ended |= np.isin(new, run.eos)\n"

mutant(
    "seed-again-at-each-step",
    "The streams of random numbers begin again at each step.",
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
    "The id that ends a row is not part of what is returned.",
    Patch("generation", YIELDED + ENDED, ENDED + YIELDED),
    region="generation",
    killers="rows-end-one-by-one",
)
mutant(
    "rows-do-not-end",
    "A row goes on after its end, until all rows end at the same step.",
    Patch("generation", ENDED, "        ended = np.isin(new, run.eos)\n"),
    region="generation",
    killers="rows-end-one-by-one",
)
mutant(
    "first-end-ends-all",
    "The generation stops with the first row that ends.",
    Patch("generation", "if ended.all():", "if ended.any():"),
    region="generation",
    killers="rows-end-one-by-one",
)
mutant(
    "generation-runs-on",
    "The generation does not stop when all rows have ended.",
    Patch("generation", "if ended.all():", "if False:"),
    region="generation",
    killers="rows-end-one-by-one",
)
mutant(
    "first-eos-alone",
    "Of several ids that end a row only the first does.",
    Patch("generation", "np.isin(new, run.eos)", "np.isin(new, run.eos[:1])"),
    region="generation",
    killers="rows-end-one-by-one",
)
mutant(
    "pad-is-0",
    "Rows that have ended are filled with 0, whatever pad is.",
    Patch("generation", "np.where(ended, run.pad, new)", "np.where(ended, 0, new)", count=2),
    region="generation",
    killers="rows-end-one-by-one",
)
mutant(
    "one-token-fewer",
    "The first new token is not counted: max_new_tokens are one fewer.",
    Patch("generation", "range(run.max_new_tokens)", "range(run.max_new_tokens - 1)"),
    region="generation",
    killers="greedy-is-forward-again-and-again",
)
mutant(
    "prompt-returned",
    "The prompt stands before the new ids.",
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
    "Ids of vocab_size and more are chosen.",
    Patch("generation", "logits[:, : run.vocab_size]", "logits"),
    region="generation",
    killers="greedy-is-forward-again-and-again a-seed-means-the-same-everywhere",
)
mutant(
    "prompt-mask-ignored",
    "The mask of the prompt is not handed on: its padding is read as text.",
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
    "The window that slides holds one id fewer than max_seq_len.",
    Patch("generation", "row[-run.window :]", "row[1 - run.window :]"),
    region="generation",
    killers="sliding-sees-the-last-ids",
)
mutant(
    "window-does-not-slide",
    "overflow='slide' goes on like 'raise'.",
    Patch("generation", 'config.max_seq_len if overflow == "slide" else None', "None"),
    region="generation",
    killers="sliding-sees-the-last-ids",
)
mutant(
    "last-piece-of-a-long-prompt-alone",
    "A long prompt is read in pieces, and the last piece is asked for logits in rows that end before it.",
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
    "A cache that is lengthened takes its oldest slots for empty ones.",
    Patch("decoding", "concat((cache.real, spare.real), axis=1)", "concat((spare.real, cache.real), axis=1)"),
    region="generation",
    killers="long-prompts-and-long-texts",
)
mutant(
    "decoder-sees-one-slot-too-few",
    "The decoder that writes in place does not note that the last slot in use is real: a step does not see "
    "the token before its own.",
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
    "The decoder that writes in place takes every slot in use for real.",
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
