"""``tinyxp data``: the texts that examples and measurements are made with."""

from __future__ import annotations

from pathlib import Path

import click

from tinyxp.cli.progress import loading


@click.group()
def data() -> None:
    """Known texts: fetch one, list them all."""


@data.command()
@click.argument("name")
@click.option(
    "--from", "source", type=click.Path(path_type=Path), help="A copy of the file, instead of the net."
)
def get(name: str, source: Path | None) -> None:
    """Fetch the text NAME, clean it, and keep it where its checksum is right.

    A download that was cut off goes on; a text that is here already is not fetched again.
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
    """List the known texts, and where those that are here are kept."""
    from tinyxp.text.corpus import CORPORA, is_fetched

    for corpus in CORPORA.values():
        where = corpus.path() if is_fetched(corpus) else f"not fetched: tinyxp data get {corpus.name}"
        click.echo(f"{corpus.name:<12} {corpus.title}")
        click.echo(f"{'':<12} {corpus.characters:,} characters, {where}")
