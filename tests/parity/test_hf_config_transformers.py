"""Hugging Face's config.json against transformers' own classes: missing keys, activations, windows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.formats.files import NO_WINDOW, ROPE_LAYOUTS, WINDOWS
from tinyxp import Config
from tinyxp.formats.activations import GELU, GELU_TANH, SILU

transformers = pytest.importorskip("transformers")

CLASSES = {
    "gpt2": transformers.GPT2Config,
    "llama": transformers.LlamaConfig,
    "mistral": transformers.MistralConfig,
    "qwen2": transformers.Qwen2Config,
}


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("kv", [{}, {"num_key_value_heads": None}, {"num_key_value_heads": 4}])
def test_missing_keys_mean_what_transformers_means(kind: str, kv: dict[str, Any]) -> None:
    given_keys = kv | (NO_WINDOW if kind == "mistral" else {})
    ours = Config.from_hf({"model_type": kind, **given_keys})
    if kind == "mistral":  # whose class takes no null, for all that it handles one
        given_keys = {k: v for k, v in given_keys.items() if k == "sliding_window" or v is not None}
        ours = Config.from_hf({"model_type": kind, **given_keys})
    theirs = CLASSES[kind](**given_keys)
    heads = theirs.num_attention_heads
    assert ours.vocab_size == theirs.vocab_size
    assert ours.n_layers == theirs.num_hidden_layers
    assert ours.d_model == theirs.hidden_size
    assert ours.n_heads == heads
    assert ours.max_seq_len == theirs.max_position_embeddings
    assert ours.tie_embeddings == theirs.tie_word_embeddings
    assert ours.head_dim == theirs.hidden_size // heads
    if kind == "gpt2":
        assert ours.d_ff == 4 * theirs.n_embd
        assert ours.n_kv_heads == heads
        assert ours.norm_eps == theirs.layer_norm_epsilon
    else:
        assert ours.d_ff == theirs.intermediate_size
        assert ours.n_kv_heads == theirs.num_key_value_heads
        assert ours.norm_eps == theirs.rms_norm_eps
        assert ours.rope_theta == theirs.rope_parameters["rope_theta"]
    # A complete file of the class says the same.
    assert Config.from_hf(theirs.to_dict()) == ours


def test_activations_that_are_taken_are_the_form_they_are_taken_for() -> None:
    torch = pytest.importorskip("torch")
    from transformers.activations import ACT2FN

    x = torch.linspace(-6, 6, 1001, dtype=torch.float64)
    tanh = torch.nn.functional.gelu(x, approximate="tanh")
    for names, wanted in (
        (GELU_TANH, tanh),
        (GELU, torch.nn.functional.gelu(x)),
        (SILU, torch.nn.functional.silu(x)),
    ):
        for name in names:
            assert float((ACT2FN[name](x) - wanted).abs().max()) < 1e-9, (
                name
            )  # the two forms differ by 4.7e-4


@pytest.mark.parametrize("keys", ROPE_LAYOUTS)
def test_rope_in_both_layouts(keys: dict[str, Any]) -> None:
    theirs = transformers.LlamaConfig(**json.loads(json.dumps(keys))).rope_parameters
    assert theirs["rope_theta"] == 5e5
    assert theirs["factor"] == 32.0


@pytest.mark.parametrize("keys", WINDOWS)
def test_rejected_windows_are_windows(keys: dict[str, Any]) -> None:
    theirs = transformers.Qwen2Config(use_sliding_window=True, **keys)
    assert "sliding_attention" in theirs.layer_types
    assert transformers.MistralConfig().sliding_window == 4096
