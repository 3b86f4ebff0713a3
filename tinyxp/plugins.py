"""Entry points: what other packages, and our own ``backends/``, bring to tinyxp, found by group and name."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

BACKENDS = "tinyxp.backends"  # a library's import name -> its Backend
ENGINES = "tinyxp.engines"  # a backend's name -> its Engine
REFERENCES = "tinyxp.references"  # a name -> a module of independent implementations for the laws
SIDES = "tinyxp.sides"  # the prefix of a spec such as hf:MODEL -> a module that opens and traces models
RECORDERS = "tinyxp.recorders"  # a library's import name -> a module that puts hooks on its modules

DEFAULT_BACKENDS = ("numpy", "torch", "jax", "strict")
"""The backends that tests and laws run on unless others are named, if they are installed."""
TEST_MODULE = "TINYXP_TEST_MODULE"
"""The environment variable that names the one backend, or array namespace, to test."""


@cache
def entries(group: str) -> dict[str, EntryPoint]:
    """Return the installed entry points of a group by name; nothing of theirs is imported."""
    from importlib.metadata import entry_points  # slow to import and rarely needed

    return {entry.name: entry for entry in entry_points(group=group)}


def load(group: str, name: str) -> Any:
    """Return the object that an entry point names.

    Raise ValueError listing the known names for an unknown one, and ImportError for one that cannot be
    imported. The error proposes a pip command only if the missing module is the library that the entry point
    is named after.
    """
    kind = group.rpartition(".")[2].removesuffix("s")
    known = entries(group)
    if name not in known:
        raise ValueError(f"{kind} is {name!r}; known are {', '.join(sorted(known))}")
    entry = known[name]
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        aliases = {alias for alias, other in known.items() if other.value == entry.value}
        missing = str(error.name)
        hint = f": pip install {missing!r}" if missing in aliases else ""
        raise ImportError(f"{kind} {name!r} needs {missing!r}, which is not installed{hint}") from error
    except ValueError:
        raise
    except Exception as error:  # a third party's module may raise anything
        raise ImportError(f"{kind} {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
