"""GPT-2 (Radford et al. 2019): layer norms, learned positions, an ungated MLP, biases everywhere."""

from __future__ import annotations

import re

from tinyxp.formats.activations import GELU, GELU_TANH
from tinyxp.formats.family import Choice, Family, Fixed, Key, all_heads
from tinyxp.formats.fields import Fields
from tinyxp.formats.names import Module, Names, name_modules
from tinyxp.formats.steps import transpose

GPT2 = Family(
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    keys=(
        Choice(
            "activation_function",
            "mlp",
            "gelu_new",
            dict.fromkeys(GELU_TANH, "gelu_tanh") | dict.fromkeys(GELU, "gelu"),
        ),
        Key("n_head", ("n_heads",), 12, alias="num_attention_heads"),
        Key("n_embd", ("d_model",), 768, alias="hidden_size"),
        Key("vocab_size", ("vocab_size",), 50257),
        Key("n_layer", ("n_layers",), 12, alias="num_hidden_layers"),
        Key("n_inner", ("d_ff",), lambda values: 4 * values["d_model"]),
        Key("n_positions", ("max_seq_len",), 1024, alias="max_position_embeddings"),
        Key("layer_norm_epsilon", ("norm_eps",), 1e-5, Fields.number),
        Key("tie_word_embeddings", ("tie_embeddings",), True, Fields.flag),
    ),
    constants={
        "n_kv_heads": all_heads,
        "norm": "layer",
        "position": "learned",
        "attn_bias": True,
        "attn_out_bias": True,
        "mlp_bias": True,
    },
    fixed=(
        Fixed("scale_attn_weights", True, "scores are always scaled by 1/sqrt(head_dim)"),
        Fixed("scale_attn_by_inverse_layer_idx", False, "scores are scaled alike in every layer"),
    ),
    names=Names(
        top=name_modules({"wte": "embed", "wpe": "pos_embed", "ln_f": "final_norm"}),
        block=(
            Module("ln_1", ("attn_norm",)),
            Module("attn.c_attn", ("attn.q", "attn.k", "attn.v"), (transpose,)),
            Module("attn.c_proj", ("attn.o",), (transpose,)),
            Module("ln_2", ("mlp_norm",)),
            Module("mlp.c_fc", ("mlp.up",), (transpose,)),
            Module("mlp.c_proj", ("mlp.down",), (transpose,)),
        ),
        block_prefix="h.{}.",
        last=name_modules({"lm_head": "head"}),
    ),
    prefix="transformer.",
    buffers=re.compile(r"h\.\d+\.attn\.(bias|masked_bias)"),
)
