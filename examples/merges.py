"""Byte-pair encoding learns four merges from five words: each chosen pair, and those it beat.

At every step the most common pair of adjacent tokens becomes one token; among equals, the one with the lowest
ids. Pairs never cross the chunks of the text: each word with the space before it.
"""

import show

from tinyxp.text import bpe

TEXT = "sing sing sings song sang"
MERGES = 4
SHOWN = 4
"""Pairs of each step that are shown."""


def learn():
    """Return for each merge the chosen pair, all pairs by their counts, and the text's tokens afterwards."""
    trained = bpe.train(TEXT, 256 + MERGES)
    ids = dict(trained.ranks)
    for step, merge in enumerate(trained.merges):
        before = {token: rank for token, rank in ids.items() if rank < 256 + step}
        after = {token: rank for token, rank in ids.items() if rank <= 256 + step}
        counts = bpe.pair_counts(TEXT, before)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], *(before[token] for token in item[0])))
        yield merge, ranked, pieces(after)


def pieces(ranks):
    """The text's tokens as text, under the vocabulary ``ranks``."""
    return [bpe.decode([index], ranks) for index in bpe.encode(TEXT, ranks)]


def spell(pair):
    """Format (b" s", b"ing") as "_s + ing", with spaces as underscores."""
    return " + ".join(token.decode().replace(" ", "_") for token in pair)


def main():
    given = show.arguments(__doc__, quick=False)
    steps = list(learn())
    start = pieces({bytes([byte]): byte for byte in range(256)})
    print(f"{TEXT!r}: {len(start)} bytes; spaces are shown as _")
    rows = []
    for number, (merge, ranked, after) in enumerate(steps, 1):
        (winner, count), *others = ranked[:SHOWN]
        assert (winner, count) == (merge[:2], merge.count)
        beaten = [f"{spell(pair)} {times}" for pair, times in others]
        rows.append([f"{number}: {spell(winner)}", 255 + number, count, *beaten, len(after)])
    runners_up = [f"{place}." for place in range(2, SHOWN + 1)]
    show.table(["merge", "id", "count", *runners_up, "tokens left"], rows)
    print("\nin the end:", " ".join(piece.replace(" ", "_") for piece in steps[-1][2]))
    draw(given.plot, steps)


def draw(path, steps):
    """Draw the most common pairs of each step, the chosen one dark."""
    picture, axes = show.figure(len(steps), size=(12, 3.4))
    for number, (each, (_, ranked, _)) in enumerate(zip(axes, steps, strict=True), 1):
        shown = ranked[:SHOWN]
        colors = ["C0"] + ["#b8cfe5"] * (len(shown) - 1)
        bars = each.barh([spell(pair) for pair, _ in shown], [count for _, count in shown], color=colors)
        each.bar_label(bars, padding=3)
        each.invert_yaxis()
        each.set(title=f"merge {number}", xlim=(0, 6), xticks=[])
    show.save(picture, path)


if __name__ == "__main__":
    main()
