"""The models that come with this package."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_MODEL = "holmes"
"""The model that generates if none is named."""
BUNDLED_MODELS = (DEFAULT_MODEL,)


def find_bundled(name: str | os.PathLike[str]) -> Path | None:
    """Return the folder of the bundled model of that name, or None if there is none."""
    if os.fspath(name) not in BUNDLED_MODELS:
        return None
    return Path(__file__).parent.parent / "models" / os.fspath(name)
