"""Words for activations: each means one function."""

from __future__ import annotations

from tinyxp.formats.activations import GELU, GELU_TANH, SILU


def test_no_word_means_two_functions() -> None:
    words = [*GELU, *GELU_TANH, *SILU]
    assert len(words) == len(set(words))
    # The words that are written.
    assert (GELU[0], GELU_TANH[0], SILU[0]) == ("gelu", "gelu_new", "silu")
