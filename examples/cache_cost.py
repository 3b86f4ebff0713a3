"""What a token costs at each position, with the key/value cache and without, on NumPy.

Without a cache, the step at position p runs all p tokens again, and a text of n tokens costs about n^2 / 2
token passes. With a cache it runs the new token only; what still grows is attention's share, p keys.
"""

import time
from itertools import pairwise

import numpy as np
import show

import tinyxp

CONFIG = tinyxp.Config(
    vocab_size=512, n_layers=4, d_model=128, n_heads=4, n_kv_heads=4, d_ff=384, max_seq_len=1024
)
POSITIONS = (16, 32, 64, 128, 256, 512, 1024)


def prompt(length):
    return np.random.default_rng(0).integers(0, CONFIG.vocab_size, (1, length))


def step_seconds(params, position, *, cache, repeats):
    """The median time of the step that runs the token at ``position``, counted from 1.

    Without a cache that is any step of so long a prompt; with one it is the step after a prompt one shorter.
    """
    ids = prompt(position - cache)
    times = []
    for _ in range(repeats):
        steps = tinyxp.stream(params, ids, 1 + cache, cache=cache)
        clock = [time.perf_counter()] + [time.perf_counter() for _ in steps]
        before, after = list(pairwise(clock))[-1]
        times.append(after - before)
    return float(np.median(times))


def multiplications(config, position, *, cache):
    """Count the multiplications of the step: weights of each token run, q with k, weights with v."""
    counts = tinyxp.count_parameters(config)
    run = 1 if cache else position
    per_layer = 2 * config.n_heads * config.head_dim * run * position
    return run * (counts["attention"] + counts["mlp"]) + counts["head"] + config.n_layers * per_layer


def main():
    given = show.arguments(__doc__)
    positions, repeats = (POSITIONS[:-1], 3) if given.quick else (POSITIONS, 7)
    params = tinyxp.init(CONFIG)
    same = np.array_equal(*(tinyxp.generate(params, prompt(8), 24, cache=cache) for cache in (True, False)))
    print(f"The two write the same 24 tokens: {same}\n")

    rows, seconds = [], {}
    for position in positions:
        cached, whole = (
            step_seconds(params, position, cache=cache, repeats=repeats) for cache in (True, False)
        )
        seconds[position] = cached, whole
        work = multiplications(CONFIG, position, cache=False) / multiplications(CONFIG, position, cache=True)
        grown = [now / first for now, first in zip(seconds[position], seconds[positions[0]], strict=True)]
        rows.append(
            [position, f"{1e3 * cached:.2f}", f"{1e3 * whole:.2f}"]
            + [f"{ratio:.1f}" for ratio in (*grown, whole / cached, work)]
        )
    print(f"One token, {CONFIG.n_layers} layers of width {CONFIG.d_model}, batch 1, medians of {repeats}")
    show.table(
        [
            "position",
            "cache, ms",
            "none, ms",
            "cache, of first",
            "none, of first",
            "none / cache",
            "by counting",
        ],
        rows,
    )
    print(
        "\nBy counting multiplications the ratio is larger. But a step with the cache multiplies its matrices"
        "\nby one row, which takes as long as reading them, and Python takes time too."
    )
    draw(given.plot, seconds)


def draw(path, seconds):
    made, (axes,) = show.figure()
    positions = list(seconds)
    for label, column in zip(("with the cache", "without"), zip(*seconds.values(), strict=True), strict=True):
        axes.plot(positions, [1e3 * x for x in column], "o-", label=label)
    axes.set(xscale="log", yscale="log", xlabel="position, in tokens", ylabel="ms per token")
    axes.set_xticks(positions, [str(position) for position in positions])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_title("The time of one more token")
    axes.legend()
    show.save(made, path)


if __name__ == "__main__":
    main()
