"""Qwen2 (Yang et al. 2024): Llama with biases on q, k and v, and windows in some layers if switched on."""

from __future__ import annotations

from tinyxp.formats.families.llama import LLAMA, SIZES
from tinyxp.formats.family import Window

QWEN2 = LLAMA.derive(
    "qwen2",
    "Qwen2ForCausalLM",
    {
        "vocab_size": 151936,
        "intermediate_size": 22016,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
    },
    keys=SIZES,
    constants=dict(LLAMA.constants) | {"attn_bias": True, "attn_out_bias": False, "mlp_bias": False},
    window=Window(default=4096, on=False, by_layer=True),
    whole_heads=False,
)
