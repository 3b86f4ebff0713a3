"""The progress line: what it says, and that it shows on a terminal only."""

from __future__ import annotations

import pytest

import tinyxp
from tinyxp.cli import status as module
from tinyxp.cli.status import Status
from tinyxp.train import Report, State


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the line sees; tests change it."""
    times = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: times[0])
    return times


def report(step: int, loss: float | None = None, validation: float | None = None) -> Report:
    state = State(tinyxp.init(tinyxp.Config()), {}, {}, step)
    return Report(step, loss, None, None, validation, state)


def test_the_line_has_the_losses_that_there_are() -> None:
    status = Status(8, 64, 0)
    assert status.line(report(0, None, 5.0)) == "step 0/8: validation 5.0000"
    assert status.line(report(3, 4.5)) == "step 3/8: loss 4.5000"
    assert status.line(report(8, 4.5, 4.25)) == "step 8/8: loss 4.5000, validation 4.2500"


def test_a_resumed_run_counts_its_own_steps(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = Status(104, 50, first=4)
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True, raising=False)
    clock[0] = 110.0
    status.show(report(24, 1.0))
    shown = capsys.readouterr().err
    assert "] step 24/104: loss 1.0000, 100 tokens/s, 0:40 left" in shown
    assert shown.count("#") == 24 * 24 // 104
    status.clear()
    assert capsys.readouterr().err == "\r\x1b[2K"


def test_nothing_shows_without_a_terminal_or_before_the_first_step(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = Status(8, 64, 0)
    clock[0] = 101.0
    status.show(report(1, 1.0))
    status.clear()
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True, raising=False)
    status.show(report(0, None))
    assert capsys.readouterr().err == ""
