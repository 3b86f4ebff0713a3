"""PyTorch, through array_api_compat's namespace: devices, torch.compile, autograd, fused kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from types import ModuleType
from typing import Any

import array_api_compat.torch as compat
import numpy as np
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

from tinyxp.decoding import InPlaceDecoder
from tinyxp.params import Params
from tinyxp.registry import Backend

from .torch_int8 import Int8, int8
from .torch_int8 import linear as int8_linear
from .torch_loss import linear_cross_entropy


def _namespace() -> ModuleType:
    """array_api_compat's, without its promotion of mixed dtypes, which costs time and which the model never
    asks for.
    """
    found = ModuleType("torch")
    kept = ("__array_api_version__", "__array_namespace_info__")
    public = {name: x for name, x in vars(compat).items() if name in kept or not name.startswith("__")}
    vars(found).update(public | {"matmul": torch.matmul, "where": torch.where})
    for function in (concat, matrix_transpose, permute_dims, reshape, result_type):
        setattr(found, function.__name__, function)
    return found


def concat(arrays: Sequence[torch.Tensor], /, *, axis: int | None = 0) -> torch.Tensor:
    return compat.concat(arrays, axis=None) if axis is None else torch.cat(tuple(arrays), axis)


def permute_dims(x: torch.Tensor, /, axes: tuple[int, ...]) -> torch.Tensor:
    return x.permute(axes)


def matrix_transpose(x: torch.Tensor, /) -> torch.Tensor:
    return x.mT


def reshape(x: torch.Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> torch.Tensor:
    return x.reshape(shape) if copy is None else compat.reshape(x, shape, copy=copy)


def result_type(*arrays_and_dtypes: Any) -> torch.dtype:
    if len(arrays_and_dtypes) == 2 and all(isinstance(x, torch.dtype) for x in arrays_and_dtypes):
        return torch.promote_types(*arrays_and_dtypes)
    return compat.result_type(*arrays_and_dtypes)  # type: ignore[no-any-return]


LARGE = 2**18
"""From how many numbers on a matrix is worth oneDNN's overhead of some 15 microseconds."""
ONEDNN_LINEAR = getattr(torch.ops.mkldnn, "_linear_pointwise", None)  # torch can be built without oneDNN


class TorchBackend(Backend):
    """torch lacks ``take(axis=)`` and others of the standard's names; array_api_compat.torch has them."""

    has_views = True

    def is_array(self, x: object) -> bool:
        return isinstance(x, torch.Tensor)

    def is_concrete(self, x: Any) -> bool:
        # Under a compiler, a tracer (a dispatch mode) or vmap there are no values, nor on meta.
        if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
            return False
        x = _below_gradients(x)
        wrapped = torch._C._functorch.is_functorch_wrapped_tensor(x)
        plain = type(x).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        return plain and not wrapped and x.device.type != "meta"

    def from_numpy(self, x: np.ndarray, *, dtype: str | None = None, device: Any = None) -> torch.Tensor:
        writable = x if x.flags.writeable else x.copy()  # torch warns of read-only memory
        tensor = torch.from_numpy(np.asarray(writable, order="C"))
        return tensor.to(dtype=None if dtype is None else self.dtype(dtype), device=self.device(device))

    def to_numpy(self, x: torch.Tensor) -> np.ndarray:
        with torch._C._DisableFuncTorch():  # under torch.func.grad every result would be wrapped again
            x = _below_gradients(x).detach().cpu()
            return (x.float() if x.dtype == torch.bfloat16 else x).numpy()

    def astype(self, x: torch.Tensor, dtype: str | None, device: Any = None) -> torch.Tensor:
        return x.to(dtype=None if dtype is None else self.dtype(dtype), device=self.device(device))

    def device(self, device: Any) -> Any:
        try:
            return None if device is None else torch.empty(0, device=device).device
        except (RuntimeError, AssertionError, TypeError):  # torch has one for each way to be wrong
            raise ValueError(f"device is {device!r}; torch has {', '.join(self.devices())}") from None

    def devices(self) -> list[str]:
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        found = (
            []
            if accelerator is None
            else [f"{accelerator.type}:{i}" for i in range(torch.accelerator.device_count())]
        )
        return ["cpu", *found, "meta"]

    def joined(self, arrays: Sequence[torch.Tensor]) -> torch.Tensor | None:
        first, end = arrays[0], arrays[0].data_ptr()
        storage = first.untyped_storage().data_ptr()
        for x in arrays:
            apart = x.data_ptr() != end or x.untyped_storage().data_ptr() != storage
            if apart or not x.is_contiguous() or x.dtype != first.dtype or x.shape[1:] != first.shape[1:]:
                return None
            end += x.numel() * x.element_size()
        shape = (sum(x.shape[0] for x in arrays), *first.shape[1:])
        # The stride of a single row says nothing.
        return first.detach().as_strided(shape, (math.prod(first.shape[1:]), *first.stride()[1:]))

    def compile(self, params: Params) -> Callable[..., torch.Tensor]:
        forward = super().compile(params)

        @wraps(forward)
        def inferred(*args: Any, **kwargs: Any) -> torch.Tensor:
            with torch.inference_mode():
                return forward(*args, **kwargs)

        return inferred

    def prepared(self, params: Params) -> Params:
        with torch.no_grad():  # or a graph would keep the given ones alive
            return super().prepared(params)

    def int8(self, params: Params) -> Params:
        with torch.no_grad():
            return int8(params)

    def inference(self) -> Any:
        return torch.inference_mode()

    def jit(self, f: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(f, fullgraph=True)  # type: ignore[no-any-return]

    def value_and_grad(self, f: Callable[..., Any]) -> Callable[..., Any]:
        flipped = torch.func.grad_and_value(f)

        def both(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
            gradient, value = flipped(*args, **kwargs)
            return value, gradient

        return both

    def detached(self, x: torch.Tensor) -> torch.Tensor:
        return x.detach()

    def synchronize(self, x: Any) -> Any:
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        return x


def _below_gradients(x: torch.Tensor) -> torch.Tensor:
    """The tensor inside the wrappers of torch.func.grad, whose values are known though they are tracked."""
    while torch._C._functorch.is_gradtrackingtensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x


class TorchDecoder(InPlaceDecoder):
    """Without autograd, which the cache written in place would confuse."""

    def __init__(self, params: Params, batch: int, length: int) -> None:
        with torch.inference_mode():
            super().__init__(params, batch, length)

    def __call__(self, ids: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        with torch.inference_mode():
            return super().__call__(ids, mask)


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


def _flatten_with_keys(params: Params) -> tuple[list[Any], Any]:
    leaves, static = params._flatten()
    return [(pytree.MappingKey(name), x) for name, x in zip(params, leaves, strict=True)], static


pytree.register_pytree_node(
    Params,
    Params._flatten,
    Params._unflatten,
    serialized_type_name="tinyxp.Params",
    flatten_with_keys_fn=_flatten_with_keys,
)
backend = TorchBackend(
    "torch",
    _namespace(),
    {
        "linear": linear,
        "layer_norm": layer_norm,
        "rms_norm": rms_norm,
        "silu": silu,
        "gelu": gelu,
        "gelu_tanh": gelu_tanh,
        "rotary": rotary,
        "attention": attention,
        "write_cache": write_cache,
        "linear_cross_entropy": linear_cross_entropy,
    },
    {
        "linear": linear,
        "layer_norm": layer_norm,
        "rms_norm": rms_norm,
        "softmax": softmax,
        "silu": silu,
        "gelu": gelu,
        "gelu_tanh": gelu_tanh,
        "attention": attention,
        "cross_entropy": cross_entropy,
    },
    TorchDecoder,
)
