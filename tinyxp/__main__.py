"""``python -m tinyxp``: the command line."""

from tinyxp.cli import main

main()
