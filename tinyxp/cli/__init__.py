"""The command line. Errors that a user can mend take one line and exit status 2; Ctrl-C exits 130."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The entry point of the ``tinyxp`` command."""
    try:
        from tinyxp.cli.commands import run

        status = run()
    except KeyboardInterrupt:
        # Not sys.exit: tearing down a library that is still compiling in its own threads can crash.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(130)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:  # said already; Python would flush once more, and exit with a status of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)
