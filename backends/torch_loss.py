"""PyTorch's loss without all of its logits: a block of rows at a time, with its gradient."""

from __future__ import annotations

from typing import Any

import torch

from tinyxp import ops
from tinyxp.ops import IGNORED

from .torch_int8 import Int8

ROWS = 64
"""Rows of logits at a time: 64 of 50,000 words are 13 MB."""


def linear_cross_entropy(
    x: torch.Tensor,
    weight: torch.Tensor | Int8,
    targets: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    xp: Any,
    linear: Any = ops.linear,
) -> torch.Tensor:
    """``tinyxp.ops.linear_cross_entropy`` and its first derivatives in one pass over blocks of rows.

    Under a compiler and for a head of eight bits it is the pure function.
    """
    if isinstance(weight, Int8) or torch.compiler.is_compiling():
        return ops.linear_cross_entropy(x, weight, targets, bias, xp=xp, linear=linear)  # type: ignore
    if bias is not None:  # one more column of the matrix, multiplied by 1
        x = torch.cat((x, torch.ones_like(x[..., :1])), -1)
        weight = torch.cat((weight.to(x.dtype), bias.to(x.dtype)[:, None]), 1)
    wanted = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    loss, _, _ = _LinearCrossEntropy.apply(x.flatten(0, -2), weight.to(x.dtype), targets.flatten(), wanted)
    return loss  # type: ignore[no-any-return]


class _LinearCrossEntropy(torch.autograd.Function):
    """The loss and, with it, the gradients of x and weight: both need the softmax."""

    @staticmethod
    def forward(
        x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, wanted: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """x (m, d), weight (n, d), targets (m,) -> the loss () and, if wanted, its gradients."""
        wide = torch.promote_types(x.dtype, torch.float32)
        counted = targets != IGNORED
        share = counted.to(wide) / counted.sum().clamp(min=1)
        total = torch.zeros((), dtype=wide, device=x.device)
        dx, dweight = torch.zeros_like(x), torch.zeros_like(weight, dtype=wide)
        for at in range(0, x.shape[0], ROWS):
            rows = slice(at, at + ROWS)
            each, index = share[rows, None], torch.where(counted[rows], targets[rows], 0)[:, None]
            logits = (x[rows] @ weight.T).to(wide)
            logits -= logits.amax(1, keepdim=True)  # so that small losses keep their digits
            chosen = logits.gather(1, index)
            e = logits.exp_()
            sums = e.sum(1, keepdim=True)
            total += torch.where(each > 0, (sums.log() - chosen) * each, 0.0).sum()
            if wanted:
                e *= each / sums
                e.scatter_add_(1, index, -each)
                narrow = e.to(x.dtype)
                torch.mm(narrow, weight, out=dx[rows])
                if x.dtype == wide:
                    dweight.addmm_(narrow.T, x[rows])
                else:
                    dweight += narrow.T @ x[rows]
        return total, dx, dweight.to(weight.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1], output[2])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *second: Any) -> tuple[Any, ...]:
        if any(g is not None for g in second):
            raise NotImplementedError(
                "this loss has first derivatives alone; tinyxp.loss without kernels has more"
            )
        dx, dweight = ctx.saved_tensors
        return gradient.to(dx.dtype) * dx, gradient.to(dweight.dtype) * dweight, None, None
