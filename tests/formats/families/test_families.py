"""The table of families: each says its own configs, and every parameter has a tensor."""

from __future__ import annotations

import pytest

from tinyxp import Config
from tinyxp.formats.families import FAMILIES
from tinyxp.formats.hf_config import config_to_hf, family_for, family_of
from tinyxp.formats.rules import lay_out
from tinyxp.shapes import parameter_shapes

CONFIGS = {
    "gpt2": Config.preset("gpt2"),
    "llama": Config(),
    "mistral": Config(d_model=30, head_dim=8),
    "qwen2": Config(attn_bias=True),
}


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_config_is_written_as_its_family(model_type: str) -> None:
    family = family_for(CONFIGS[model_type])
    assert family is FAMILIES[model_type] is family_of(model_type)
    values = config_to_hf(CONFIGS[model_type])
    assert values["model_type"] == model_type
    assert values["architectures"] == [family.architecture]


@pytest.mark.parametrize("model_type", FAMILIES)
def test_every_parameter_is_in_one_tensor(model_type: str) -> None:
    config = CONFIGS[model_type]
    targets = [name for rule in lay_out(FAMILIES[model_type].names, config) for name in rule.targets]
    assert sorted(targets) == sorted(parameter_shapes(config))


def test_the_known_ones_are_listed() -> None:
    with pytest.raises(ValueError, match="model_type is 'bert'; known are gpt2, llama, mistral, qwen2"):
        family_of("bert")
