"""A port of holmes to NumPy with one mistake, which raises no error.

To find it: ``tinyxp diagnose holmes examples/faulty_port.py:trace``. ``logits`` takes ids (b, t) and
returns the scores of the next token; ``trace`` returns intermediate values too.
"""

import numpy as np

import tinyxp
from tinyxp.doctor import Recorder

W = tinyxp.load("holmes", dtype="float32")
HEADS, KV_HEADS, SIZE, LAYERS = 4, 2, 34, 4


def norm(x, weight):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(1e-5)) * weight


def rotate(x):
    """x (b, heads, t, size), each head rotated by its position."""
    half = SIZE // 2
    angles = np.arange(x.shape[2])[:, None] * 10000.0 ** (-np.arange(half) / half)
    cos, sin = np.cos(angles).astype("float32"), np.sin(angles).astype("float32")
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def split(x):
    return x.reshape(*x.shape[:2], -1, SIZE).swapaxes(1, 2)


def attention(x, block):
    b, t, _ = x.shape
    q, k, v = (split(x @ W[f"{block}.attn.{name}.weight"].T) for name in "qkv")
    k, v = (np.tile(part, (1, HEADS // KV_HEADS, 1, 1)) for part in (k, v))
    scores = rotate(q) @ rotate(k).swapaxes(2, 3) / np.float32(SIZE**0.5)
    weights = np.exp(np.where(np.tri(t, dtype=bool), scores, -np.inf))
    weights /= weights.sum(axis=-1, keepdims=True)
    heads = (weights @ v).swapaxes(1, 2).reshape(b, t, -1)
    return heads @ W[f"{block}.attn.o.weight"].T


def mlp(x, block):
    gate = x @ W[f"{block}.mlp.gate.weight"].T
    return (gate / (1 + np.exp(-gate)) * (x @ W[f"{block}.mlp.up.weight"].T)) @ W[
        f"{block}.mlp.down.weight"
    ].T


def trace(ids):
    record = Recorder()
    x = record("embed", W["embed.weight"][np.asarray(ids)])
    for i in range(LAYERS):
        block = f"blocks.{i}"
        x = record(f"{block}.attn_residual", x + attention(norm(x, W[f"{block}.attn_norm.weight"]), block))
        x = record(f"{block}.residual", x + mlp(norm(x, W[f"{block}.mlp_norm.weight"]), block))
    record("logits", norm(x, W["final_norm.weight"]) @ W["embed.weight"].T)
    return record.points


def logits(ids):
    return trace(ids)["logits"]
