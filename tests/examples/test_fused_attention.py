"""Fused and plain attention: distances and memory; no time is asserted."""

import pytest

torch = pytest.importorskip("torch")


def rows_after(lines, heading):
    """The numbers of the table whose heading begins so, up to the empty line."""
    at = next(i for i, line in enumerate(lines) if heading in line)
    rows = []
    for line in lines[at + 1 :]:
        if not line:
            return rows
        rows.append([float(word) for word in line.split()])
    return rows


def test_script(example, is_png):
    fused = example("fused_attention", "--quick")
    differences = rows_after(fused.lines, "plain - fused")
    assert [row[0] for row in differences] == [128, 256, 512, 1024]
    for _, apart, plain, kernel in differences:
        assert 0 < apart < 4e-6
        assert 0 < plain < 4e-6
        assert 0 < kernel < 4e-6

    memory = rows_after(fused.lines, "scores, MiB")
    assert [row[1] for row in memory] == [0.5, 2.0, 8.0, 32.0]
    for t, scores, plain, kernel, *_ in memory:
        assert plain == scores
        assert kernel <= max(4 * t * t, 4 * 8 * t * 64) / 2**20  # the mask in float, or the heads
    assert is_png(fused.picture)


def test_largest_sees_views_and_tuples(found):
    with found.Largest() as mode:
        torch.zeros(10)[:2].add(1)
        torch.ones(4, 6).max(dim=0)
    assert mode.bytes == 96
