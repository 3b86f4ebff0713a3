"""What ``tinyxp diff`` and ``tinyxp diagnose`` share: their arguments, and what goes into both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from tinyxp.doctor import Side
    from tinyxp.text.base import Tokenizer

F = Callable[..., Any]
OPTIONS = (
    click.argument("a"),
    click.argument("b"),
    click.option("--prompt", metavar="TEXT", help="The text that goes into both sides."),
    click.option("--ids", metavar="IDS", help="The ids instead, separated by commas; ';' between rows."),
    click.option(
        "--pad",
        metavar="N",
        type=click.IntRange(0, 100_000),
        default=0,
        help="Padding before the ids, which the mask tells of.",
    ),
    click.option("--tokenizer", metavar="PATH", help="Where the tokenizer is, if not with a model."),
    click.option("--threads", type=click.IntRange(min=1), help="How many threads the libraries may use."),
)


def with_sides(command: F) -> F:
    """Adds the arguments A and B and the options that say what goes into them."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


class Given(NamedTuple):
    """What a command line says."""

    a: Side
    b: Side
    ids: Any
    mask: Any
    text: Tokenizer | None

    def decode(self) -> Callable[[int], str] | None:
        """From an id to its text, where there is a tokenizer."""
        text = self.text
        if text is None:
            return None

        def spell(i: int) -> str:
            try:
                return text.decode([i])
            except ValueError:  # a vocabulary that the tokenizer does not fill
                return f"#{i}"

        return spell


def given(
    a: str,
    b: str,
    *,
    prompt: str | None,
    ids: str | None,
    pad: int,
    tokenizer: str | None,
    threads: int | None,
) -> Given:
    """The two sides, and the ids and the mask, None where they are to be found or drawn."""
    from tinyxp.cli.threads import limit_threads

    limit_threads(threads)
    import numpy as np

    import tinyxp
    from tinyxp.doctor import parse

    if prompt is not None and ids is not None:
        raise ValueError("--prompt and --ids are both given; one of them is enough")
    sides = parse(a), parse(b)
    text = None
    models = [side.model for side in sides if side.model is not None]
    if prompt is not None or tokenizer is not None:
        if tokenizer is None and not models:
            raise ValueError(
                "--prompt needs a tokenizer, and neither side is a model: name one with --tokenizer"
            )
        text = tinyxp.load_tokenizer(tokenizer or models[0])
    elif models:
        try:
            text = tinyxp.load_tokenizer(models[0])
        except (ValueError, ImportError, OSError):
            text = None  # only to spell tokens
    rows: Any = None
    if prompt is not None:
        assert text is not None
        rows = [text.encode(prompt)]
        if not rows[0]:
            raise ValueError("--prompt is empty, and this model's tokenizer puts no token before a text")
    elif ids is not None:
        rows = _rows(ids)
    if not pad:
        return Given(*sides, rows, None, text)
    if rows is None:
        raise ValueError("--pad needs --prompt or --ids")
    padded = np.array([[0] * pad + row for row in rows], np.int64)
    mask = np.ones(padded.shape, bool)
    mask[:, :pad] = False
    return Given(*sides, padded, mask, text)


def _rows(ids: str) -> list[list[int]]:
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
