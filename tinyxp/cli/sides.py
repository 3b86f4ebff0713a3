"""What ``tinyxp diff`` and ``tinyxp diagnose`` share: their arguments, and the input of both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from tinyxp.doctor import Side
    from tinyxp.text.base import Tokenizer

Command = TypeVar("Command", bound=Callable[..., Any])
OPTIONS = (
    click.argument("a"),
    click.argument("b"),
    click.option("--prompt", metavar="TEXT", help="The text that both sides get."),
    click.option("--ids", metavar="IDS", help="Token ids instead, separated by commas; ';' between rows."),
    click.option(
        "--pad",
        metavar="N",
        type=click.IntRange(0, 100_000),
        default=0,
        help="Put N padding tokens, which the mask marks, before the ids.",
    ),
    click.option("--tokenizer", metavar="PATH", help="Where the tokenizer is, if not with a model."),
    click.option("--threads", type=click.IntRange(min=1), help="How many threads the libraries may use."),
)


def with_sides(command: Command) -> Command:
    """Add the arguments A and B and the options for their input."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


class Inputs(NamedTuple):
    """Two sides and what they get."""

    a: Side
    b: Side
    ids: Any  # None: to be drawn, or a recorded trace's own
    mask: Any
    tokenizer: Tokenizer | None

    def decode(self) -> Callable[[int], str] | None:
        """Return a function from an id to its text, if there is a tokenizer."""
        tokenizer = self.tokenizer
        if tokenizer is None:
            return None

        def decode(i: int) -> str:
            try:
                return tokenizer.decode([i])
            except ValueError:  # the vocabulary is larger than the tokenizer's
                return f"#{i}"

        return decode


def open_sides(
    a: str,
    b: str,
    *,
    prompt: str | None,
    ids: str | None,
    pad: int,
    tokenizer: str | None,
    threads: int | None,
) -> Inputs:
    """Open both sides, and encode or parse their input."""
    from tinyxp.cli.threads import limit_threads

    limit_threads(threads)
    import numpy as np

    from tinyxp.doctor import parse

    if prompt is not None and ids is not None:
        raise ValueError("--prompt and --ids are both given; one of them is enough")
    sides = parse(a), parse(b)
    text = _load_tokenizer(sides, tokenizer, required=prompt is not None)
    rows: Any = None
    if prompt is not None:
        assert text is not None
        rows = [text.encode(prompt)]
        if not rows[0]:
            raise ValueError("--prompt is empty, and this model's tokenizer puts no token before a text")
    elif ids is not None:
        rows = _parse_rows(ids)
    if not pad:
        return Inputs(*sides, rows, None, text)
    if rows is None:
        raise ValueError("--pad needs --prompt or --ids")
    padded = np.array([[0] * pad + row for row in rows], np.int64)
    mask = np.ones(padded.shape, bool)
    mask[:, :pad] = False
    return Inputs(*sides, padded, mask, text)


def _load_tokenizer(sides: tuple[Side, Side], path: str | None, *, required: bool) -> Tokenizer | None:
    """Load the named tokenizer, or that of the first model; None if none is needed and there is none."""
    from tinyxp.text.tokenizer import load_tokenizer

    models = [side.model for side in sides if side.model is not None]
    if path is not None or (required and models):
        return load_tokenizer(path or models[0])
    if required:
        raise ValueError("--prompt needs a tokenizer, and neither side is a model: name one with --tokenizer")
    try:
        return load_tokenizer(models[0]) if models else None
    except (ValueError, ImportError, OSError):
        return None  # it would only print the text of ids


def _parse_rows(ids: str) -> list[list[int]]:
    try:
        rows = [[int(x) for x in row.split(",")] for row in ids.split(";")]
    except ValueError:
        raise ValueError(
            f"--ids is {ids!r}; it must be integers separated by commas, such as 504,3575,282"
        ) from None
    if len({len(row) for row in rows}) > 1:
        raise ValueError(
            f"--ids has rows of {', '.join(str(len(row)) for row in rows)} ids; they must be equally long"
        )
    return rows
