"""PyTorch's kernels: fused forms of functions in ``tinyxp.ops``, and forms of its own to compare with."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from .torch_int8 import Int8
from .torch_int8 import linear as int8_linear

LARGE = 2**18
"""From how many numbers on a matrix is worth oneDNN's overhead of some 15 microseconds."""
ONEDNN_LINEAR = getattr(torch.ops.mkldnn, "_linear_pointwise", None)  # torch can be built without oneDNN


def _inferring() -> bool:
    """Whether gradients are out of the question, and no compiler is looking."""
    return not torch.compiler.is_compiling() and torch.is_inference_mode_enabled()


def linear(
    x: torch.Tensor, weight: torch.Tensor | Int8, bias: torch.Tensor | None = None, *, xp: Any
) -> torch.Tensor:
    """``tinyxp.ops.linear`` in one call: oneDNN's for a large float32 matrix on a CPU, since MKL multiplies a
    matrix and one row on a single thread.
    """
    if isinstance(weight, Int8):
        return int8_linear(x, weight, bias)
    if weight.dtype != x.dtype:
        weight = weight.to(x.dtype)
    if bias is not None and bias.dtype != x.dtype:
        bias = bias.to(x.dtype)
    large = weight.numel() >= LARGE and x.dtype == torch.float32 and weight.device.type == "cpu"
    if large and ONEDNN_LINEAR is not None and _inferring():
        return ONEDNN_LINEAR(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]
    return F.linear(x, weight, bias)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, *, xp: Any) -> torch.Tensor:
    """``tinyxp.ops.rms_norm``, fused; without gradients by the norm of vectors, which is faster yet."""
    if not _inferring():
        return F.rms_norm(x, x.shape[-1:], eps=eps) * weight.to(x.dtype)
    d, wide = x.shape[-1], torch.float64 if x.dtype == torch.float64 else torch.float32
    scale = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
    scale.square_().add_(d * eps).rsqrt_().mul_(math.sqrt(d))
    return (x * scale).to(x.dtype).mul_(weight.to(x.dtype))


def silu(x: torch.Tensor, *, xp: Any) -> torch.Tensor:
    """``tinyxp.ops.silu``, fused."""
    return F.silu(x)


def gelu(x: torch.Tensor, *, xp: Any) -> torch.Tensor:
    """``tinyxp.ops.gelu``, fused."""
    return F.gelu(x)


def gelu_tanh(x: torch.Tensor, *, xp: Any) -> torch.Tensor:
    """``tinyxp.ops.gelu_tanh``, fused."""
    return F.gelu(x, approximate="tanh")


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, xp: Any) -> torch.Tensor:
    """``tinyxp.ops.rotary``, multiplied and added at once."""
    a, b = x.chunk(2, -1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat((torch.addcmul(a * cos, b, sin, value=-1), torch.addcmul(b * cos, a, sin)), -1)


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, *, xp: Any
) -> torch.Tensor:
    """``tinyxp.ops.layer_norm``, fused."""
    return F.layer_norm(x, x.shape[-1:], weight.to(x.dtype), bias.to(x.dtype), eps)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: torch.Tensor, *, xp: Any, tap: Any = None
) -> torch.Tensor:
    """``tinyxp.ops.attention``, fused: the scores and weights are never whole in memory, nor tapped."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=q.shape[1] != k.shape[1])


def softmax(x: torch.Tensor, *, xp: Any, visible: torch.Tensor | None = None, axis: int = -1) -> torch.Tensor:
    """``tinyxp.ops.softmax``, torch's own, for rows that see something."""
    return F.softmax(x if visible is None else x.masked_fill(~visible, -torch.inf), axis)


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor, *, xp: Any) -> torch.Tensor:
    """``tinyxp.ops.cross_entropy``, torch's own, for targets of which one counts."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def write_cache(cache: torch.Tensor, new: torch.Tensor, start: Any, slots: Any, *, xp: Any) -> torch.Tensor:
    """``tinyxp.ops.write_cache`` in place."""
    at = int(start)
    cache[:, :, at : at + new.shape[2]] = new
    return cache
