"""Which targets are seen in training, by how validation is held out."""

import numpy as np

from tinyxp.text.windows import cut_windows

NAMES = ("a random tenth", "every tenth", "last tenth")


def test_script(example, is_png):
    split_leak = example("split_leak")
    lines = split_leak.lines
    shares = {name: float(line.split()[-1].rstrip("%")) for line in lines for name in NAMES if name in line}
    assert 99.5 < shares["a random tenth"] < 100
    assert (shares["every tenth"], shares["last tenth"]) == (100.0, 0.0)
    assert is_png(split_leak.picture)


def test_without_overlap_a_random_split_is_clean(found):
    targets = cut_windows(np.arange(10_000), 128).targets
    held_out = found.at_random(len(targets))
    assert len(held_out) == 7
    assert found.seen(np.delete(targets, held_out, axis=0), targets[held_out]) == 0.0


def test_splits_lose_no_window(found):
    train, held_out = found.split_after(np.arange(10_000), found.every_tenth)
    assert len(train) + len(held_out) == (10_000 - 129) // 32 + 1
    train, held_out = found.split_before(np.arange(10_000))
    assert train.max() == 8992  # 9,000 ids: the last window of 129 begins at 8,864
    assert held_out.min() == 9001
