"""Faults of the MLP and of the residual stream."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tinyxp.config import Config
from tinyxp.diagnosis.faults.record import Fault, choosing


def feed_forward(config: Config) -> Iterator[Fault]:
    gated = config.mlp == "swiglu"
    right = "silu" if gated else config.mlp
    long = {
        "silu": "SiLU",
        "gelu": "the exact (erf) GELU",
        "gelu_tanh": "the tanh form of GELU",
        "relu": "ReLU",
        "quick_gelu": "x sigmoid(1.702 x)",
        "sigmoid": "a sigmoid",
        "tanh": "tanh",
        "none": "no activation",
    }
    for name, words in long.items():
        if name != right:
            yield choosing(
                f"{name} for {right}",
                f"{{it}} uses {words} where this model has {long[right]}",
                f"use {long[right]}",
                ("mlp.hidden",),
                likely=1 if name in ("silu", "gelu", "gelu_tanh", "relu") else 2,
                activation=name,
            )
    if gated:
        yield choosing(
            "gate and up swapped",
            "{it} computes silu(up) * gate: gate and up are swapped",
            "compute silu(gate) * up",
            ("mlp.hidden",),
            swapped=True,
        )


def stream(config: Config) -> Iterator[Fault]:
    root = math.sqrt(config.d_model)
    for scale, words in ((root, "sqrt(d)"), (1.0 / root, "1/sqrt(d)")):
        yield choosing(
            f"embedding scaled by {words}",
            f"{{it}} multiplies the embedding by {words}, {scale:.4g}",
            "leave the embedding as it is",
            ("embed",),
            embed_scale=scale,
        )
    yield choosing(
        "residual around attention missing",
        "{it} forgets x + ... around attention",
        "add the block's input",
        ("attn_residual",),
        attn_skip=False,
    )
    yield choosing(
        "residual around the MLP missing",
        "{it} forgets x + ... around the MLP",
        "add the MLP's input",
        ("residual",),
        mlp_skip=False,
    )
    for scale, words in ((1.0 / root, "1/sqrt(d)"), (root, "sqrt(d)")):
        yield choosing(
            f"logits scaled by {words}",
            f"{{it}} multiplies the logits by {words}",
            "leave them",
            ("logits",),
            logits_scale=scale,
        )
