"""The command line. Errors that a user can mend take one line and exit status 2; Ctrl-C exits 130."""

from __future__ import annotations

import sys

import click

import tinyxp
from tinyxp.cli.generation import generate
from tinyxp.cli.libraries import backends
from tinyxp.cli.models import convert, info


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tinyxp.__version__, package_name="tinyxp")
def cli() -> None:
    """One decoder-only transformer on NumPy, PyTorch and JAX."""


for command in (generate, info, convert, backends):
    cli.add_command(command)


def main() -> None:
    """The entry point of the ``tinyxp`` command."""
    try:
        status = cli(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(status if isinstance(status, int) else 0)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except (click.ClickException, ValueError, ImportError, OSError, MemoryError) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        click.echo(f"tinyxp: {' '.join(text.split()) or type(error).__name__}", err=True)
        sys.exit(2)
