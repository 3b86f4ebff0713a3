"""The amount of a model's work: operations of a prefill, bytes that a token reads."""

from __future__ import annotations

import math

from tinyxp.config import Config
from tinyxp.params import Params
from tinyxp.shapes import parameter_shapes
from tinyxp.typing import Array

LOOKED_UP = ("embed.weight", "pos_embed.weight")


def prefill_flops(config: Config, tokens: int) -> int:
    """Operations of a prefill of one row with the head at the last position.

    For each token, a matrix of w numbers costs 2 w and a bias w; each position that the token sees costs
    every block 4 h hd. The head costs 2 n d once. Scores that causality hides do not count, though some
    libraries compute them.
    """
    blocks = {name: math.prod(shape) for name, shape in parameter_shapes(config).items() if "blocks." in name}
    linear = sum((1 if n.endswith(".bias") else 2) * w for n, w in blocks.items() if "_norm." not in n)
    seen = tokens * (tokens + 1) // 2
    attention = 4 * config.n_layers * config.n_heads * config.head_dim * seen
    return tokens * linear + attention + 2 * config.vocab_size * config.d_model


def matrices(config: Config) -> list[str]:
    """The names of the matrices that multiply a token: those of the blocks, and the head's."""
    blocks = [
        name for name, shape in parameter_shapes(config).items() if "blocks." in name and len(shape) == 2
    ]
    return [*blocks, LOOKED_UP[0] if config.tie_embeddings else "head.weight"]


def bytes_read(params: Params) -> int:
    """The bytes of weights that one token reads: all of them, but only one row of each embedding table."""
    tables = LOOKED_UP[1:] if params.config.tie_embeddings else LOOKED_UP
    sizes = {name: nbytes(x, params) for name, x in params.items()}
    return sum(size // params[n].shape[0] if n in tables else size for n, size in sizes.items())


def weight_bytes(params: Params) -> int:
    """The bytes of all weights."""
    return sum(nbytes(x, params) for x in params.values())


def cache_bytes(params: Params, batch: int, length: int) -> int:
    """The bytes of the keys and values of a cache: 2 L b g hd length numbers."""
    c = params.config
    numbers = 2 * c.n_layers * batch * c.n_kv_heads * c.head_dim * length
    return numbers * nbytes(params["embed.weight"], params) // math.prod(params["embed.weight"].shape)


def nbytes(x: Array, params: Params) -> int:
    """The bytes of an array of the parameters' library, as it reports them or by its dtype."""
    if isinstance(size := getattr(x, "nbytes", None), int):
        return size
    bits: int = params.xp.finfo(x.dtype).bits
    return math.prod(x.shape) * bits // 8
