"""All commands, and how their errors are reported."""

from __future__ import annotations

import io
import sys

import click

from tinyxp.cli.bench import bench
from tinyxp.cli.check import check
from tinyxp.cli.data import data
from tinyxp.cli.diagnose import diagnose
from tinyxp.cli.diff import diff
from tinyxp.cli.evaluation import evaluate
from tinyxp.cli.generation import generate
from tinyxp.cli.libraries import backends
from tinyxp.cli.models import convert, info
from tinyxp.cli.trace import trace
from tinyxp.cli.train import train


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tinyxp")
def cli() -> None:
    """One decoder-only transformer on NumPy, PyTorch and JAX."""


for command in (
    generate,
    info,
    convert,
    backends,
    bench,
    check,
    data,
    train,
    evaluate,
    diff,
    diagnose,
    trace,
):
    cli.add_command(command)


def run() -> int:
    """Run the command that the arguments name, and return its exit status."""
    try:
        if sys.stdout is None:
            raise ValueError("standard output is closed")
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(
                errors="replace"
            )  # generated text may have characters that the encoding lacks
        status = cli(standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.Abort:
        raise KeyboardInterrupt from None
    except (click.ClickException, ValueError, ImportError, OSError, MemoryError) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(text.split()))
        click.echo(f"tinyxp: {line or type(error).__name__}", err=True)
        return 2
