"""The faults of the files. Rows of name, plant, first, key (with its only block, if it is in one) and, if
any, further fields of ``planted.Planted``."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import files
from .port_table import LINEAR, LLAMA3, QWEN, SILENT, UNTIED

FILES: dict[str, list[tuple[Any, ...]]] = {
    "gpt2": [
        (
            "embedding rolled",
            files.changed("*.wte.weight", files.rolled),
            "embed",
            "vocabulary rows shifted by +1",
        ),
        (
            "positions rolled",
            files.changed("*.wpe.weight", files.rolled),
            "embed",
            "position rows shifted by +1",
        ),
        ("bfloat16", files.changed("*", files.to_bfloat16), "embed", "weights in bfloat16"),
        (
            "norms minus 1",
            files.changed("*.ln_*.weight", lambda x: x - 1),
            "blocks.0.attn_norm",
            "norm weight as w - 1",
        ),
        (
            "norms swapped",
            files.swapped("ln_1", "ln_2"),
            "blocks.0.attn_norm",
            "attn_norm and mlp_norm exchanged",
        ),
        ("eps 1e-6", files.configured(layer_norm_epsilon=1e-6), "blocks.0.attn_norm", "eps 1e-06"),
        ("layers swapped", files.layers(1, 0, 2), "blocks.0.attn_norm", "layers 0 and 1 exchanged"),
        ("layer doubled", files.layers(0, 0, 2), "blocks.1.attn_norm", "layer 0 in place of layer 1"),
        ("layer missing", files.layers(0, 2), "blocks.1.attn_norm", "layer 1 dropped"),
        ("last layer missing", files.layers(0, 1), "final_norm", "layer 2 dropped"),
        (
            "q and k swapped",
            files.changed("*.c_attn.*", files.thirds(1, 0, 2)),
            "blocks.0.attn.q",
            "attn.q and attn.k exchanged",
        ),
        (
            "k and v swapped",
            files.changed("*.c_attn.*", files.thirds(0, 2, 1)),
            "blocks.0.attn.k",
            "attn.k and attn.v exchanged",
        ),
        ("v, q, k", files.changed("*.c_attn.*", files.thirds(2, 0, 1)), "blocks.0.attn.q", "qkv cut as kvq"),
        (
            "k bias",
            files.changed("*.1.attn.c_attn.bias", files.without_k),
            "blocks.1.attn.k",
            "k bias dropped, block 1",
            SILENT,
        ),
        (
            "out bias",
            files.changed("*.2.attn.c_proj.bias", np.zeros_like),
            "blocks.2.attn.out",
            "attention output bias dropped, block 2",
        ),
        ("heads", files.configured(n_head=8), "blocks.0.attn.scores", "8 heads for 4"),
        (
            "o transposed",
            files.changed("*.1.attn.c_proj.weight", files.transposed),
            "blocks.1.attn.out",
            "attn.o transposed, block 1",
        ),
        (
            "signs flipped",
            files.flipped_signs("transformer.h.1.mlp.c_fc.weight"),
            "blocks.1.mlp.up",
            "other weights: blocks.1.mlp.up",
        ),
        (
            "erf gelu",
            files.configured(activation_function="gelu"),
            "blocks.0.mlp.hidden",
            "gelu for gelu_tanh",
        ),
        (
            "down doubled",
            files.changed("*.2.mlp.c_proj.weight", lambda x: 2 * x),
            "blocks.2.mlp.out",
            "mlp.down doubled, block 2",
        ),
        ("head not tied", files.untied, "logits", "head not tied"),
        (
            "head rolled",
            files.changed("lm_head.weight", files.rolled),
            "logits",
            "head rows shifted by +1",
            UNTIED,
        ),
    ],
    "llama": [
        (
            "embedding rolled",
            files.changed("*.embed_tokens.weight", files.rolled),
            "embed",
            "embedding rows shifted by +1",
        ),
        ("bfloat16", files.changed("*", files.to_bfloat16), "embed", "weights in bfloat16"),
        (
            "norms minus 1",
            files.changed("*norm.weight", lambda x: x - 1),
            "blocks.0.attn_norm",
            "norm weight as w - 1",
        ),
        (
            "norms swapped",
            files.swapped("input_layernorm", "post_attention_layernorm", "*.1.*"),
            "blocks.1.attn_norm",
            "attn_norm and mlp_norm exchanged, block 1",
        ),
        ("eps 1e-6", files.configured(rms_norm_eps=1e-6), "blocks.0.attn_norm", "eps 1e-06"),
        ("layers swapped", files.layers(0, 2, 1), "blocks.1.attn_norm", "layers 1 and 2 exchanged"),
        ("layer doubled", files.layers(0, 1, 1), "blocks.2.attn_norm", "layer 1 in place of layer 2"),
        ("layer missing", files.layers(0, 2), "blocks.1.attn_norm", "layer 1 dropped"),
        ("last layer missing", files.layers(0, 1), "final_norm", "layer 2 dropped"),
        (
            "q interleaved",
            files.interleaved_rows("q_proj", "num_attention_heads"),
            "blocks.0.attn.q",
            "q rows interleaved",
        ),
        (
            "k interleaved by n_heads",
            files.interleaved_rows("k_proj", "num_attention_heads"),
            "blocks.0.attn.k",
            "k permuted with 4 heads",
        ),
        (
            "gguf, q not interleaved",
            files.gguf_with(files.q_as_in_transformers),
            "blocks.0.attn.q",
            "q rows un-permuted twice",
        ),
        (
            "gguf, k interleaved by n_heads",
            files.gguf_with(files.k_by_n_heads),
            "blocks.0.attn.k",
            "k un-permuted from pairs with 4 heads",
        ),
        (
            "q and k swapped",
            files.swapped("q_proj", "k_proj"),
            "blocks.0.attn.q",
            "attn.q and attn.k exchanged",
            {"config": {"n_kv_heads": 4}},
        ),
        (
            "k and v swapped",
            files.swapped("k_proj", "v_proj"),
            "blocks.0.attn.k",
            "attn.k and attn.v exchanged",
        ),
        (
            "k bias",
            files.changed("*.1.self_attn.k_proj.bias", np.zeros_like),
            "blocks.1.attn.k",
            "k bias dropped, block 1",
            QWEN,
        ),
        (
            "signs flipped",
            files.flipped_signs("model.layers.2.self_attn.q_proj.weight"),
            "blocks.2.attn.q",
            "other weights: blocks.2.attn.q",
        ),
        (
            "v doubled",
            files.changed("*.0.self_attn.v_proj.weight", lambda x: 2 * x),
            "blocks.0.attn.v",
            "attn.v doubled, block 0",
        ),
        ("theta", files.rope(rope_theta=500000.0), "blocks.0.attn.q_rotated", "theta 500000"),
        (
            "rope scaling left out",
            files.unscaled_rope,
            "blocks.0.attn.q_rotated",
            "rope scaling left out",
            {"config": {"rope_scaling": LLAMA3}},
        ),
        (
            "rope factor",
            files.rope(factor=2.0),
            "blocks.0.attn.q_rotated",
            "rope scaling by 2",
            {"config": {"rope_scaling": LINEAR}},
        ),
        (
            "o transposed",
            files.changed("*.1.self_attn.o_proj.weight", files.transposed),
            "blocks.1.attn.out",
            "attn.o transposed, block 1",
        ),
        (
            "gate and up swapped",
            files.swapped("gate_proj", "up_proj"),
            "blocks.0.mlp.gate",
            "mlp.gate and mlp.up exchanged",
        ),
        ("head tied", files.tied, "logits", "head tied"),
        ("head rolled", files.changed("lm_head.weight", files.rolled), "logits", "head rows shifted by +1"),
    ],
}
