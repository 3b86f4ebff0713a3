"""What the tests of the families share: a config of class defaults, and its tensors' names."""

from __future__ import annotations

from typing import Any

from tinyxp import Config
from tinyxp.formats.families import FAMILIES
from tinyxp.formats.rules import lay_out


def read(model_type: str, **keys: Any) -> Config:
    return Config.from_hf({"model_type": model_type, **keys})


def names(model_type: str, **changes: Any) -> dict[str, tuple[str, ...]]:
    """The tensors of a model of one layer: name -> parameters."""
    family = FAMILIES[model_type]
    keys = {"n_layer": 1} if model_type == "gpt2" else {"num_hidden_layers": 1, "sliding_window": None}
    config = read(model_type, **keys, **changes)
    return {rule.name: rule.targets for rule in lay_out(family.names, config, family.prefix)}
