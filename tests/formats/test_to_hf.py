"""Config.to_hf: what it writes reads back the same, and mixtures have no class."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tinyxp import Config, UnsupportedModelError
from tinyxp.config import GPT2, PRESETS, RopeScaling

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
