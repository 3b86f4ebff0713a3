"""Mistral (Jiang et al. 2023): Llama without biases, with an attention window."""

from __future__ import annotations

from tinyxp.formats.families.llama import LLAMA, SIZES
from tinyxp.formats.family import Window

MISTRAL = LLAMA.derive(
    "mistral",
    "MistralForCausalLM",
    {"intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072},
    keys=SIZES,
    constants=dict(LLAMA.constants) | {"attn_bias": False, "attn_out_bias": False, "mlp_bias": False},
    window=Window(default=4096, switched=False),
    written={"sliding_window": None},
    whole_heads=False,
)
