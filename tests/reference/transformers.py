"""The tests' models as Hugging Face's transformers builds them."""

from __future__ import annotations

from typing import Any

import pytest

from tinyxp import Params

from .names import is_gpt2, to_theirs


def their_model(params: Params, dtype: str = "float32") -> Any:
    """The model of transformers with these parameters, eager attention, in ``dtype``."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    c = params.config
    shared = {
        "vocab_size": c.vocab_size,
        "tie_word_embeddings": c.tie_embeddings,
        "attn_implementation": "eager",
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if is_gpt2(c):
        theirs = transformers.GPT2Config(
            n_positions=c.max_seq_len,
            n_embd=c.d_model,
            n_layer=c.n_layers,
            n_head=c.n_heads,
            n_inner=c.d_ff,
            activation_function={"gelu_tanh": "gelu_new", "gelu": "gelu"}[c.mlp],
            layer_norm_epsilon=c.norm_eps,
            **shared,
        )
    else:
        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": c.rope_theta}
        if c.rope_scaling is not None:
            s = c.rope_scaling
            rope |= {"rope_type": s.rope_type, "factor": s.factor}
            if s.rope_type == "llama3":
                rope |= {
                    "low_freq_factor": s.low_freq_factor,
                    "high_freq_factor": s.high_freq_factor,
                    "original_max_position_embeddings": s.original_max_seq_len,
                }
        is_qwen2 = c.attn_bias and not c.attn_out_bias
        extra = {} if is_qwen2 else {"attention_bias": c.attn_bias, "mlp_bias": c.mlp_bias}
        theirs = (transformers.Qwen2Config if is_qwen2 else transformers.LlamaConfig)(
            hidden_size=c.d_model,
            intermediate_size=c.d_ff,
            num_hidden_layers=c.n_layers,
            num_attention_heads=c.n_heads,
            num_key_value_heads=c.n_kv_heads,
            head_dim=c.head_dim,
            max_position_embeddings=c.max_seq_len,
            rms_norm_eps=c.norm_eps,
            rope_parameters=rope,
            **shared,
            **extra,
        )
    # Made without memory or initialisation, then given its weights: GPT-2 small costs its size and no more.
    model = transformers.AutoModelForCausalLM.from_config(theirs, dtype=getattr(torch, dtype))
    state = {
        name: torch.tensor(x).to(getattr(torch, dtype)) for name, x in to_theirs(dict(params), c).items()
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert missing in ([], ["lm_head.weight"])
    model.tie_weights()
    return model.eval()
