"""The windows of one sentence: what a decoder is trained on, and what it must predict at every position.

The targets are the ids shifted by one. A window of four tokens has four predictions, each from the tokens
of the window up to it.
"""

import show

from tinyxp.text import bpe
from tinyxp.text.windows import cut_windows

SENTENCE = "Birds sing at dawn, and the green valley wakes up."
LENGTH, STRIDE = 4, 2
RANKS, _ = bpe.train(SENTENCE, 1000)  # merged to the end: every word, with the space before it, is one token


def words(ids):
    """Return the text of each id, without the space before it."""
    return [bpe.decode([index], RANKS).strip() for index in ids]


def labels(ids):
    """Format each id after its word."""
    return [f"{word}:{index}" for word, index in zip(words(ids), ids, strict=True)]


def predictions(windows):
    """Yield every prediction of every window: the tokens that it sees, and the next one."""
    for ids, targets in zip(*windows, strict=True):
        for i, target in enumerate(targets):
            yield bpe.decode(ids[: i + 1], RANKS), *words([target])


def coverage(stream, strides):
    """Yield for each stride the number of windows, of targets, and of places that are a target."""
    for stride in strides:
        places = cut_windows(range(len(stream)), LENGTH, stride).targets
        yield stride, len(places), places.size, len(set(places.ravel().tolist()))


def main():
    given = show.arguments(__doc__, quick=False)
    stream = bpe.encode(SENTENCE, RANKS)
    print(f"{len(stream)} tokens: {' '.join(labels(stream))}\n")

    windows = cut_windows(stream, LENGTH, STRIDE)
    print(f"{len(windows.ids)} windows of {LENGTH} tokens, each {STRIDE} further than the one before")
    show.table(
        ["", *(f"position {i}" for i in range(LENGTH))],
        [
            [f"window {w} {kind}", *labels(row)]
            for w, both in enumerate(zip(*windows, strict=True))
            for kind, row in zip(("ids", "targets"), both, strict=True)
        ],
    )
    print("\nThe predictions of window 0")
    for seen, target in list(predictions(windows))[:LENGTH]:
        print(f"  {seen:<18} -> {target}")

    print(f"\nWindows of {LENGTH} by their stride; {len(stream) - 1} tokens have one before them")
    show.table(["stride", "windows", "targets", "different"], list(coverage(stream, (1, STRIDE, LENGTH))))
    draw(given.plot, stream)


def draw(path, stream):
    """Draw each window as two bars below the words: ids, and targets shifted by one."""
    picture, (axes,) = show.figure(size=(9, 3.6))
    windows = cut_windows(range(len(stream)), LENGTH, STRIDE)
    for offset, color, (kind, rows) in zip((0.2, -0.2), ("C0", "C1"), windows._asdict().items(), strict=True):
        starts = [row[0] for row in rows]
        heights = [-w + offset for w in range(len(rows))]
        axes.barh(heights, LENGTH, 0.34, left=starts, color=color, edgecolor="white", label=kind)
        for start, height in zip(starts, heights, strict=True):
            for place, word in enumerate(words(stream[start : start + LENGTH]), start):
                axes.text(place + 0.5, height, word, ha="center", va="center", color="white")
    axes.set_xticks([place + 0.5 for place in range(len(stream))], range(len(stream)))
    axes.set_yticks([-w for w in range(len(windows.ids))], [f"window {w}" for w in range(len(windows.ids))])
    axes.set(xlim=(0, len(stream)), xlabel="place in the sentence", title="Targets are the ids one further")
    axes.legend(frameon=False, loc="lower left")
    show.save(picture, path)


if __name__ == "__main__":
    main()
