"""llama.cpp's architectures: the keys, constants and tensor names of each, as data.

All matrices are (out, in): llama.cpp's converter has transposed GPT-2's. Only architecture llama stores the
rows of q and k in neighbouring pairs, since ggml rotates the others by halves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tinyxp.config import GPT2
from tinyxp.formats.names import Module, Names, name_modules
from tinyxp.formats.steps import unpermute_keys, unpermute_queries


@dataclass(frozen=True)
class Architecture:
    """One ``general.architecture`` of GGUF."""

    epsilon: str
    """The key of the norms' epsilon."""
    constants: Mapping[str, Any]
    """The fields of Config that no key sets."""
    names: Names
    bias_tensors: Mapping[str, str] = field(default_factory=dict)
    """The fields of Config that say whether a bias exists -> the tensor whose presence tells."""


_ENDS = {"token_embd": "embed", "output_norm": "final_norm", "output": "head"}
_MLP = {"ffn_norm": "mlp_norm", "ffn_gate": "mlp.gate", "ffn_up": "mlp.up", "ffn_down": "mlp.down"}
_BIAS_TENSORS = {
    "attn_bias": "blk.0.attn_q.bias",
    "attn_out_bias": "blk.0.attn_output.bias",
    "mlp_bias": "blk.0.ffn_up.bias",
}
_ROTARY = {"norm": "rms", "position": "rope", "mlp": "swiglu"}
_GPT2 = {field: value for field, value in GPT2.items() if field != "tie_embeddings"}


def _name_rotary(queries: Module, keys: Module) -> Names:
    return Names(
        top=name_modules(_ENDS),
        block=(
            Module("attn_norm", ("attn_norm",)),
            queries,
            keys,
            *name_modules({"attn_v": "attn.v", "attn_output": "attn.o"} | _MLP),
        ),
        block_prefix="blk.{}.",
    )


ARCHITECTURES = {
    "llama": Architecture(
        epsilon="attention.layer_norm_rms_epsilon",
        constants=_ROTARY,
        names=_name_rotary(
            Module("attn_q", ("attn.q",), (unpermute_queries,)),
            Module("attn_k", ("attn.k",), (unpermute_keys,)),
        ),
        bias_tensors=_BIAS_TENSORS,
    ),
    "gpt2": Architecture(
        epsilon="attention.layer_norm_epsilon",
        constants=_GPT2,
        names=Names(
            top=name_modules({"position_embd": "pos_embed"} | _ENDS),
            block=(
                Module("attn_qkv", ("attn.q", "attn.k", "attn.v")),
                *name_modules({"attn_norm": "attn_norm", "attn_output": "attn.o"} | _MLP),
            ),
            block_prefix="blk.{}.",
        ),
    ),
    "qwen2": Architecture(
        epsilon="attention.layer_norm_rms_epsilon",
        constants=_ROTARY,
        names=_name_rotary(Module("attn_q", ("attn.q",)), Module("attn_k", ("attn.k",))),
        bias_tensors=_BIAS_TENSORS,
    ),
}
