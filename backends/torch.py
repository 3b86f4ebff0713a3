"""PyTorch, through array_api_compat's namespace: devices, torch.compile, autograd, fused kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import array_api_compat.torch as compat
import numpy as np
import torch
from torch.utils import _pytree as pytree

from tinyxp.params import Params
from tinyxp.registry import Backend


def _namespace() -> ModuleType:
    """Return array_api_compat's namespace without its promotion of mixed dtypes: it costs time and the model
    never mixes them.
    """
    namespace = ModuleType("torch")
    kept = ("__array_api_version__", "__array_namespace_info__")
    public = {name: x for name, x in vars(compat).items() if name in kept or not name.startswith("__")}
    vars(namespace).update(public | {"matmul": torch.matmul, "where": torch.where})
    for function in (concat, matrix_transpose, permute_dims, reshape, result_type):
        setattr(namespace, function.__name__, function)
    return namespace


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


class TorchBackend(Backend):
    """torch lacks ``take(axis=)`` and others of the standard's names; array_api_compat.torch has them."""

    has_views = True
    has_gradients = True
    compiles = True

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
        accelerators = (
            []
            if accelerator is None
            else [f"{accelerator.type}:{i}" for i in range(torch.accelerator.device_count())]
        )
        return ["cpu", *accelerators, "meta"]

    def join_views(self, arrays: Sequence[torch.Tensor]) -> torch.Tensor | None:
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

    def detach(self, x: torch.Tensor) -> torch.Tensor:
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
backend = TorchBackend("torch", _namespace())
