"""The picture of a run, from histories of every length."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinyxp.train.curves import draw

START = {"step": 0, "loss": None, "rate": None, "norm": None, "validation": 5.0}
UPDATE = {"step": 1, "loss": 4.5, "rate": 1e-3, "norm": 1.0, "validation": None}


@pytest.mark.parametrize(
    "history", [[], [START], [START, UPDATE], [UPDATE]], ids=["none", "start", "two", "one"]
)
def test_a_png_is_written_whole(tmp_path: Path, history: list[dict[str, float | None]]) -> None:
    pytest.importorskip("matplotlib")
    draw(history, tmp_path / "curves.png")
    data = (tmp_path / "curves.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert data.endswith(b"IEND\xaeB`\x82")
    assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]
