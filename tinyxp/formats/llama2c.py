"""llama2.c's first checkpoint format: seven int32 and float32 matrices. Read only.

Source: https://github.com/karpathy/llama2.c, export.py (legacy_export) and run.c.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tinyxp.config import Config
from tinyxp.errors import CheckpointError
from tinyxp.files import decode_floats, map_file, name_in_errors, pickle_error
from tinyxp.formats.checkpoint import Checkpoint, Tensor, match_rules
from tinyxp.formats.names import Module, name_modules
from tinyxp.formats.rules import Rule
from tinyxp.formats.steps import unpermute_keys, unpermute_queries
from tinyxp.shapes import block_shapes

HEADER = struct.Struct("<7i")
FIELDS = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len")
# Between the embedding and the final norm, in the file's order: each holds all layers.
BLOCK = (
    *name_modules({"attention_norm": "attn_norm"}),
    Module("wq", ("attn.q",), (unpermute_queries,)),
    Module("wk", ("attn.k",), (unpermute_keys,)),
    *name_modules({"wv": "attn.v", "wo": "attn.o", "ffn_norm": "mlp_norm"}),
    *name_modules({"w1": "mlp.gate", "w2": "mlp.down", "w3": "mlp.up"}),
)
_NEWER = b"24ka"  # "ak42" of versions 1 and 2, little-endian


def list_rules(config: Config) -> Iterator[Rule]:
    """Yield the rules of the tensors in the file's order; wq[3] is layer 3 of wq."""
    yield Rule("tok_emb", ("embed.weight",))
    for module in BLOCK:
        steps = tuple(build(config) for build in module.steps)
        for i in range(config.n_layers):
            yield Rule(f"{module.name}[{i}]", (f"blocks.{i}.{module.holds[0]}.weight",), steps)
    yield Rule("final_norm", ("final_norm.weight",))
    yield Rule("freqs_cos", skipped="rotary table")
    yield Rule("freqs_sin", skipped="rotary table")
    if not config.tie_embeddings:
        yield Rule("wcls", ("head.weight",))


def open_llama2c(path: Path) -> Checkpoint:
    """Open a llama2.c ``.bin`` and check its size against its header.

    A negative vocabulary size means that the head is not tied. Raises CheckpointError for anything else,
    among them pickles and the later versions of the format.
    """
    with name_in_errors(path):
        data = map_file(path)
        head = data[: HEADER.size].tobytes()
    if _is_pickle(head):
        raise pickle_error(path)
    with name_in_errors(path):
        if head[:4] == _NEWER:
            raise CheckpointError("is of llama2.c's version 1 or 2; version 0 is read")
        if len(head) < HEADER.size:
            raise CheckpointError(f"is {len(head)} bytes long; a llama2.c header is {HEADER.size}")
        config = _read_config(dict(zip(FIELDS, HEADER.unpack(head), strict=True)))
        expected = _file_size(config)
        if data.size != expected:
            raise CheckpointError(f"is {data.size:,} bytes long; its llama2.c header says {expected:,}")
    shapes = _file_shapes(config)
    tensors: dict[str, Tensor] = {}
    offset = HEADER.size
    for rule in list_rules(config):
        tensors[rule.name] = tensor = _tensor(data, offset, shapes[rule.name.partition("[")[0]])
        offset += tensor.nbytes
    return Checkpoint(path, config, match_rules(path, config, list_rules, tensors), tensors)


def _is_pickle(head: bytes) -> bool:
    """Recognise a torch archive, and a pickle of protocol 2 to 5.

    The third byte of such a pickle is never 0, as it is in a width of 640.
    """
    return head[:4] == b"PK\x03\x04" or (
        head[:1] == b"\x80" and head[1:2] in b"\2\3\4\5" and head[2:3] != b"\0"
    )


def _tensor(data: np.ndarray, offset: int, shape: tuple[int, ...]) -> Tensor:
    size = 4 * math.prod(shape)
    return Tensor(shape, "F32", "float32", size, lambda: decode_floats(data, offset, "float32", shape))


def _read_config(header: dict[str, int]) -> Config:
    for name, value in header.items():
        if value == 0 or (value < 0 and name != "vocab_size"):
            raise CheckpointError(f"{name} is {value} in the header: not a llama2.c file")
    return Config(
        vocab_size=abs(header["vocab_size"]),
        n_layers=header["n_layers"],
        d_model=header["dim"],
        n_heads=header["n_heads"],
        n_kv_heads=header["n_kv_heads"],
        d_ff=header["hidden_dim"],
        max_seq_len=header["seq_len"],
        tie_embeddings=header["vocab_size"] > 0,
    )


def _file_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    block, table = block_shapes(config), (config.vocab_size, config.d_model)
    angles = (config.max_seq_len, config.head_dim // 2)
    ends = {
        "tok_emb": table,
        "final_norm": (config.d_model,),
        "freqs_cos": angles,
        "freqs_sin": angles,
        "wcls": table,
    }
    return ends | {module.name: block[f"{module.holds[0]}.weight"] for module in BLOCK}


def _file_size(config: Config) -> int:
    """Return the bytes of a file of this config in closed form: a header may claim any number of layers."""
    sizes = {name: math.prod(shape) for name, shape in _file_shapes(config).items()}
    names = {module.name for module in BLOCK}
    numbers = sum(size * (config.n_layers if name in names else 1) for name, size in sizes.items())
    return HEADER.size + 4 * (numbers - sizes["wcls"] * config.tie_embeddings)
