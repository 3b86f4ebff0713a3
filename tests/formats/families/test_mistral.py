"""Mistral: class defaults, and a window that no switch turns off."""

from __future__ import annotations

import pytest

from tinyxp import Config, UnsupportedModelError

from .defaults import names, read


def test_defaults_are_those_of_the_class() -> None:
    assert read("mistral", sliding_window=None) == Config(
        vocab_size=32000,
        n_layers=32,
        d_model=4096,
        n_heads=32,
        n_kv_heads=8,
        d_ff=14336,
        max_seq_len=131072,
        norm_eps=1e-6,
    )


@pytest.mark.parametrize("keys", [{}, {"use_sliding_window": False}, {"max_window_layers": 0}])
def test_the_window_is_always_on(keys: dict[str, object]) -> None:
    with pytest.raises(UnsupportedModelError, match="sliding_window is 4096: .* 131072"):
        read("mistral", **keys)
    assert read("mistral", max_position_embeddings=4096, **keys).max_seq_len == 4096


def test_no_window_is_written() -> None:
    written = Config(d_model=30, head_dim=8).to_hf()
    assert (written["model_type"], written["sliding_window"]) == ("mistral", None)


def test_there_are_no_biases() -> None:
    assert len(names("mistral")) == 3 + 9
