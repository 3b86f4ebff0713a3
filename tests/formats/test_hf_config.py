"""Hugging Face's config.json read: rotary layouts, biases, what is refused and what changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tinyxp import CheckpointError, Config, UnsupportedModelError
from tinyxp.config import GPT2, PRESETS, RopeScaling
from tinyxp.files import JSON_LIMIT
from tinyxp.formats.activations import GELU, GELU_TANH

from .files import NO_WINDOW, ROPE_LAYOUTS, ROPE_LLAMA3, WINDOWS


@pytest.mark.parametrize("kind, kv_heads", [("llama", 32), ("mistral", 8), ("qwen2", 32)])
def test_missing_kv_heads(kind: str, kv_heads: int) -> None:
    assert Config.from_hf({"model_type": kind, **NO_WINDOW}).n_kv_heads == kv_heads
    few = {"model_type": kind, **NO_WINDOW, "num_attention_heads": 16, "num_key_value_heads": None}
    assert Config.from_hf(few).n_kv_heads == 16


@pytest.mark.parametrize("name, mlp", [(n, "gelu_tanh") for n in GELU_TANH] + [(n, "gelu") for n in GELU])
def test_gpt2_activation_is_read(name: str, mlp: str) -> None:
    assert Config.from_hf({"model_type": "gpt2", "activation_function": name}).mlp == mlp


@pytest.mark.parametrize("keys", ROPE_LAYOUTS)
def test_rope_in_both_layouts(keys: dict[str, Any]) -> None:
    config = Config.from_hf({"model_type": "llama", **keys})
    assert config.rope_theta == 5e5
    assert config.rope_scaling == RopeScaling(
        rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=8192
    )


def test_rope_of_older_files() -> None:
    linear = {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert Config.from_hf(linear).rope_scaling == RopeScaling(rope_type="linear", factor=2.0)
    default = {"model_type": "llama", "rope_scaling": {"type": "default"}, "rope_theta": None}
    assert Config.from_hf(default).rope_scaling is None
    assert Config.from_hf(default).rope_theta == 10000.0
    without = {k: v for k, v in ROPE_LLAMA3.items() if not k.startswith("original")}
    config = Config.from_hf({"model_type": "llama", "rope_scaling": without, "max_position_embeddings": 4096})
    assert config.rope_scaling is not None
    assert config.rope_scaling.original_max_seq_len == 4096


REFUSED = [
    ("gpt2", "scale_attn_weights", False),
    ("gpt2", "scale_attn_by_inverse_layer_idx", True),
    ("gpt2", "add_cross_attention", True),
    ("gpt2", "is_encoder_decoder", True),
    ("gpt2", "activation_function", "quick_gelu"),
    ("gpt2", "activation_function", "gelu_10"),
    ("gpt2", "pruned_heads", {"0": [1]}),
    ("llama", "hidden_act", "gelu"),
    ("llama", "partial_rotary_factor", 0.5),
    ("llama", "rope_parameters", {"rope_theta": 1e4, "partial_rotary_factor": 0.25}),
    ("llama", "rope_parameters", {"full_attention": {"rope_theta": 1e4}}),
    ("llama", "rope_scaling", {"type": "dynamic", "factor": 2.0}),
    ("llama", "rope_scaling", {"rope_type": "yarn", "factor": 2.0}),
    ("llama", "rope_scaling", {"rope_type": "longrope", "factor": 2.0}),
    ("llama", "rope_parameters", {"rope_type": "proportional"}),
    ("qwen2", "rope_scaling", {"type": "mrope", "mrope_section": [16, 24, 24]}),
    ("qwen2", "rope_scaling", {"rope_type": "default", "mrope_section": [16, 24, 24]}),
    ("llama", "attn_logit_softcapping", 50.0),
    ("llama", "final_logit_softcapping", 30.0),
    ("llama", "attention_multiplier", 0.5),
    ("llama", "embedding_multiplier", 12.0),
    ("llama", "logits_scaling", 8.0),
    ("llama", "residual_multiplier", 0.22),
    ("llama", "num_local_experts", 8),
    ("llama", "num_experts", 8),
    ("llama", "use_qk_norm", True),
    ("llama", "qk_layernorm", True),
    ("llama", "rope_interleaved", True),
    ("llama", "is_causal", False),
    ("llama", "use_bidirectional_attention", True),
    ("llama", "quantization_config", {"quant_method": "gptq"}),
    ("llama", "sliding_window", 128),
    ("mistral", "sliding_window", 4096),
    ("mistral", "attention_bias", True),
    ("mistral", "mlp_bias", True),
]


@pytest.mark.parametrize("kind, key, value", REFUSED)
def test_rejects_what_it_does_not_compute(kind: str, key: str, value: Any) -> None:
    source = {"model_type": kind} | (NO_WINDOW if kind == "mistral" else {})
    Config.from_hf(source)  # that key alone makes the difference
    with pytest.raises(UnsupportedModelError, match=key if key != "rope_parameters" else "rope|rotary"):
        Config.from_hf(source | {key: value})


@pytest.mark.parametrize("kind", ["gemma2", "gpt_neox", "mixtral", None, 3, ["llama"]])
def test_rejects_other_model_types(kind: object) -> None:
    with pytest.raises(UnsupportedModelError, match="model_type"):
        Config.from_hf({"model_type": kind})


@pytest.mark.parametrize(
    "kind, keys",
    [
        ("llama", {"is_decoder": True, "pretraining_tp": 2, "attention_dropout": 0.1, "use_cache": False}),
        ("llama", {"rope_interleaved": False, "num_experts": 0, "residual_multiplier": 1.0}),
        (
            "llama",
            {"final_logit_softcapping": None, "qk_layernorm": False, "layer_types": ["full_attention"]},
        ),
        ("llama", {"transformers.js_config": {"dtype": "q4"}, "experts_implementation": "eager"}),
        (
            "gpt2",
            {"reorder_and_upcast_attn": True, "summary_use_proj": True, "n_ctx": 1024, "pruned_heads": {}},
        ),
        ("mistral", {"sliding_window": 131072}),
        ("mistral", {"sliding_window": 512, "max_position_embeddings": 512}),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 64}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 32768}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 32}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 64, "layer_types": ["full_attention"] * 32}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": None}),
    ],
)
def test_takes_what_changes_nothing(kind: str, keys: dict[str, Any]) -> None:
    plain = {"model_type": kind} | (NO_WINDOW if kind == "mistral" else {})
    length = {k: v for k, v in keys.items() if k == "max_position_embeddings"}
    assert Config.from_hf(plain | keys) == Config.from_hf(plain | length)


@pytest.mark.parametrize("keys", WINDOWS)
def test_rejects_windows_of_single_layers(keys: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModelError, match="sliding_window is 4096"):
        Config.from_hf({"model_type": "qwen2", "use_sliding_window": True, **keys})


def test_rejects_the_window_that_mistral_has_by_default() -> None:
    with pytest.raises(UnsupportedModelError, match="sliding_window is 4096"):
        Config.from_hf({"model_type": "mistral"})


def test_biases() -> None:
    def biases(**keys: Any) -> tuple[bool, bool, bool]:
        c = Config.from_hf(keys)
        return c.attn_bias, c.attn_out_bias, c.mlp_bias

    assert biases(model_type="llama", attention_bias=True) == (True, True, False)
    assert biases(model_type="llama", mlp_bias=True) == (False, False, True)
    assert biases(model_type="qwen2") == (True, False, False)
    assert biases(model_type="gpt2") == (True, True, True)


@pytest.mark.parametrize(
    "kind, key, value",
    [
        ("llama", "hidden_size", "512"),
        ("llama", "hidden_size", 512.0),
        ("llama", "hidden_size", 0),
        ("llama", "num_hidden_layers", -1),
        ("llama", "vocab_size", True),
        ("llama", "rms_norm_eps", "1e-5"),
        ("llama", "rms_norm_eps", float("nan")),
        ("llama", "rope_theta", -1.0),
        ("llama", "tie_word_embeddings", "yes"),
        ("llama", "num_key_value_heads", 3),
        ("llama", "num_attention_heads", 3),
        ("llama", "rope_scaling", "linear"),
        ("llama", "sliding_window", "all"),
        ("llama", "layer_types", 3),
        ("llama", "max_window_layers", "x"),
        ("llama", "head_dim", 7),
        ("gpt2", "n_head", 7),
        ("gpt2", "hidden_size", 512.5),
        ("gpt2", "layer_norm_epsilon", 0),
        ("gpt2", "n_inner", "x"),
    ],
)
def test_bad_values_name_their_key(kind: str, key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=key) as caught:
        Config.from_hf({"model_type": kind, key: value})
    assert not isinstance(caught.value, UnsupportedModelError)


def test_gpt2_takes_the_common_names_of_sizes() -> None:
    keys = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 9}
    config = Config.from_hf({"model_type": "gpt2", **keys})
    assert (config.d_model, config.n_layers, config.n_heads, config.max_seq_len) == (32, 3, 4, 9)
    with pytest.raises(ValueError, match="n_embd is 64, but hidden_size is 32"):
        Config.from_hf({"model_type": "gpt2", "n_embd": 64, **keys})


@pytest.mark.parametrize(
    "text, says",
    [
        ("{", "is not JSON"),
        ("[1]", "holds a JSON list"),
        ("", "is empty"),
        ('{"x": {"a": 1, "b": 2, "a": 3}}', "has the key 'a' twice"),
        ("[" * 100_000, "is not JSON"),
        ('{"a": ' + "1" * 5000 + "}", "is not JSON"),
        (" " * (JSON_LIMIT + 1), r"is 16,777,217 bytes long; the limit is 16,777,216"),
    ],
    ids=range(7),
)
def test_files_that_are_no_config(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    for source in (path, tmp_path, str(path)):
        with pytest.raises(CheckpointError, match=says) as caught:
            Config.from_hf(source)
        assert str(path) in str(caught.value)


def test_a_bad_value_in_a_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": -4}')
    with pytest.raises(CheckpointError, match=r"config\.json: hidden_size is -4"):
        Config.from_hf(tmp_path)


def test_real_configs(test_data: Path) -> None:
    assert Config.from_hf(test_data / "smollm2") == Config.preset("smollm2-135m")
    nano = Config.from_hf(test_data / "gpt-nano-sort" / "config.json")
    assert (nano.vocab_size, nano.max_seq_len, nano.d_ff, nano.tie_embeddings) == (3, 11, 192, False)


FAMILIES = {
    "gpt2": GPT2,
    "llama": {"norm": "rms", "position": "rope", "mlp": "swiglu"},
    "qwen2": {"attn_bias": True},
}


WIDTHS = st.integers(1, 4)


@st.composite
def representable(draw: st.DrawFn) -> tuple[str, Config]:
    kind = draw(st.sampled_from(sorted(FAMILIES)))
    kv_heads, group, half = draw(WIDTHS), draw(WIDTHS), draw(WIDTHS)
    heads = kv_heads * group
    shared = FAMILIES[kind] | {
        "vocab_size": draw(st.integers(1, 999)),
        "n_layers": draw(WIDTHS),
        "n_heads": heads,
        "d_model": heads * half * 2,
        "d_ff": draw(st.integers(1, 99)),
        "max_seq_len": draw(st.integers(1, 9999)),
        "norm_eps": draw(st.floats(1e-9, 1.0)),
        "tie_embeddings": draw(st.booleans()),
    }
    if kind == "gpt2":
        return kind, Config(**shared, n_kv_heads=heads) if draw(st.booleans()) else Config(
            **(shared | {"mlp": "gelu"}), n_kv_heads=heads
        )
    bias = draw(st.booleans())
    own = (
        {"attn_bias": bias, "attn_out_bias": bias, "mlp_bias": draw(st.booleans())} if kind == "llama" else {}
    )
    low, factor = draw(st.floats(0.1, 9.0)), draw(st.floats(1.0, 99.0))
    scaling = draw(
        st.sampled_from(
            [
                None,
                RopeScaling(rope_type="linear", factor=factor),
                RopeScaling(
                    rope_type="llama3",
                    factor=factor,
                    low_freq_factor=low,
                    high_freq_factor=low * 2,
                    original_max_seq_len=draw(st.integers(1, 9999)),
                ),
            ]
        )
    )
    return kind, Config(
        **(shared | own),
        n_kv_heads=kv_heads,
        head_dim=2 * draw(WIDTHS),
        rope_theta=draw(st.floats(1.0, 1e7)),
        rope_scaling=scaling,
    )


@given(representable())
def test_round_trip(case: tuple[str, Config]) -> None:
    kind, config = case
    written = json.loads(json.dumps(config.to_hf()))
    assert written["model_type"] == kind
    assert Config.from_hf(written) == config
    # transformers 4 reads these keys, 5 the others; each alone tells the same.
    if kind != "gpt2":
        assert Config.from_hf({k: v for k, v in written.items() if k != "rope_parameters"}) == config
        newer = {k: v for k, v in written.items() if k not in ("rope_theta", "rope_scaling")}
        assert Config.from_hf(newer) == config


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_round_trip(name: str) -> None:
    config = Config.preset(name)
    assert Config.from_hf(config.to_hf()) == config


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "layer"},
        {"position": "learned"},
        {"mlp": "gelu"},
        {"attn_out_bias": True},
        {"mlp": "relu2"},
        {"head_bias": True},
        {"attn_bias": True, "mlp_bias": True},
    ],
)
def test_mixtures_have_no_class(changes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModelError, match=next(iter(changes))):
        replace(Config(), **changes).to_hf()


def test_gpt2_with_grouped_heads_has_no_class() -> None:
    config = replace(Config.preset("book"), n_kv_heads=2)
    with pytest.raises(UnsupportedModelError, match="n_kv_heads 2"):
        config.to_hf()
