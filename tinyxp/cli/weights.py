"""``tinyxp cache``, and its use by ``tinyxp generate``: what a quantised GGUF becomes is computed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tinyxp.cli.progress import loading

if TYPE_CHECKING:
    from tinyxp.checkpoints.plan import Checkpoint

_HELP = "TINYXP_CACHE names another folder, and keeps none where it is empty"


def kept(checkpoint: Checkpoint) -> Checkpoint:
    """A quantised ``checkpoint`` as float32 from the weight cache, put there if need be; any other as it is.

    One line on standard error says what was written, or that nothing could be: generation goes on without.
    """
    from tinyxp.checkpoints.weight_cache import cache_folder, entry_of, is_quantised, read_entry, write_entry

    try:
        folder = cache_folder()
        if folder is None or not is_quantised(checkpoint):
            return checkpoint
        entry = entry_of(checkpoint, folder)
        found = read_entry(entry, checkpoint.config)
        if found is not None:
            return found
        loading(lambda show: write_entry(entry, checkpoint, show))
        size = entry.stat().st_size
    except OSError as error:
        click.echo(f"tinyxp: the weights are not kept for later: {error}; {_HELP}", err=True)
        return checkpoint
    click.echo(
        f"tinyxp: kept the weights in {entry} ({_megabytes(size)}), from where they load faster; "
        f"'tinyxp cache clear' removes them; {_HELP}",
        err=True,
    )
    return read_entry(entry, checkpoint.config) or checkpoint


@click.group(invoke_without_command=True)
@click.pass_context
def cache(context: click.Context) -> None:
    """Show the folder of the weight cache, and its size; 'clear' empties it.

    'tinyxp generate' keeps the weights of quantised GGUF files there as float32. TINYXP_CACHE names another
    folder, and keeps none where it is empty.
    """
    from tinyxp.checkpoints.weight_cache import cache_folder, entries

    if context.invoked_subcommand is None:
        folder = cache_folder()
        if folder is None:
            click.echo("off: TINYXP_CACHE is empty")
        else:
            found = entries(folder)
            click.echo(f"{folder}: files {len(found)}, {_megabytes(sum(found.values()))}")


@cache.command()
def clear() -> None:
    """Remove what the weight cache holds, and nothing else in its folder."""
    from tinyxp.checkpoints.weight_cache import cache_folder, entries

    folder = cache_folder()
    found = {} if folder is None else entries(folder)
    for path in found:
        path.unlink(missing_ok=True)
    click.echo(f"removed {_megabytes(sum(found.values()))}")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
