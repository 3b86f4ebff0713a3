"""The command line. Errors that a user can fix are one line and exit status 2; Ctrl-C exits with 130."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the ``tinyxp`` command; this is its entry point."""
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
    except OSError:  # already reported; Python would flush again and exit with another status
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)
