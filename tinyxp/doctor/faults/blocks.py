"""Faults of the MLP, of the residual stream and of the logits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tinyxp import ops
from tinyxp.config import MLPS, Config
from tinyxp.doctor.faults.change import Change, Place, PointTap, replace_kernel
from tinyxp.doctor.faults.fault import Fault, NumberFault, Row

Activation = Callable[..., Any]


def _sigmoid(x: Any, *, xp: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


ACTIVATIONS: dict[str, tuple[Activation, str, int]] = {
    "silu": (ops.silu, "SiLU", 1),
    "gelu": (ops.gelu, "the exact (erf) GELU", 1),
    "gelu_tanh": (ops.gelu_tanh, "the tanh form of GELU", 1),
    "relu2": (ops.relu2, "ReLU squared", 2),
    "relu": (lambda x, *, xp: np.maximum(x, 0.0), "ReLU", 1),
    "quick_gelu": (lambda x, *, xp: x * _sigmoid(1.702 * x, xp=xp), "x sigmoid(1.702 x)", 2),
    "sigmoid": (_sigmoid, "a sigmoid", 2),
    "tanh": (lambda x, *, xp: np.tanh(x), "tanh", 2),
    "leaky relu": (lambda x, *, xp: np.where(x > 0.0, x, 0.01 * x), "a leaky ReLU", 2),
    "none": (lambda x, *, xp: x, "no activation", 2),
}
"""Name -> the function, its name in words, and the rank of the fault that uses it. Each activation that a
config can name has a row here; each row is a fault of every model with another one."""


def mlp_faults(config: Config) -> Iterator[Row]:
    right, is_gated = MLPS[config.mlp]
    for name, (function, words, rank) in ACTIVATIONS.items():
        if name != right:
            yield Fault(
                f"{name} for {right}",
                f"{{it}} uses {words}; this model has {ACTIVATIONS[right][1]}",
                f"use {ACTIVATIONS[right][1]}",
                ("mlp.hidden",),
                Change(kernels={right: replace_kernel(function)}),
                "activation",
                rank,
            )
    if not is_gated:
        return

    def gated(compute: Callable[[Callable[[Any], Any], Any, Any], Any]) -> Change:
        def tap(x: np.ndarray, at: Place) -> Any:
            act = partial(getattr(at.ctx.kernels, right), xp=at.ctx.xp)
            return compute(act, at.points["mlp.gate"], at.points["mlp.up"])

        return Change(taps={"mlp.hidden": tap})

    for key, says, compute, rank in (
        ("gate and up swapped", "swaps gate and up: {act}(up) * gate", lambda f, g, u: f(u) * g, 1),
        ("hidden is act(gate)", "leaves up out: {act}(gate) alone", lambda f, g, u: f(g), 2),
        ("hidden is act(up)", "leaves the gate out: {act}(up) alone", lambda f, g, u: f(u), 2),
        ("hidden is act(gate) + up", "adds up, not multiplies by it", lambda f, g, u: f(g) + u, 2),
        ("hidden is act(gate up)", "multiplies before the activation", lambda f, g, u: f(g * u), 2),
    ):
        fix = f"compute {right}(gate) * up"
        says = says.replace("{act}", right)
        yield Fault(key, f"{{it}} {says}", fix, ("mlp.hidden",), gated(compute), "gating", rank)


def stream_faults(config: Config) -> Iterator[Row]:
    """The embedding's scale, the residuals, and what follows the head."""
    root = math.sqrt(config.d_model)
    for scale, words in ((root, "sqrt(d)"), (1.0 / root, "1/sqrt(d)"), (2.0, "2"), (0.5, "1/2")):
        yield Fault(
            f"embedding scaled by {words}",
            f"{{it}} multiplies the embedding by {words}, {scale:.4g}",
            "do not scale the embedding",
            ("embed",),
            tap_point("embed", partial(_scale_tokens, scale)),
            "embedding scale",
        )
    yield Fault(
        "residual around attention missing",
        "{it} leaves out the residual connection around attention",
        "add the block's input to attention's result",
        ("attn_residual",),
        tap_point("attn_residual", lambda x, at: at.points["attn.out"]),
        "attention residual",
    )
    yield Fault(
        "residual around the MLP missing",
        "{it} leaves out the residual connection around the MLP",
        "add the MLP's input to its result",
        ("residual",),
        tap_point("residual", lambda x, at: at.points["mlp.out"]),
        "MLP residual",
    )
    yield Fault(
        "residual around attention from the norm",
        "{it} adds attention's result to the normalised input, not to the input",
        "add attention's result to the block's input from before the norm",
        ("attn_residual",),
        tap_point("attn_residual", lambda x, at: at.points["attn_norm"] + at.points["attn.out"]),
        "attention residual",
    )
    yield Fault(
        "residual around the MLP from the norm",
        "{it} adds the MLP's result to its normalised input, not to the residual stream",
        "add the MLP's result to the residual stream from before the norm",
        ("residual",),
        tap_point("residual", lambda x, at: at.points["mlp_norm"] + at.points["mlp.out"]),
        "MLP residual",
    )
    yield Fault(
        "MLP beside attention",
        "{it} runs attention and the MLP in parallel: both read the block's input",
        "give the MLP the residual stream after attention",
        ("mlp_norm",),
        tap_point("mlp_norm", lambda x, at: at.norm("mlp_norm", at.points["input"])),
        "MLP input",
    )
    yield from logits_faults(root)


def logits_faults(root: float) -> Iterator[Row]:
    """What is done with the head's output."""

    def logits_row(key: str, says: str, tap: PointTap, choice: str) -> Fault:
        fix = "return the head's output"
        return Fault(key, f"{{it}} {says}", fix, ("logits",), tap_point("logits", tap), choice)

    yield logits_row("logits as softmax", "returns probabilities, not logits", _softmax, "logits")
    yield logits_row(
        "logits as log softmax",
        "returns log-probabilities, not logits",
        lambda x, at: np.log(_softmax(x, at)),
        "logits",
    )
    yield NumberFault(
        "logits as capped at {value:g}",
        "{it} caps its logits: {value:g} tanh(x / {value:g})",
        "return the head's output without a cap",
        ("logits",),
        lambda cap: tap_point("logits", lambda x, at: cap * np.tanh(x / cap)),
        "logits",
        math.inf,
        low=1.0,
        high=1e3,
        common=((30.0, 1), (50.0, 1)),
    )
    for scale, words in ((1.0 / root, "1/sqrt(d)"), (root, "sqrt(d)")):
        yield logits_row(
            f"logits scaled by {words}",
            f"multiplies the logits by {words}",
            partial(_scale, scale),
            "logits scale",
        )


def tap_point(kind: str, tap: PointTap) -> Change:
    """The change of one kind of trace point."""
    return Change(taps={kind: tap})


def _scale(scale: float, x: np.ndarray, at: Place) -> np.ndarray:
    return scale * x


def _scale_tokens(scale: float, x: np.ndarray, at: Place) -> np.ndarray:
    return x + (scale - 1.0) * at.points["tokens"]


def _softmax(x: Any, at: Place) -> Any:
    return ops.softmax(x, xp=np)
