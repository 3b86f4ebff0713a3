"""Reading a foreign config: every key is read, known to be harmless, or rejected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tinyxp.checks import as_integer, as_positive
from tinyxp.errors import UnsupportedModelError

# An unread key may be decoration, or may request another computation, as keys with these words do.
_SUSPECT = re.compile(
    r"soft_?cap|scale|scaling|multiplier|window|rotary|expert|alibi|quant|compress|clip|clamp|norm_type"
    r"|(?<![a-z])(m?rope|moe)|qk_\w*norm|use_\w*norm|post_\w*norm|parallel_residual|bidirectional|interleave"
    r"|cross_attention|pruned|_bias$|attention_chunk|attention_sink|output_gate|multi_query|temperature_tuning"
    r"|\.causal$"
)
_MULTIPLIES = re.compile(r"scale|scaling|multiplier|rotary|factor")
_HARMLESS = re.compile(r"_implementation$|^transformers\.js|gradient")


class Fields:
    """A mapping that remembers which keys were read, so that the unread ones can be judged.

    A key whose value is null counts as missing. Errors write ``prefix`` before a key.
    """

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self._values = values
        self._prefix = prefix
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def is_null(self, key: str) -> bool:
        """Return whether the key is present with null, which a few classes tell from a missing key."""
        return key in self._values and self._values[key] is None

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of ``key`` unchecked, or ``default`` if it is missing or null."""
        self._read.add(key)
        value = self._values.get(key)
        return default if value is None else value

    def integer(self, key: str, default: int | None = None) -> int:
        """Return an integer of 1 or more; ValueError naming the key for anything else."""
        return as_integer(f"{self._prefix}{key}", self._require(key, default), low=1)

    def number(self, key: str, default: float | None = None) -> float:
        """Return a finite number above 0; ValueError naming the key for anything else."""
        return as_positive(f"{self._prefix}{key}", self._require(key, default))

    def flag(self, key: str, default: bool) -> bool:
        """Return True or False; ValueError naming the key for anything else."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise ValueError(f"{self._prefix}{key} is {value!r}; it must be true or false")
        return value

    def _require(self, key: str, default: Any) -> Any:
        value = self.get(key, default)
        if value is None:
            raise ValueError(f"{self._prefix}{key} is missing")
        return value

    def reject(self, key: str, reason: str) -> None:
        """Raise UnsupportedModelError with the key, its value and the reason."""
        name = key if key.isprintable() else repr(key)
        raise UnsupportedModelError(f"{self._prefix}{name} is {self.get(key)!r}: {reason}")

    def reject_unread(self) -> None:
        """Raise UnsupportedModelError for an unread key that requests another computation and is not off."""
        for key in sorted(self._values.keys() - self._read):
            suspect = _SUSPECT.search(key.lower()) and not _HARMLESS.search(key)
            if suspect and not _is_off(key, self._values[key]):
                self.reject(key, "this decoder does not compute that")


def _is_off(key: str, value: Any) -> bool:
    if value is None or value is False or value in ("", [], {}):
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value == (1 if _MULTIPLIES.search(key.lower()) else 0)
