"""Array namespaces without an adapter: a namespace that conforms to the standard needs none."""

from __future__ import annotations

import importlib

from tinyxp import registry
from tinyxp.registry import Backend


def adopt(name: str) -> Backend:
    """Return the backend of this name, or register a plain one for any other importable namespace.

    Raise ValueError if ``name`` is neither, or is a module whose arrays do not name it as their namespace.
    Raise ImportError if a known backend cannot be loaded.
    """
    try:
        return registry.backend(name)
    except ValueError as error:
        known = registry.available_backends()
        if name.partition(".")[0] in known or not all(part.isidentifier() for part in name.split(".")):
            raise
        unknown = ValueError(f"{error}, and any array namespace that can be imported")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):
            raise unknown from None
        raise
    adapter = Backend(name, module)
    if not hasattr(module, "asarray") or not adapter.is_array(module.asarray([0.0])):
        raise ValueError(
            f"backend is {name!r}, a module whose arrays, if it has any, do not name it as their "
            "__array_namespace__; it needs an adapter"
        )
    registry.register(adapter)
    return adapter
