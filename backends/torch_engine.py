"""PyTorch's engine: fused kernels, a cache that is written in place, int8; without autograd."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import torch

from tinyxp.decoding import InPlaceDecoder
from tinyxp.engine import Engine
from tinyxp.ops import Kernels
from tinyxp.params import Params

from . import torch_kernels as kernels
from .torch_int8 import quantize
from .torch_loss import linear_cross_entropy

KERNELS = {
    "linear": kernels.linear,
    "layer_norm": kernels.layer_norm,
    "rms_norm": kernels.rms_norm,
    "silu": kernels.silu,
    "gelu": kernels.gelu,
    "gelu_tanh": kernels.gelu_tanh,
    "rotary": kernels.rotary,
    "attention": kernels.attention,
    "write_cache": kernels.write_cache,
    "linear_cross_entropy": linear_cross_entropy,
}
REFERENCES = {
    "linear": kernels.linear,
    "layer_norm": kernels.layer_norm,
    "rms_norm": kernels.rms_norm,
    "softmax": kernels.softmax,
    "silu": kernels.silu,
    "gelu": kernels.gelu,
    "gelu_tanh": kernels.gelu_tanh,
    "attention": kernels.attention,
    "cross_entropy": kernels.cross_entropy,
}


class TorchDecoder(InPlaceDecoder):
    """Decodes without autograd, which a cache written in place would confuse."""

    def __init__(self, params: Params, batch: int, length: int, *, kernels: Kernels) -> None:
        with torch.inference_mode():
            super().__init__(params, batch, length, kernels=kernels)

    def __call__(self, ids: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        with torch.inference_mode():
            return super().__call__(ids, mask)


class TorchEngine(Engine):
    """Fused kernels, decoding in inference mode, and matrices of eight bits."""

    kernels = KERNELS
    training_kernels = KERNELS
    references = REFERENCES
    has_int8 = True
    decoder = TorchDecoder

    def prepare(self, params: Params) -> Params:
        with torch.no_grad():  # or a graph would keep the given ones alive
            return super().prepare(params)

    def compile(self, params: Params) -> Callable[..., torch.Tensor]:
        forward = super().compile(params)

        @wraps(forward)
        def infer(*args: Any, **kwargs: Any) -> torch.Tensor:
            with torch.inference_mode():
                return forward(*args, **kwargs)  # type: ignore[return-value]

        return infer

    def quantize(self, params: Params) -> Params:
        with torch.no_grad():
            return quantize(params)
