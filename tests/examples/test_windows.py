"""windows: a sentence of twelve tokens in windows of four, and the targets one further."""

from __future__ import annotations

import numpy as np


def test_windows_are_shown(example, is_png) -> None:
    shown = example("windows")
    lines = [" ".join(line.split()) for line in shown.lines]
    assert lines[0].startswith("12 tokens: Birds:")
    assert "4 windows of 4 tokens, each 2 further than the one before" in lines
    assert [line.split(" ", 3)[2] for line in lines if line.startswith("window ")] == ["ids", "targets"] * 4
    start = lines.index("The predictions of window 0") + 1
    assert lines[start : start + 4] == [
        "Birds -> sing",
        "Birds sing -> at",
        "Birds sing at -> dawn",
        "Birds sing at dawn -> ,",
    ]
    start = lines.index("stride windows targets different") + 1
    assert lines[start : start + 3] == ["1 8 32 11", "2 4 16 10", "4 2 8 8"]
    assert is_png(shown.picture)


def test_targets_are_the_ids_one_further(example) -> None:
    found = example("windows").globals
    stream = found["bpe"].encode(found["SENTENCE"], found["RANKS"])
    windows = found["cut_windows"](stream, found["LENGTH"], found["STRIDE"])
    assert windows.ids.shape == windows.targets.shape == (4, 4)
    assert np.array_equal(windows.ids[:, 1:], windows.targets[:, :-1])
    assert windows.ids[:, 0].tolist() == stream[0:8:2]
    assert found["words"](windows.targets[:, -1].tolist()) == [",", "the", "valley", "up"]
    assert len(list(found["predictions"](windows))) == 16
