"""The faults of the files: how each is planted, where it is first seen, and its cause. Rows of name, plant,
first, cause and, where there are any, further fields of ``planted.Planted``."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import files
from .port_table import LINEAR, LLAMA3, QWEN, SILENT, UNTIED

FILES: dict[str, list[tuple[Any, ...]]] = {
    "gpt2": [
        ("embedding rolled", files.changed("*.wte.weight", files.rolled), "embed", "vocabulary shifted"),
        ("positions rolled", files.changed("*.wpe.weight", files.rolled), "embed", "positions off by one"),
        ("bfloat16", files.changed("*", files.to_bfloat16), "embed", "bfloat16"),
        (
            "norms minus 1",
            files.changed("*.ln_*.weight", lambda x: x - 1),
            "blocks.0.attn_norm",
            "norm weight minus 1",
        ),
        (
            "norms swapped",
            files.swapped("ln_1", "ln_2"),
            "blocks.0.attn_norm",
            "swapped: attn_norm, mlp_norm",
        ),
        ("eps 1e-6", files.configured(layer_norm_epsilon=1e-6), "blocks.0.attn_norm", "eps"),
        ("layers swapped", files.layers(1, 0, 2), "blocks.0.attn_norm", "layers swapped: 0, 1"),
        ("layer doubled", files.layers(0, 0, 2), "blocks.1.attn_norm", "layer twice"),
        ("layer missing", files.layers(0, 2), "blocks.1.attn_norm", "layer missing"),
        ("last layer missing", files.layers(0, 1), "final_norm", "layer missing"),
        (
            "q and k swapped",
            files.changed("*.c_attn.*", files.thirds(1, 0, 2)),
            "blocks.0.attn.q",
            "swapped: q, k",
        ),
        (
            "k and v swapped",
            files.changed("*.c_attn.*", files.thirds(0, 2, 1)),
            "blocks.0.attn.k",
            "swapped: k, v",
        ),
        ("v, q, k", files.changed("*.c_attn.*", files.thirds(2, 0, 1)), "blocks.0.attn.q", "qkv split"),
        (
            "k bias",
            files.changed("*.1.attn.c_attn.bias", files.without_k),
            "blocks.1.attn.k",
            "bias missing: blocks.1.attn.k",
            SILENT,
        ),
        (
            "out bias",
            files.changed("*.2.attn.c_proj.bias", np.zeros_like),
            "blocks.2.attn.out",
            "bias missing: blocks.2.attn.o",
        ),
        ("heads", files.configured(n_head=8), "blocks.0.attn.scores", "number of heads"),
        (
            "o transposed",
            files.changed("*.1.attn.c_proj.weight", files.transposed),
            "blocks.1.attn.out",
            "transposed: blocks.1.attn.o",
        ),
        (
            "signs flipped",
            files.flipped_signs("transformer.h.1.mlp.c_fc.weight"),
            "blocks.1.mlp.up",
            "damaged: blocks.1.mlp.up",
        ),
        ("erf gelu", files.configured(activation_function="gelu"), "blocks.0.mlp.hidden", "activation"),
        (
            "down doubled",
            files.changed("*.2.mlp.c_proj.weight", lambda x: 2 * x),
            "blocks.2.mlp.out",
            "scaled: blocks.2.mlp.down",
        ),
        ("head not tied", files.untied, "logits", "head not tied"),
        ("head rolled", files.changed("lm_head.weight", files.rolled), "logits", "head shifted", UNTIED),
    ],
    "llama": [
        (
            "embedding rolled",
            files.changed("*.embed_tokens.weight", files.rolled),
            "embed",
            "vocabulary shifted",
        ),
        ("bfloat16", files.changed("*", files.to_bfloat16), "embed", "bfloat16"),
        (
            "norms minus 1",
            files.changed("*norm.weight", lambda x: x - 1),
            "blocks.0.attn_norm",
            "norm weight minus 1",
        ),
        (
            "norms swapped",
            files.swapped("input_layernorm", "post_attention_layernorm", "*.1.*"),
            "blocks.1.attn_norm",
            "swapped: attn_norm, mlp_norm",
        ),
        ("eps 1e-6", files.configured(rms_norm_eps=1e-6), "blocks.0.attn_norm", "eps"),
        ("layers swapped", files.layers(0, 2, 1), "blocks.1.attn_norm", "layers swapped: 1, 2"),
        ("layer doubled", files.layers(0, 1, 1), "blocks.2.attn_norm", "layer twice"),
        ("layer missing", files.layers(0, 2), "blocks.1.attn_norm", "layer missing"),
        ("last layer missing", files.layers(0, 1), "final_norm", "layer missing"),
        (
            "q interleaved",
            files.interleaved_rows("q_proj", "num_attention_heads"),
            "blocks.0.attn.q",
            "interleaved: blocks.*.attn.q",
        ),
        (
            "k interleaved by n_heads",
            files.interleaved_rows("k_proj", "num_attention_heads"),
            "blocks.0.attn.k",
            "interleaved by n_heads: blocks.*.attn.k",
        ),
        (
            "gguf, q not interleaved",
            files.gguf_with(files.q_as_in_transformers),
            "blocks.0.attn.q",
            "interleaved: blocks.*.attn.q",
        ),
        (
            "gguf, k interleaved by n_heads",
            files.gguf_with(files.k_by_n_heads),
            "blocks.0.attn.k",
            "interleaved by n_heads: blocks.*.attn.k",
        ),
        (
            "q and k swapped",
            files.swapped("q_proj", "k_proj"),
            "blocks.0.attn.q",
            "swapped: q, k",
            {"config": {"n_kv_heads": 4}},
        ),
        ("k and v swapped", files.swapped("k_proj", "v_proj"), "blocks.0.attn.k", "swapped: k, v"),
        (
            "k bias",
            files.changed("*.1.self_attn.k_proj.bias", np.zeros_like),
            "blocks.1.attn.k",
            "bias missing: blocks.1.attn.k",
            QWEN,
        ),
        (
            "signs flipped",
            files.flipped_signs("model.layers.2.self_attn.q_proj.weight"),
            "blocks.2.attn.q",
            "damaged: blocks.2.attn.q",
        ),
        (
            "v doubled",
            files.changed("*.0.self_attn.v_proj.weight", lambda x: 2 * x),
            "blocks.0.attn.v",
            "scaled: blocks.0.attn.v",
        ),
        ("theta", files.rope(rope_theta=500000.0), "blocks.0.attn.q_rotated", "theta"),
        (
            "rope scaling left out",
            files.unscaled_rope,
            "blocks.0.attn.q_rotated",
            "rope scaling",
            {"config": {"rope_scaling": LLAMA3}},
        ),
        (
            "rope factor",
            files.rope(factor=2.0),
            "blocks.0.attn.q_rotated",
            "rope scaling",
            {"config": {"rope_scaling": LINEAR}},
        ),
        (
            "o transposed",
            files.changed("*.1.self_attn.o_proj.weight", files.transposed),
            "blocks.1.attn.out",
            "transposed: blocks.1.attn.o",
        ),
        (
            "gate and up swapped",
            files.swapped("gate_proj", "up_proj"),
            "blocks.0.mlp.gate",
            "swapped: gate, up",
        ),
        ("head tied", files.tied, "logits", "head tied"),
        ("head rolled", files.changed("lm_head.weight", files.rolled), "logits", "head shifted"),
    ],
}
