"""Progress bars, shown only if standard error is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import click

T = TypeVar("T")
Show = Callable[[int, int], None]


def loading(read: Callable[[Show | None], T], label: str = "loading") -> T:
    """Return ``read(show)``; ``show(done, total)`` draws a bar. Without a terminal it is ``read(None)``."""
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
    """Yield the items; on a terminal, a bar shows how many are done."""
    if not sys.stderr.isatty():
        yield from items
        return
    with click.progressbar(items, label=label, file=sys.stderr) as bar:
        yield from bar
    _wipe()


def _wipe() -> None:
    """Remove the finished bar, so that it does not stay above the output."""
    click.echo("\x1b[1A\x1b[2K", nl=False, err=True)
