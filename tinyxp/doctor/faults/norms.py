"""Faults of the norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tinyxp import ops
from tinyxp.config import NORMS, Config
from tinyxp.doctor.faults.change import Change, Kernel, KernelEdit, edit_parameters, replace_kernel
from tinyxp.doctor.faults.fault import Fault, NumberFault, Row
from tinyxp.doctor.faults.narrow import compute_in
from tinyxp.model import Context
from tinyxp.typing import Array, Namespace

NORM_POINTS = ("attn_norm", "mlp_norm", "final_norm")
NORM_NAMES = {"rms": "RMSNorm", "layer": "LayerNorm"}
SMALLEST = float(np.finfo(np.float64).tiny)
"""In place of an eps of 0, which no config has."""

NormEdit = Callable[[np.ndarray, int, np.ndarray, Any], tuple[Any, Any]]
"""The mean square, the width, the weight and eps of a norm -> the weight and eps with the fault."""


def norm_faults(config: Config) -> Iterator[Row]:
    def norm_row(key: str, says: str, fix: str, change: Change, choice: str, rank: int = 1) -> Fault:
        return Fault(key, f"{{it}} {says}", fix, NORM_POINTS, change, choice, rank)

    yield eps_fault(config)
    yield norm_row(
        "eps outside the root",
        "adds eps to the root, not to the mean square under it",
        "compute x / sqrt(mean + eps)",
        edit_norms(lambda square, d, w, eps: (w, 2.0 * eps * np.sqrt(square) + eps * eps)),
        "eps place",
    )
    yield norm_row(
        "norm without a root",
        "divides by the mean square itself, without the root",
        "divide by sqrt(mean + eps)",
        edit_norms(lambda square, d, w, eps: (w, (square + eps) ** 2 - square)),
        "eps place",
    )
    yield norm_row(
        "sum for mean in the norm",
        "divides by the root of the sum of squares, not of their mean",
        "divide the sum of squares by the width",
        edit_norms(lambda square, d, w, eps: (w / math.sqrt(d), eps / d)),
        "norm size",
    )
    yield norm_row(
        "variance with n - 1",
        "divides the variance by d - 1",
        "divide by d: torch.var(unbiased=False)",
        edit_norms(lambda square, d, w, eps: (w * math.sqrt((d - 1) / d), eps * (d - 1) / d)),
        "norm size",
    )
    weights = [f"{point}.weight" for point in NORM_POINTS]
    yield norm_row(
        "norm weight as 1 + w",
        "scales by 1 + w; this model scales by w",
        "use the norm's weight as it is, or subtract 1 when it is loaded",
        edit_parameters(weights, lambda w: w.astype(np.float64) + 1.0),
        "norm weight",
    )
    yield norm_row(
        "norm weight as w - 1",
        "scales by w - 1: its norm weights are those of a norm that adds 1",
        "add 1 to the norms' weights when they are loaded",
        edit_parameters(weights, lambda w: w.astype(np.float64) - 1.0),
        "norm weight",
    )
    yield norm_row(
        "norm weight ignored",
        "does not multiply by the norm's weight",
        "multiply by the norm's weight",
        edit_parameters(weights, np.ones_like),
        "norm weight",
    )
    if config.norm == "layer":
        yield norm_row(
            "norm bias dropped",
            "leaves out the norms' biases",
            "add the norms' biases",
            edit_parameters([f"{point}.bias" for point in NORM_POINTS], np.zeros_like),
            "norm bias",
        )
    yield from kind_faults(config)
    for dtype in ("bfloat16", "float16"):
        kernels = dict.fromkeys(("rms_norm", "layer_norm"), compute_in(dtype))
        yield Fault(
            f"norm in {dtype}",
            f"{{it}} computes its norms in {dtype}",
            "compute norms in float32 and cast the result",
            NORM_POINTS,
            Change(kernels=kernels),
            rank=4,
            narrow=dtype,
        )
    yield from missing_norms()


def eps_fault(config: Config) -> NumberFault:
    """Another eps."""
    right = config.norm_eps
    return NumberFault(
        "eps {value:g}",
        f"{{it}} normalises with eps {{value:g}}; this model's is {right:g}",
        f"take eps {right:g} from the config",
        NORM_POINTS,
        lambda eps: Change(config=lambda c: replace(c, norm_eps=max(eps, SMALLEST))),
        "eps",
        right,
        low=1e-12,
        high=1e-1,
        common=(
            *((eps, 1) for eps in (1e-5, 1e-6, 1e-8)),
            *((eps, 2) for eps in (1e-12, 1e-3, 1e-4, 1e-7, 0.0)),
        ),
    )


def kind_faults(config: Config) -> Iterator[Fault]:
    """Each other kind of norm that a config can name, in place of this model's."""
    right = NORM_NAMES[config.norm]
    for kind in NORMS:
        if kind == config.norm:
            continue
        name = NORM_NAMES[kind]
        has_bias = "bias" in NORMS[config.norm].parts
        yield Fault(
            f"{name}{' without bias' * has_bias} for {right}",
            f"{{it}} uses {name}{', without a bias,' * has_bias} in place of {right}",
            f"use {right}",
            NORM_POINTS,
            change_norm(kind),
            "norm",
            rank=2 if has_bias else 1,
        )
    if config.norm == "layer":

        def without_mean(x: Array, weight: Array, bias: Array, eps: float, *, xp: Namespace) -> Array:
            return ops.rms_norm(x, weight, eps, xp=xp) + bias

        yield Fault(
            "RMSNorm for LayerNorm",
            "{it} does not subtract the mean: it uses RMSNorm in place of LayerNorm",
            "subtract the mean before dividing",
            NORM_POINTS,
            Change(kernels={"layer_norm": replace_kernel(without_mean)}),
            "norm",
        )


def change_norm(kind: str) -> Change:
    return Change(config=lambda c: replace(c, norm=kind))


def missing_norms() -> Iterator[Fault]:
    """Norms that are left out, applied twice, or in another place."""
    yield Fault(
        "blocks without norms",
        "{it} skips the norms in its blocks",
        "normalise before attention and before the MLP",
        ("attn_norm", "mlp_norm"),
        Change(
            taps={
                "attn_norm": lambda x, at: at.points["input"],
                "mlp_norm": lambda x, at: at.points["attn_residual"],
            }
        ),
        "norm place",
    )

    def normalise_sums(kind: str, x: Any, at: Any, see: Any) -> np.ndarray:
        if kind in ("attn_norm", "mlp_norm"):
            return at.points["input" if kind == "attn_norm" else "attn_residual"]  # type: ignore[no-any-return]
        y: np.ndarray = see(kind, x)
        if kind in ("attn_residual", "residual"):
            norm = "attn_norm" if kind == "attn_residual" else "mlp_norm"
            y = see(norm, at.norm(norm, y))
        return y

    yield Fault(
        "norm after, not before",
        "{it} normalises the sums after attention and the MLP (post-norm), not their inputs (pre-norm)",
        "normalise before attention and before the MLP",
        ("attn_norm", "mlp_norm", "attn.q"),
        Change(reroute=normalise_sums, stream_point="mlp_norm"),
        "norm place",
    )
    yield Fault(
        "final norm missing",
        "{it} leaves out the final norm",
        "apply the final norm before the head",
        ("final_norm",),
        Change(taps={"final_norm": lambda x, at: at.points["input"]}),
        "final norm",
    )
    yield Fault(
        "final norm twice",
        "{it} applies the final norm twice",
        "apply the final norm once",
        ("final_norm",),
        Change(taps={"final_norm": lambda x, at: at.norm("final_norm", x)}),
        "final norm",
    )


def edit_norms(edit: NormEdit) -> Change:
    """The change of a norm's weight and eps, which may depend on what is normalised."""

    def edit_kernel(is_centred: bool) -> KernelEdit:
        def wrap(kernel: Kernel, ctx: Context) -> Kernel:
            def norm(x: Any, weight: Any, *rest: Any, xp: Namespace) -> Any:
                *bias, eps = rest
                square = _mean_square(x - np.mean(x, axis=-1, keepdims=True) if is_centred else x)
                weight, eps = edit(square, x.shape[-1], weight.astype(np.float64), eps)
                return kernel(x, weight, *bias, eps, xp=xp)

            return norm

        return wrap

    return Change(kernels={"rms_norm": edit_kernel(False), "layer_norm": edit_kernel(True)})


def _mean_square(x: Any) -> Any:
    return np.mean(x * x, axis=-1, keepdims=True)
