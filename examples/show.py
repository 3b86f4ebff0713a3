"""What the examples share: arguments, tables, and the style of their pictures."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from tinyxp.bench.plot import need_matplotlib
from tinyxp.files import replacing


def arguments(doc: str, *, quick: bool = True) -> argparse.Namespace:
    """Parse --plot FILE and --quick, and check them. ``quick`` False: the example is always quick."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    picture = f"{Path(sys.argv[0]).stem}.png"
    parser.add_argument("--plot", metavar="FILE", default=picture, help="the picture (%(default)s)")
    less = "less of it, in a few seconds" if quick else "changes nothing: this is quick as it is"
    parser.add_argument("--quick", action="store_true", help=less)
    given = parser.parse_args()
    try:
        need_matplotlib(given.plot)
        if not Path(given.plot).parent.is_dir():
            raise ValueError(f"plot is {given.plot!r}; its folder does not exist")
    except (ImportError, ValueError) as error:
        stop(str(error))
    return given


def stop(message: str) -> NoReturn:
    """Print one line that says what is missing, and exit with status 2."""
    print(f"{Path(sys.argv[0]).stem}: {message}", file=sys.stderr)
    sys.exit(2)


def table(header: Sequence[object], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns, the first to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *others in cells:
        right = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        print("  ".join([first.ljust(widths[0]), *right]).rstrip())


def figure(columns: int = 1, *, size: tuple[float, float] = (8.0, 4.5)) -> tuple[Any, list[Any]]:
    """Return a figure of ``size`` inches, without a window, and its axes from left to right."""
    from matplotlib.figure import Figure

    made = Figure(figsize=size, dpi=120, layout="constrained")
    axes = made.subplots(1, columns, squeeze=False)[0]
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
    return made, list(axes)


def save(made: Any, path: str) -> None:
    """Write the picture, completely or not at all, and print its path."""
    with replacing(Path(path)) as file:
        made.savefig(file, format=Path(path).suffix[1:].lower())
    print(f"\npicture: {path}")
