"""Overlapping windows, held out one by one, put validation's targets into training; a split stream does not.

With windows of 128 every 32 tokens, a token is the target of four windows. If one of them is held out,
another one is almost certainly trained on, so the loss of the held-out windows measures memory. The stream
must be split before it is cut.
"""

import numpy as np
import show

from tinyxp.text.windows import cut_windows, split_stream

TOKENS, LENGTH, STRIDE = 200_000, 128, 32


def split_after(stream, chosen):
    """Cut the windows, then hold out those that ``chosen`` picks; return the targets of both parts."""
    targets = cut_windows(stream, LENGTH, STRIDE).targets
    held_out = chosen(len(targets))
    return np.delete(targets, held_out, axis=0), targets[held_out]


def split_before(stream):
    """Hold out the last tenth of the stream, then cut the windows of each part."""
    return tuple(cut_windows(part, LENGTH, STRIDE).targets for part in split_stream(stream, 0.1))


def at_random(count):
    return np.random.default_rng(0).permutation(count)[: count // 10]


def every_tenth(count):
    return np.arange(5, count, 10)


def seen(train, held_out):
    """Return the share of held-out targets that are also training targets."""
    return float(np.isin(held_out, train).mean())


def main():
    given = show.arguments(__doc__, quick=False)
    places = np.arange(TOKENS)  # every token is its own place in the stream, and so identifies it
    splits = {
        "a random tenth of the windows": split_after(places, at_random),
        "every tenth window": split_after(places, every_tenth),
        "the stream's last tenth": split_before(places),
    }
    print(f"{TOKENS:,} tokens, windows of {LENGTH} every {STRIDE}")
    show.table(
        ["held out", "windows", "of them held out", "held-out targets", "seen in training"],
        [
            [
                name,
                f"{len(train) + len(held_out):,}",
                len(held_out),
                f"{held_out.size:,}",
                f"{seen(train, held_out):.1%}",
            ]
            for name, (train, held_out) in splits.items()
        ],
    )
    draw(given.plot, splits)


def draw(path, splits):
    """Draw the windows around the split of the stream, four rows of each part."""
    made, axes = show.figure(len(splits), size=(14, 3.6))
    low, high = 0.9 * TOKENS - 640, 0.9 * TOKENS + 640
    for each, (name, parts) in zip(axes, splits.items(), strict=True):
        for targets, label, height, color in zip(
            parts, ("training", "held out"), (1, 0), ("C0", "C1"), strict=True
        ):
            firsts = targets[(targets[:, 0] > low) & (targets[:, -1] < high), 0]
            lanes = height + 0.2 * (firsts // STRIDE % (LENGTH // STRIDE))
            each.hlines(lanes, firsts, firsts + LENGTH - 8, color, linewidth=4, label=label)
        each.set(
            title=f"{name}: {seen(*parts):.1%} seen",
            yticks=[],
            xlabel="place in the stream",
            ylim=(-0.2, 2.3),
        )
        each.ticklabel_format(style="plain", useOffset=False)
        each.tick_params("x", labelrotation=20)
        each.legend(loc="upper left", ncols=2, frameon=False)
    show.save(made, path)


if __name__ == "__main__":
    main()
