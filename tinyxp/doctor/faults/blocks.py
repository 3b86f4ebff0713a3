"""Faults of the MLP and of the residual stream."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tinyxp.config import MLPS, Config
from tinyxp.doctor.faults.record import Fault, choosing


def feed_forward(config: Config) -> Iterator[Fault]:
    gated = MLPS[config.mlp].gated
    right = "silu" if gated else config.mlp
    long = {
        "silu": "SiLU",
        "gelu": "the exact (erf) GELU",
        "gelu_tanh": "the tanh form of GELU",
        "relu": "ReLU",
        "quick_gelu": "x sigmoid(1.702 x)",
        "sigmoid": "a sigmoid",
        "tanh": "tanh",
        "leaky relu": "a leaky ReLU",
        "relu squared": "a squared ReLU",
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
            gating="act(up) gate",
        )
        for gating, says in (
            ("act(gate)", "leaves up out: silu(gate) alone"),
            ("act(up)", "leaves the gate out: silu(up) alone"),
            ("act(gate) + up", "adds up where it should multiply: silu(gate) + up"),
            ("act(gate up)", "multiplies before the activation: silu(gate * up)"),
        ):
            yield choosing(
                f"hidden is {gating}",
                f"{{it}} {says}",
                "compute silu(gate) * up",
                ("mlp.hidden",),
                likely=2,
                gating=gating,
            )


def stream(config: Config) -> Iterator[Fault]:
    root = math.sqrt(config.d_model)
    for scale, words in ((root, "sqrt(d)"), (1.0 / root, "1/sqrt(d)"), (2.0, "2"), (0.5, "1/2")):
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
        attn_adds="nothing",
    )
    yield choosing(
        "residual around the MLP missing",
        "{it} forgets x + ... around the MLP",
        "add the MLP's input",
        ("residual",),
        mlp_adds="nothing",
    )
    yield choosing(
        "residual around attention from the norm",
        "{it} adds attention to the normalised input, not to the input",
        "keep the input from before the norm",
        ("attn_residual",),
        attn_adds="norm",
    )
    yield choosing(
        "residual around the MLP from the norm",
        "{it} adds the MLP to what its norm gave, not to the stream before it",
        "keep the stream from before the norm",
        ("residual",),
        mlp_adds="norm",
    )
    yield choosing(
        "MLP beside attention",
        "{it} feeds the MLP the block's input: attention and MLP in parallel",
        "feed the MLP the stream after attention",
        ("mlp_norm",),
        parallel=True,
    )
    for form, says in (
        ("softmax", "answers with probabilities, not logits"),
        ("log softmax", "answers with log-probabilities, not logits"),
        ("capped at 30", "caps its logits: 30 tanh(x / 30)"),
        ("capped at 50", "caps its logits: 50 tanh(x / 50)"),
    ):
        yield choosing(
            f"logits as {form}", f"{{it}} {says}", "answer with the head's output", ("logits",), logits=form
        )
    for scale, words in ((1.0 / root, "1/sqrt(d)"), (root, "sqrt(d)")):
        yield choosing(
            f"logits scaled by {words}",
            f"{{it}} multiplies the logits by {words}",
            "leave them",
            ("logits",),
            logits_scale=scale,
        )
