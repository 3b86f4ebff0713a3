"""The loss before any training: ln V + s^2 / 2, where s is the standard deviation of the logits.

The final norm returns rows of length sqrt(d). A head of independent weights with standard deviation sigma
then gives normal logits with s = sigma sqrt(d). The mean over all V targets of logsumexp(l) - l is ln V +
s^2 / 2, if V numbers are enough to estimate the mean of exp(l).
"""

import dataclasses
import math

import numpy as np
import show

import tinyxp

SMALL = dataclasses.replace(
    tinyxp.Config.preset("gpt2-untied"),
    vocab_size=2000,
    n_layers=2,
    d_model=64,
    n_heads=4,
    n_kv_heads=4,
    head_dim=16,
    d_ff=256,
    max_seq_len=64,
)
SIGMA = 0.02
SCALES = (1, 5, 25, 50)


def predicted(vocab_size, s):
    """Return ln V + s^2 / 2, which no mean of the loss over models exceeds (Jensen)."""
    return math.log(vocab_size) + s**2 / 2


def bound(vocab_size, s):
    """Return a tighter bound: s sqrt(2 ln V) from s = sqrt(2 ln V) on, about the largest of V logits."""
    top = math.sqrt(2 * math.log(vocab_size))
    return predicted(vocab_size, s) if s < top else s * top


def measured(params, positions, seed=0):
    """The mean over all V targets of logsumexp(l) - l, in nats, at each of ``positions`` random ids."""
    n = params.config.vocab_size
    ids = np.random.default_rng(seed).integers(0, n, (1, positions))
    logits = np.asarray(tinyxp.forward(params, ids)[0], dtype=np.float64)
    return np.logaddexp.reduce(logits, axis=-1) - logits.mean(axis=-1)


def with_head_times(params, scale):
    """Multiply the head's weights by ``scale``."""
    return tinyxp.Params({**params, "head.weight": params["head.weight"] * np.float32(scale)}, params.config)


def main():
    given = show.arguments(__doc__)
    gpt2 = tinyxp.Config.preset("gpt2")
    s = SIGMA * math.sqrt(gpt2.d_model)
    losses = measured(tinyxp.init(gpt2), 8 if given.quick else 64)
    print(f"GPT-2 small, random weights: all {gpt2.vocab_size:,} targets at {len(losses)} positions")
    show.table(
        ["ln V", "s^2/2", "predicted", "measured"],
        [
            [
                f"{x:.4f}"
                for x in (math.log(gpt2.vocab_size), s**2 / 2, predicted(gpt2.vocab_size, s), losses.mean())
            ]
        ],
    )

    n, unit = SMALL.vocab_size, SIGMA * math.sqrt(SMALL.d_model)
    params, rows = tinyxp.init(SMALL), []
    for scale in SCALES:
        losses = measured(with_head_times(params, scale), SMALL.max_seq_len)
        s = scale * unit
        rows.append([scale, s, predicted(n, s), bound(n, s), losses.mean(), losses.std()])
    print(f"\nV {n}, d {SMALL.d_model}, {SMALL.max_seq_len} positions, the head's weights times `scale`")
    show.table(
        ["scale", "s", "ln V + s^2/2", "bound", "measured", "spread"],
        [[scale, *(f"{x:.2f}" for x in row)] for scale, *row in rows],
    )
    top = math.sqrt(2 * math.log(n))
    print(
        f"\nThe formula needs logits near s^2, where the mean of exp(l) comes from. Of {n} the largest is"
        f"\ns sqrt(2 ln V) = {top:.1f} s or so, and past s = {top:.1f} there are none: the few largest are"
        "\nthe loss, which then grows with s rather than s^2, and varies from position to position."
    )
    draw(given.plot, params, rows)


def draw(path, params, rows):
    n = params.config.vocab_size
    made, (axes,) = show.figure()
    s = np.linspace(0.0, 1.05 * rows[-1][1], 200)
    axes.plot(s, [predicted(n, x) for x in s], "--", label="ln V + s²/2")
    axes.plot(s, [bound(n, x) for x in s], label="from s = √(2 ln V) on: s √(2 ln V)")
    at, means, spreads = ([row[i] for row in rows] for i in (1, 4, 5))
    axes.errorbar(at, means, spreads, fmt="o", color="black", capsize=3, label="measured, ± spread")
    axes.set(
        xlabel="s, standard deviation of the logits",
        ylabel="first loss, nats",
        title=f"The first loss, V {n}",
    )
    axes.legend()
    show.save(made, path)


if __name__ == "__main__":
    main()
