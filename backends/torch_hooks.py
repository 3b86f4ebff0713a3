"""Hooks on torch modules: each is removed when the ``undo`` stack that it was registered with closes.

The entry ``torch`` of the group ``tinyxp.recorders`` is this module. Importing it needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch

Callback = Callable[[Any], None]


def on_input(module: torch.nn.Module, hook: Callable[..., Any], undo: ExitStack) -> None:
    """Call ``hook(module, args, kwargs)`` before the module runs; it may return other arguments."""
    undo.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)


def on_output(module: torch.nn.Module, hook: Callable[..., Any], undo: ExitStack) -> None:
    """Call ``hook(module, args, output)`` after the module ran; it may return another output."""
    undo.callback(module.register_forward_hook(hook).remove)


def module_paths(module: Any) -> list[str]:
    """Return the paths of a module and all modules in it. Raise ValueError for what is not a torch module."""
    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"module is a {type(module).__name__}; it must be a torch.nn.Module")
    return [path for path, _ in module.named_modules(remove_duplicate=False)]


def run_with_hooks(
    module: torch.nn.Module,
    callbacks: Sequence[tuple[str, Callback]],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Run the module; each callback gets the output of the module at PATH, or the input at PATH:input."""
    with ExitStack() as undo:
        for target, callback in callbacks:
            path, _, is_input = target.partition(":")
            if is_input:
                on_input(module.get_submodule(path), _passing_input(callback), undo)
            else:
                on_output(module.get_submodule(path), _passing_output(callback), undo)
        module(*args, **kwargs)


def _passing_input(callback: Callback) -> Callable[..., None]:
    return lambda module, args, kwargs: callback((args, kwargs))


def _passing_output(callback: Callback) -> Callable[..., None]:
    return lambda module, args, output: callback(output)
