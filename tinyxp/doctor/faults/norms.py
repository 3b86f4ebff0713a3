"""Faults of norms."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tinyxp.config import Config
from tinyxp.doctor.faults.record import Fault, choosing

NORMED = ("attn_norm", "mlp_norm", "final_norm")


def norms(config: Config) -> Iterator[Fault]:
    right = config.norm_eps
    common = [1e-5, 1e-6, 1e-8, 1e-12, 1e-3, 1e-4, 1e-7, 0.0]
    for eps in common:
        if not math.isclose(eps, right, rel_tol=1e-3):
            yield choosing(
                f"eps {eps:g}",
                f"{{it}} normalises with eps {eps:g}; this model's is {right:g}",
                f"take eps {right:g} from the config",
                NORMED,
                likely=1 if eps in common[:3] else 2,
                eps=eps,
            )
    yield choosing(
        "eps outside the root",
        "{it} adds eps to the root, not to the mean square under it",
        "compute x / sqrt(mean + eps)",
        NORMED,
        eps_place="outside",
    )
    yield choosing(
        "norm without a root",
        "{it} divides by the mean square itself, without the root",
        "divide by sqrt(mean + eps)",
        NORMED,
        eps_place="no root",
    )
    yield choosing(
        "sum for mean in the norm",
        "{it} takes the sum of squares where the norm has their mean",
        "divide by the width",
        NORMED,
        norm_sum=True,
    )
    yield choosing(
        "norm weight as 1 + w",
        "{it} scales by 1 + w where this model has w",
        "use the norm's weight as it is, or subtract 1 from it when it is loaded",
        NORMED,
        norm_weight="1 + w",
    )
    yield choosing(
        "norm weight as w - 1",
        "{it} scales by w - 1: its norm weights are stored less one, for a norm that adds 1",
        "add 1 to the norms' weights when they are loaded",
        NORMED,
        norm_weight="w - 1",
    )
    yield choosing(
        "norm weight ignored",
        "{it} does not multiply by the norm's weight",
        "multiply by it",
        NORMED,
        norm_weight="1",
    )
    yield choosing(
        "variance with n - 1",
        "{it} divides the variance by d - 1",
        "divide by d: torch.var(unbiased=False)",
        NORMED,
        ddof=1,
    )
    yield choosing(
        "blocks without norms",
        "{it} skips the norms within its blocks",
        "normalise before attention and before the MLP",
        ("attn_norm", "mlp_norm"),
        norms=False,
    )
    yield choosing(
        "norm after, not before",
        "{it} normalises what each half of a block adds up to (post-norm), not what it reads",
        "normalise before attention and before the MLP (pre-norm)",
        ("attn_norm", "mlp_norm", "attn.q"),
        post_norm=True,
    )
    if config.norm == "layer":
        yield choosing(
            "RMSNorm for LayerNorm",
            "{it} does not subtract the mean: an RMSNorm in place of LayerNorm",
            "subtract the mean before dividing",
            NORMED,
            norm="rms",
        )
        yield choosing(
            "norm bias dropped", "{it} leaves out the norms' biases", "add them", NORMED, norm_bias=False
        )
        yield choosing(
            "RMSNorm without bias for LayerNorm",
            "{it} uses RMSNorm, without mean and bias, in place of LayerNorm",
            "use LayerNorm",
            NORMED,
            likely=2,
            norm="rms",
            norm_bias=False,
        )
    else:
        yield choosing(
            "LayerNorm for RMSNorm",
            "{it} subtracts the mean: a LayerNorm in place of RMSNorm",
            "divide by the root mean square alone",
            NORMED,
            norm="layer",
        )
    for dtype in ("bfloat16", "float16"):
        yield choosing(
            f"norm in {dtype}",
            f"{{it}} computes its norms in {dtype}",
            "compute norms in float32 and cast the result",
            NORMED,
            likely=4,
            coarse=dtype,
            norm_dtype=dtype,
        )
    yield choosing(
        "final norm missing",
        "{it} goes to the head without the final norm",
        "apply the final norm before the head",
        ("final_norm",),
        final_norm="missing",
    )
    yield choosing(
        "final norm twice",
        "{it} applies the final norm twice",
        "apply it once",
        ("final_norm",),
        final_norm="twice",
    )
