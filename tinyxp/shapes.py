"""The names, shapes and numbers of a decoder's parameters, which its config decides."""

from __future__ import annotations

from typing import Any

from tinyxp.config import MLPS, NORMS, Config

Shapes = dict[str, tuple[int, ...]]


def as_config(config: Any) -> Config:
    """Return config; ValueError if it is not a Config."""
    if not isinstance(config, Config):
        raise ValueError(f"config is a {type(config).__name__}; it must be tinyxp.Config")
    return config


def linear_shapes(name: str, outputs: int, inputs: int, bias: bool) -> Shapes:
    """Return the shapes of one linear map: its weight (outputs, inputs) and, if it has one, its bias."""
    weight: Shapes = {f"{name}.weight": (outputs, inputs)}
    return weight | {f"{name}.bias": (outputs,)} if bias else weight


def norm_shapes(name: str, config: Config) -> Shapes:
    """Return the shapes of one norm over the model width."""
    return {f"{name}.{part}": (config.d_model,) for part in NORMS[config.norm].parts}


def block_shapes(config: Config) -> Shapes:
    """Return the shapes of one block's parameters by their names within the block."""
    d, f = config.d_model, config.d_ff
    q_width, kv_width = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
    return (
        norm_shapes("attn_norm", config)
        | linear_shapes("attn.q", q_width, d, config.attn_bias)
        | linear_shapes("attn.k", kv_width, d, config.attn_bias)
        | linear_shapes("attn.v", kv_width, d, config.attn_bias)
        | linear_shapes("attn.o", d, q_width, config.attn_out_bias)
        | norm_shapes("mlp_norm", config)
        | (linear_shapes("mlp.gate", f, d, config.mlp_bias) if MLPS[config.mlp].gated else {})
        | linear_shapes("mlp.up", f, d, config.mlp_bias)
        | linear_shapes("mlp.down", d, f, config.mlp_bias)
    )


def parameter_shapes(config: Config) -> Shapes:
    """Return the shapes of all parameters by name, in the order of the forward pass."""
    n, d = config.vocab_size, config.d_model
    shapes: Shapes = {"embed.weight": (n, d)}
    if config.position == "learned":
        shapes["pos_embed.weight"] = (config.max_seq_len, d)
    for i in range(config.n_layers):
        shapes |= {f"blocks.{i}.{name}": shape for name, shape in block_shapes(config).items()}
    shapes |= norm_shapes("final_norm", config)
    if not config.tie_embeddings:
        shapes["head.weight"] = (n, d)
    if config.head_bias:
        shapes["head.bias"] = (n,)
    return shapes


def count_parameters(config: Config) -> dict[str, int]:
    """Return how many numbers the model holds, by group and in ``total``; a tied head counts in ``embed``.

    embed n d; pos_embed max_seq_len d; attention L (2 h + 2 g) hd d; mlp 3 L f d (2 L f d without a gate);
    norm (2 L + 1) d, twice that with biases; head n d if untied. Biases count with their matrix.
    """
    c = as_config(config)
    d, q_width, kv_width = c.d_model, c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim
    inputs = 2 if MLPS[c.mlp].gated else 1
    attention = 2 * d * (q_width + kv_width)
    attention += (q_width + 2 * kv_width) * c.attn_bias + d * c.attn_out_bias
    mlp = (inputs + 1) * c.d_ff * d + (inputs * c.d_ff + d) * c.mlp_bias
    counts = {
        "embed": c.vocab_size * d,
        "pos_embed": c.max_seq_len * d * (c.position == "learned"),
        "attention": c.n_layers * attention,
        "mlp": c.n_layers * mlp,
        "norm": (2 * c.n_layers + 1) * d * len(NORMS[c.norm].parts),
        "head": c.vocab_size * (d * (not c.tie_embeddings) + c.head_bias),
    }
    return counts | {"total": sum(counts.values())}
