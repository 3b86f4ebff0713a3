"""Matrices of eight bits for torch: one scale for each row of outputs, undone inside the product."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from tinyxp.joint import JOINT
from tinyxp.params import Params

FEW = 16
"""Up to how many rows torch's own product of bfloat16 and int8 is faster than undoing the matrix first."""
WHOLE = 16
"""Its loops take this many columns at a time, and read beyond the end of a row of another width."""


class Int8(NamedTuple):
    """A matrix as round(w / scale), in -127 to 127; the largest of each row is 127."""

    values: torch.Tensor  # (o, i) int8
    scale: torch.Tensor  # (o,) bfloat16

    @property
    def shape(self) -> torch.Size:
        return self.values.shape

    @property
    def dtype(self) -> torch.dtype:
        return torch.int8

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.scale.nbytes

    def dequantize(self) -> torch.Tensor:
        """Return the matrix that it represents, in bfloat16. (o, i)."""
        return self.values.to(torch.bfloat16) * self.scale[:, None]


def round_matrix(weight: torch.Tensor) -> Int8:
    """The nearest Int8 to a matrix (o, i), given scales that are rounded before the values are."""
    scale = (weight.float().abs().amax(1).clamp_min(1e-30) / 127).to(torch.bfloat16)
    values = (weight.float() / scale.float()[:, None]).round().clamp(-127, 127)
    return Int8(values.to(torch.int8), scale)


def linear(x: torch.Tensor, weight: Int8, bias: torch.Tensor | None) -> torch.Tensor:
    """x W^T + b, products in bfloat16 and summed in float32. x (..., i) -> (..., o) in x's dtype."""
    flat = x.reshape(-1, x.shape[-1]).to(torch.bfloat16)
    if flat.shape[0] <= FEW and flat.shape[1] % WHOLE == 0 and flat.device.type == "cpu":
        y = torch._weight_int8pack_mm(flat.contiguous(), weight.values, weight.scale)
    else:
        y = F.linear(flat, weight.dequantize())
    y = y.to(x.dtype).reshape(*x.shape[:-1], -1)
    return y if bias is None else y + bias.to(x.dtype)


def quantize(params: Params) -> Params:
    """``TorchEngine.quantize``."""
    if any(isinstance(x, Int8) for x in params.values()):
        return params
    config = replace(params.config, tie_embeddings=False)
    tables = ("embed.weight", "pos_embed.weight")
    arrays: dict[str, Any] = {
        name: round_matrix(x) if x.ndim == 2 and name not in tables else x for name, x in params.items()
    }
    arrays.setdefault("head.weight", round_matrix(params["embed.weight"]))
    blocks = [_join_block(arrays, f"blocks.{i}.", list(params.block(i))) for i in range(config.n_layers)]
    return params.replace(arrays, blocks, config)


def _join_block(arrays: dict[str, Any], prefix: str, names: list[str]) -> dict[str, Any]:
    """Return one block's parameters and its joint projections, of which the parts become views."""
    block = {name: arrays[prefix + name] for name in names}
    for joint in JOINT:
        key = "+".join(joint)
        if f"{joint[0]}.weight" in block:
            parts = [block[f"{name}.weight"] for name in joint]
            whole = Int8(torch.cat([x.values for x in parts]), torch.cat([x.scale for x in parts]))
            block[f"{key}.weight"], start = whole, 0
            for name, part in zip(joint, parts, strict=True):
                rows = slice(start, start := start + part.shape[0])
                view = Int8(whole.values[rows], whole.scale[rows])
                block[f"{name}.weight"] = arrays[f"{prefix}{name}.weight"] = view
        if f"{joint[0]}.bias" in block:
            block[f"{key}.bias"] = torch.cat([block[f"{name}.bias"] for name in joint])
    return block
