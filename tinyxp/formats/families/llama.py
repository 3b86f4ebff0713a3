"""Llama (Touvron et al. 2023) and Llama 3: RMS norms, rotary positions, a gated MLP, grouped heads."""

from __future__ import annotations

import re

from tinyxp.formats.activations import SILU
from tinyxp.formats.family import Choice, Family, Key, Window, all_heads
from tinyxp.formats.fields import Fields
from tinyxp.formats.names import Names, name_modules

SIZES = (
    Choice("hidden_act", "mlp", "silu", dict.fromkeys(SILU, "swiglu"), "a gated MLP knows"),
    Key("vocab_size", ("vocab_size",), 32000),
    Key("hidden_size", ("d_model",), 4096),
    Key("intermediate_size", ("d_ff",), 11008),
    Key("num_hidden_layers", ("n_layers",), 32),
    Key("num_attention_heads", ("n_heads",), 32),
    Key("num_key_value_heads", ("n_kv_heads",), all_heads, null=all_heads),
    Key("max_position_embeddings", ("max_seq_len",), 2048),
    Key("head_dim", ("head_dim",), None),
    Key("rms_norm_eps", ("norm_eps",), 1e-6, Fields.number),
    Key("tie_word_embeddings", ("tie_embeddings",), False, Fields.flag),
)

LLAMA = Family(
    model_type="llama",
    architecture="LlamaForCausalLM",
    keys=(
        *SIZES,
        Key("attention_bias", ("attn_bias", "attn_out_bias"), False, Fields.flag),
        Key("mlp_bias", ("mlp_bias",), False, Fields.flag),
    ),
    constants={"norm": "rms", "position": "rope"},
    window=Window(),
    whole_heads=True,
    names=Names(
        top=name_modules({"embed_tokens": "embed", "norm": "final_norm"}),
        block=name_modules(
            {
                "input_layernorm": "attn_norm",
                "self_attn.q_proj": "attn.q",
                "self_attn.k_proj": "attn.k",
                "self_attn.v_proj": "attn.v",
                "self_attn.o_proj": "attn.o",
                "post_attention_layernorm": "mlp_norm",
                "mlp.gate_proj": "mlp.gate",
                "mlp.up_proj": "mlp.up",
                "mlp.down_proj": "mlp.down",
            }
        ),
        block_prefix="layers.{}.",
        last=name_modules({"lm_head": "head"}),
    ),
    prefix="model.",
    buffers=re.compile(r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"),
)
