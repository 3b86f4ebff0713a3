"""Settings: the config of each family, and what is rejected."""

from __future__ import annotations

from typing import Any

import pytest

from tinyxp.train import Recipe
from tinyxp.train.settings import Settings


def settings(**more: Any) -> Settings:
    return Settings(recipe=Recipe(steps=1), **more)


def test_gpt2_is_the_default_family() -> None:
    config = settings().config(500)
    assert (config.norm, config.position, config.mlp) == ("layer", "learned", "gelu_tanh")
    assert (config.vocab_size, config.n_layers, config.d_model, config.max_seq_len) == (500, 4, 128, 128)
    assert (config.n_heads, config.n_kv_heads, config.d_ff, config.tie_embeddings) == (4, 4, 512, True)


@pytest.mark.parametrize("width, d_ff", [(24, 64), (48, 128), (72, 192), (128, 384)])
def test_a_gated_mlp_has_8_3_of_the_width_rounded_up_to_64(width: int, d_ff: int) -> None:
    config = settings(family="llama", width=width, heads=2, kv_heads=1, untied=True).config(500)
    assert (config.norm, config.position, config.mlp) == ("rms", "rope", "swiglu")
    assert (config.d_ff, config.n_kv_heads, config.tie_embeddings) == (d_ff, 1, False)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"width": 0}, "width is 0; it must be an integer of 1 or more"),
        ({"layers": 0}, "layers is 0; it must be an integer of 1 or more"),
        ({"heads": 0}, "heads is 0; it must be an integer of 1 or more"),
        ({"context": 0}, "context is 0; it must be an integer of 1 or more"),
        ({"kv_heads": 3}, "n_kv_heads is 3; it must divide n_heads, 4"),
    ],
)
def test_sizes_that_do_not_fit_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(**fields).config(500)
