"""What a family of Hugging Face models is: a declaration of its config keys, tensor names and limits.

A family is data. ``hf_config`` reads and writes its keys, ``huggingface`` its tensors; neither names one.
This module and the declarations know Config's fields by their names alone: Config itself reads families.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tinyxp.formats.fields import Fields
from tinyxp.formats.names import Names

Values = Mapping[str, Any]
"""Config's fields by name."""


@dataclass(frozen=True)
class Key:
    """A key of config.json and the fields of Config that it sets."""

    name: str
    fields: tuple[str, ...]
    default: Any
    """What the reference class takes if the key is missing, or a function of the fields of earlier keys that
    gives it; None leaves the field to Config's own default."""
    read: Callable[[Fields, str, Any], Any] = Fields.integer
    """Reads and checks a value: ``Fields.integer``, ``.number`` or ``.flag``."""
    null: Any = None
    """What null means if not the default."""
    alias: str = ""
    """Another name of the key, which the reference class takes too."""


@dataclass(frozen=True)
class Choice:
    """A key of config.json whose words name values of one field of Config."""

    name: str
    field: str
    default: str
    words: Mapping[str, str]
    """word -> value of the field; the first word of a value is the one that is written."""
    reason: str = "known are"
    """What the error for another word says before the known ones."""


@dataclass(frozen=True)
class Fixed:
    """A flag of config.json for which one value is computed, and why the other is rejected."""

    name: str
    value: bool
    reason: str


@dataclass(frozen=True)
class Window:
    """How a reference class reads ``sliding_window``. A window narrower than the context is rejected."""

    default: int | None = None
    """The window if the key is missing."""
    on: bool = True
    """What ``use_sliding_window`` is if it is missing."""
    switched: bool = True
    """Whether the class obeys ``use_sliding_window``."""
    by_layer: bool = False
    """Whether ``layer_types``, or else ``max_window_layers``, says which layers have the window."""


@dataclass(frozen=True)
class Family:
    """One model_type of Hugging Face."""

    model_type: str
    architecture: str
    """The reference class that config.json names."""
    keys: tuple[Key | Choice, ...]
    names: Names
    prefix: str
    """What begins the tensors' names; files may leave it out."""
    buffers: re.Pattern[str]
    """Tensors that hold no parameters, without the prefix."""
    constants: Values
    """The other fields of Config: a value, or a function of the fields that the keys set."""
    fixed: tuple[Fixed, ...] = ()
    window: Window | None = None
    written: Values = field(default_factory=dict)
    """Further keys to write, with their values."""
    whole_heads: bool = False
    """Whether the reference class rejects a width that the number of heads does not divide."""

    def key_of(self, field: str) -> str:
        """Return the key that sets a field of Config, or "" if there is none."""
        return next((key.name for key in self.keys if isinstance(key, Key) and field in key.fields), "")

    def derive(self, model_type: str, architecture: str, defaults: Values, **changes: Any) -> Family:
        """Return another family with other ``defaults`` (key -> default) and ``changes`` of the rest."""
        keys = changes.pop("keys", self.keys)
        keys = tuple(replace(key, default=defaults.get(key.name, key.default)) for key in keys)
        return replace(self, model_type=model_type, architecture=architecture, keys=keys, **changes)


def all_heads(values: Values) -> int:
    """Return the number of query heads: each has a key/value head of its own."""
    heads: int = values["n_heads"]
    return heads
