"""What laws compare with besides the referee: other implementations, found by entry point or by capability.

An entry of the group ``tinyxp.references`` is named ``ROLE.LIBRARY``. The role ``decoder`` is a module with
``model``, ``logits``, ``processors``, ``count``, ``load`` and ``save``; ``precision`` is a module with a
``backend`` and ``digits(count)``, a context in which it computes with so many decimal digits.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from tinyxp import plugins, registry
from tinyxp.registry import Backend


def installed(role: str) -> list[str]:
    """Return the names of a role's entries whose library is installed; nothing is imported."""
    names = (name for name in plugins.entries(plugins.REFERENCES) if name.startswith(f"{role}."))
    return [name for name in names if find_spec(name.partition(".")[2]) is not None]


def reference(role: str) -> Any:
    """Return the first installed implementation of a role. Raise ValueError if there is none."""
    names = installed(role)
    if not names:
        raise ValueError(f"role is {role!r}; no implementation of it is installed")
    return plugins.load(plugins.REFERENCES, names[0])


def find_backend(condition: Callable[[Backend], bool]) -> Backend | None:
    """Return the first of the default backends that is installed and satisfies ``condition``."""
    for name in plugins.DEFAULT_BACKENDS:
        try:
            backend = registry.backend(name)
        except ImportError:
            continue
        if condition(backend):
            return backend
    return None


def meta_backend() -> Backend | None:
    """Return a backend with a device whose arrays have a shape and no values."""
    return find_backend(lambda backend: "meta" in backend.devices())


def other_differentiating(backend: Backend) -> Backend | None:
    """Return another backend that computes gradients."""
    return find_backend(lambda other: other.has_gradients and other is not backend)


FINDERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "reference-decoder": (lambda subject: installed("decoder"), "no reference decoder is installed"),
    "reference-precision": (
        lambda subject: installed("precision"),
        "no library of arbitrary precision is installed",
    ),
    "meta-device": (lambda subject: meta_backend(), "no installed library has arrays without values"),
    "other-gradients": (
        lambda subject: other_differentiating(subject.backend),
        "no other installed library has gradients",
    ),
}
"""What a law may need besides a subject's abilities -> how to find it, and why it may be missing."""
