"""What a diagnosis may call the cause of each planted fault, and whether it does."""

from __future__ import annotations

import re

from tinyxp.doctor import Cause

from .planted import Planted

NAMES = {
    "activation": r"(relu|gelu|gelu_tanh|silu) for (silu|gelu|gelu_tanh)",
    "bfloat16": r"computes in bfloat16|weights in bfloat16",
    "damaged": r"other weights: {parameter}",
    "dropout": r"dropout",
    "embedding scaled": r"embedding scaled by sqrt\(d\)",
    "eps": r"eps 1e-0[56]",
    "eps outside the root": r"eps outside the root",
    "extra bos": r"extra token \d+ in front",
    "final norm missing": r"final norm missing",
    "gate and up swapped": r"gate and up swapped",
    "head not tied": r"head not tied",
    "head shifted": r"(head|vocabulary) rows shifted by \+1",
    "head tied": r"head tied",
    "interleaved by n_heads": r"k (permuted|un-permuted from pairs) with 4 heads",
    "interleaved": r"[qk]( weight)? rows (interleaved|un-permuted twice)",
    "k not rotated": r"keys not rotated",
    "layer missing": r"layer \d dropped",
    "layer norm": r"LayerNorm for RMSNorm",
    "layer twice": r"layer \d doubled|layer \d in place of layer \d",
    "layers swapped": r"layers \d and \d exchanged",
    "mask added": r"boolean mask added",
    "mask after softmax": r"mask after the softmax",
    "mask inverted": r"mask inverted( \(filled with -1e9\))?",
    "mask off by one": r"mask off by one( \(filled with -1e9\))?|mask one ahead",
    "neighbour pairing": r"neighbour pairing",
    "no causal mask": r"no causal mask",
    "norm in bfloat16": r"norm in bfloat16",
    "norm weight minus 1": r"norm weight as w - 1",
    "norm weight plus 1": r"norm weight as 1 \+ w",
    "number of heads": r"8 heads for 4",
    "padding seen": r"padding not masked",
    "position embedding missing": r"positions missing",
    "positions not from the mask": r"positions not counted from the mask",
    "positions off by one": r"positions off by \+1|position rows shifted by \+1",
    "post-norm": r"norm after, not before",
    "qkv split": r"qkv cut (head by head|as [qkv]{{3}})",
    "residual": r"residual around (attention|the MLP) missing",
    "rms norm": r"RMSNorm for LayerNorm",
    "rope in bfloat16": r"RoPE (table|angles) in bfloat16",
    "rope scaling": r"rope scaling (left out|by 2)",
    "rotated backwards": r"rotation the other way",
    "scale": r"scores (not scaled|scaled by .+)",
    "scaled": r"{parameter} doubled",
    "softmax in bfloat16": r"softmax in bfloat16",
    "softmax in float16": r"softmax in float16",
    "swapped": r".*{parameter}.* exchanged",
    "theta": r"theta (10000|500000)",
    "tiled kv heads": r"kv heads tiled",
    "transposed": r"{parameter} transposed",
    "v rotated": r"values rotated",
    "variance over n-1": r"variance with n - 1",
    "vocabulary shifted": r"(vocabulary|embedding) rows shifted by \+1",
}
"""Cause of a record, up to its colon -> what a diagnosis calls it. {parameter} is what follows the colon."""
BIASES = {
    "attn.[qkv]": "q, k and v biases dropped",
    "attn.k": "k bias dropped",
    "attn.o": "attention output bias dropped",
    "mlp.up": "mlp.up bias dropped",
    "mlp.*": "mlp biases dropped",
}


def is_named(planted: Planted, cause: Cause) -> bool:
    """Whether a cause is the planted one: by its name, and by its blocks where the record says one."""
    kind, _, where = planted.cause.partition(": ")
    block = re.match(r"blocks\.(\*|\d+)\.", where)
    parameter = where[block.end() :] if block else where.split(", ")[0]
    if kind == "bias missing":
        pattern = re.escape(BIASES[parameter])
    else:
        full = where if kind == "damaged" else parameter
        pattern = NAMES[kind].format(parameter=re.escape(full))
    found = len(cause.keys) == 1 and re.fullmatch(pattern, cause.keys[0]) is not None
    if block and kind != "damaged":
        found &= cause.blocks == (None if block[1] == "*" else (int(block[1]),))
    return found
