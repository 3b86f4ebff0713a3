"""Config: the defaults, the presets, and one ValueError naming the field for every contradiction."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from tinyxp import Config
from tinyxp.config import RopeScaling

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def test_defaults() -> None:
    assert dataclasses.asdict(Config()) == {
        "vocab_size": 128,
        "n_layers": 2,
        "d_model": 32,
        "n_heads": 4,
        "n_kv_heads": 2,
        "head_dim": 8,
        "d_ff": 64,
        "max_seq_len": 64,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "norm_eps": 1e-5,
        "tie_embeddings": False,
        "norm": "rms",
        "position": "rope",
        "mlp": "swiglu",
        "attn_bias": False,
        "attn_out_bias": False,
        "mlp_bias": False,
        "head_bias": False,
    }


def test_head_dim_follows_width_and_heads_unless_given() -> None:
    assert Config(d_model=48).head_dim == 12
    assert Config(head_dim=6).head_dim == 6
    # Free of d / h: they need not even divide.
    assert Config(d_model=30, head_dim=6).head_dim == 6


def test_equal_configs_hash_alike_and_different_ones_differ() -> None:
    assert hash(Config(head_dim=8)) == hash(Config())
    assert Config(head_dim=8) == Config()
    scaled = Config(rope_scaling=LLAMA3)
    assert hash(scaled) == hash(Config(rope_scaling=dict(reversed(LLAMA3.items()))))
    assert scaled != Config()


def test_frozen_and_by_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().d_model = 64  # type: ignore[misc]
    with pytest.raises(TypeError):
        Config(128)  # type: ignore[misc]


@pytest.mark.parametrize("name", ["tiny", "gpt2", "gpt2-untied", "smollm2-135m", "qwen2-0.5b", "book"])
def test_presets_are_configs(name: str) -> None:
    config = Config.preset(name)
    assert isinstance(config, Config)
    assert (name == "tiny") == (config == Config())


def test_gpt2_preset() -> None:
    config = Config.preset("gpt2")
    assert (config.norm, config.position, config.mlp, config.tie_embeddings) == (
        "layer",
        "learned",
        "gelu_tanh",
        True,
    )
    assert config == dataclasses.replace(Config.preset("gpt2-untied"), tie_embeddings=True)


def test_qwen2_has_biases_on_q_k_v_alone() -> None:
    config = Config.preset("qwen2-0.5b")
    assert (config.attn_bias, config.attn_out_bias, config.mlp_bias) == (True, False, False)


def test_unknown_preset_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"'gpt5'.*book, gpt2, gpt2-untied, qwen2-0.5b, smollm2-135m, tiny"):
        Config.preset("gpt5")


@pytest.mark.parametrize(
    "field", ["vocab_size", "n_layers", "d_model", "n_heads", "n_kv_heads", "head_dim", "d_ff", "max_seq_len"]
)
@pytest.mark.parametrize("value", [0, -1, 2.0, True, "4", [2]], ids=repr)
def test_integers(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{field} is ") as error:
        Config(**{field: value})
    assert repr(value) in str(error.value)


@pytest.mark.parametrize("field", ["rope_theta", "norm_eps"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan, "1e-5", None, True], ids=repr)
def test_positive_numbers(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{field} is ") as error:
        Config(**{field: value})
    assert repr(value) in str(error.value)


@pytest.mark.parametrize("field", ["tie_embeddings", "attn_bias", "attn_out_bias", "mlp_bias"])
@pytest.mark.parametrize("value", [1, 0, None, "yes"], ids=repr)
def test_flags(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{field} is {value!r}"):
        Config(**{field: value})


@pytest.mark.parametrize(
    "field, known",
    [("norm", "'rms', 'layer'"), ("position", "'rope', 'learned'"), ("mlp", "'swiglu', 'gelu_tanh', 'gelu'")],
)
@pytest.mark.parametrize("value", ["relu", "", None, 1], ids=repr)
def test_choices(field: str, known: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{field} is {value!r}.*{known}"):
        Config(**{field: value})


@pytest.mark.parametrize("value", [["rms"], {"a": 1}], ids=repr)
def test_choices_that_do_not_hash(value: Any) -> None:
    with pytest.raises(ValueError, match="^norm is "):
        Config(norm=value)


@pytest.mark.parametrize(
    "fields, named",
    [
        ({"n_heads": 4, "n_kv_heads": 3}, ["n_kv_heads", "3", "n_heads", "4"]),
        ({"n_heads": 2, "n_kv_heads": 4}, ["n_kv_heads", "4", "n_heads", "2"]),
        ({"d_model": 30}, ["head_dim", "n_heads", "4", "d_model", "30"]),
        ({"head_dim": 7}, ["head_dim", "7", "even"]),
        ({"d_model": 12}, ["head_dim", "3", "even"]),
        ({"position": "learned", "rope_scaling": LLAMA3}, ["rope_scaling", "learned"]),
    ],
)
def test_contradictions(fields: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the words follow
        Config(**fields)
    assert all(word in str(error.value) for word in named)


def test_an_odd_head_dim_is_fine_without_rotary_positions() -> None:
    assert Config(head_dim=7, position="learned").head_dim == 7


def test_integers_of_numpy_are_integers() -> None:
    assert Config(vocab_size=np.int64(11)) == Config(vocab_size=11)
    assert hash(Config(vocab_size=np.int64(11))) == hash(Config(vocab_size=11))


def test_rope_scaling_reads_both_spellings() -> None:
    expected = RopeScaling(rope_type="linear", factor=2.0)
    assert Config(rope_scaling={"rope_type": "linear", "factor": 2.0}).rope_scaling == expected
    assert Config(rope_scaling={"type": "linear", "factor": 2.0}).rope_scaling == expected
    assert Config(rope_scaling=expected).rope_scaling is expected
    assert Config(rope_scaling={"rope_type": "default"}) == Config()
    assert Config(rope_scaling=LLAMA3).rope_scaling.original_max_seq_len == 8192  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "value, named",
    [
        ({"rope_type": "yarn", "factor": 2.0}, ["yarn", "linear", "llama3"]),
        ({"rope_type": "dynamic", "factor": 2.0}, ["dynamic"]),
        ({"factor": 2.0}, ["rope_type"]),
        ({}, ["rope_type"]),
        ({"rope_type": "linear"}, ["factor"]),
        ({"rope_type": "linear", "factor": 0.0}, ["factor", "0.0"]),
        ({"rope_type": "linear", "factor": "2"}, ["factor", "'2'"]),
        ({"rope_type": "linear", "factor": 2.0, "beta": 1.0}, ["beta"]),
        ({k: v for k, v in LLAMA3.items() if k != "low_freq_factor"}, ["low_freq_factor"]),
        ({k: v for k, v in LLAMA3.items() if not k.startswith("original")}, ["original_max"]),
        (LLAMA3 | {"high_freq_factor": 1.0}, ["high_freq_factor", "1.0", "low_freq_factor"]),
        (LLAMA3 | {"original_max_position_embeddings": -1}, ["original_max_seq_len", "-1"]),
        ("linear", ["'linear'"]),
        (2.0, ["2.0"]),
    ],
    ids=repr,
)
def test_rope_scaling_contradictions(value: Any, named: list[str]) -> None:
    with pytest.raises(ValueError, match="rope_scaling") as error:
        Config(rope_scaling=value)
    assert all(word in str(error.value) for word in named)
