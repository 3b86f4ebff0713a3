"""The line that shows how a training run is going, on a terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tinyxp.train import Report

WIDTH = 24


class Status:
    """Steps done, loss, tokens/s and the time left, since this object was made."""

    def __init__(self, steps: int, tokens: int, begun: int) -> None:
        """``tokens`` of a step; ``begun``: the step that the run goes on from."""
        self.steps, self.tokens, self.begun = steps, tokens, begun
        self.start = time.perf_counter()

    def line(self, report: Report) -> str:
        """The step and its losses, in nats a token."""
        loss = [] if report.loss is None else [f"loss {report.loss:.4f}"]
        held_out = [] if report.validation is None else [f"validation {report.validation:.4f}"]
        return f"step {report.step}/{self.steps}: {', '.join([*loss, *held_out])}"

    def show(self, report: Report) -> None:
        """Redraws it, where standard error is a terminal."""
        done = report.step - self.begun
        if not sys.stderr.isatty() or not done:
            return
        rate = done / (time.perf_counter() - self.start)
        minutes, seconds = divmod(round((self.steps - report.step) / rate), 60)
        full = WIDTH * report.step // self.steps
        self.clear()
        click.echo(
            f"[{'#' * full}{'-' * (WIDTH - full)}] {self.line(report)}, {rate * self.tokens:,.0f} tokens/s, "
            f"{minutes}:{seconds:02} left",
            nl=False,
            err=True,
        )

    def clear(self) -> None:
        """Takes it away, so that other lines may be written."""
        if sys.stderr.isatty():
            click.echo("\r\x1b[2K", nl=False, err=True)
