"""``tinyxp data``: the known texts, for training, examples and measurements."""

from __future__ import annotations

from pathlib import Path

import click

from tinyxp.cli.progress import loading


@click.group()
def data() -> None:
    """Download a known text, or list them all."""


@data.command()
@click.argument("name")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    help="Read this copy of the file instead of downloading it.",
)
def get(name: str, source: Path | None) -> None:
    """Download the text NAME, clean it, and store it if its checksum is right.

    An interrupted download resumes. A text that is stored already is not downloaded again.
    """
    from tinyxp.text.corpus import CORPORA, fetch, is_fetched

    if name not in CORPORA:
        raise ValueError(f"NAME is {name!r}; known texts: {', '.join(CORPORA)}")
    corpus = CORPORA[name]
    if is_fetched(corpus):
        click.echo(f"{name} is at {corpus.path()} already", err=True)
        return
    path = loading(lambda show: fetch(corpus, source=source, show=show), f"fetching {name}")
    click.echo(f"wrote {path}: {corpus.characters:,} characters", err=True)


@data.command(name="list")
def list_corpora() -> None:
    """List the known texts, and where they are stored."""
    from tinyxp.text.corpus import CORPORA, is_fetched

    for corpus in CORPORA.values():
        where = corpus.path() if is_fetched(corpus) else f"not fetched: tinyxp data get {corpus.name}"
        click.echo(f"{corpus.name:<12} {corpus.title}")
        click.echo(f"{'':<12} {corpus.characters:,} characters, {where}")
