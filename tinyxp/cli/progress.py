"""Progress on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import click

T = TypeVar("T")
Show = Callable[[int, int], None]


def loading(read: Callable[[Show | None], T], label: str = "loading") -> T:
    """Runs ``read`` with a function (done, total) that draws a bar, where standard error is a terminal."""
    if not sys.stderr.isatty():
        return read(None)
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def show(done: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.update(done - bar.pos)

        result = read(show)
    _wipe()
    return result


def counted(items: Sequence[T], label: str) -> Iterator[T]:
    """The items; where standard error is a terminal, a bar shows how many of them are done."""
    if not sys.stderr.isatty():
        yield from items
        return
    with click.progressbar(items, label=label, file=sys.stderr) as bar:
        yield from bar
    _wipe()


def _wipe() -> None:
    """Takes the finished bar away, which would stand above every text."""
    click.echo("\x1b[1A\x1b[2K", nl=False, err=True)
