"""The models that come with this package."""

from __future__ import annotations

import os
from pathlib import Path

FIRST = "holmes"
"""What writes where no model is named."""
NAMES = (FIRST,)


def included(name: str | os.PathLike[str]) -> Path | None:
    """The folder of the model of that name in this package; None where it has none."""
    known = os.fspath(name) in NAMES
    return Path(__file__).parent.parent / "models" / os.fspath(name) if known else None
