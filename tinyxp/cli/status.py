"""The progress line of a training run, on a terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tinyxp.train import Report

WIDTH = 24


class Status:
    """Steps, loss, tokens/s and the time left, counted from when this object was created."""

    def __init__(self, steps: int, tokens: int, first: int) -> None:
        """``tokens`` of a step; ``first``, the step at which this part of the run begins."""
        self.steps, self.tokens, self.first = steps, tokens, first
        self.start = time.perf_counter()

    def line(self, report: Report) -> str:
        """Return the step and its losses, in nats per token."""
        loss = [] if report.loss is None else [f"loss {report.loss:.4f}"]
        held_out = [] if report.validation is None else [f"validation {report.validation:.4f}"]
        return f"step {report.step}/{self.steps}: {', '.join([*loss, *held_out])}"

    def show(self, report: Report) -> None:
        """Redraw the line, if standard error is a terminal."""
        done = report.step - self.first
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
        """Remove the line, so that other lines can be written."""
        if sys.stderr.isatty():
            click.echo("\r\x1b[2K", nl=False, err=True)
