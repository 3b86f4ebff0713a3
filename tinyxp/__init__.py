"""tinyxp: one decoder-only transformer on the array API standard, and the tools that prove that ports agree.

Public names resolve when they are first used, so that importing tinyxp imports no array library but NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyxp.cache import Cache, new_cache
    from tinyxp.config import Config
    from tinyxp.doctor.comparison import compare
    from tinyxp.doctor.diagnosing import diagnose
    from tinyxp.errors import CheckpointError, UnsupportedModelError
    from tinyxp.formats import load, save
    from tinyxp.generation import generate, stream
    from tinyxp.initialization import init
    from tinyxp.model import extend, forward, loss
    from tinyxp.params import Params
    from tinyxp.registry import Backend, available_backends, backend
    from tinyxp.shapes import count_parameters
    from tinyxp.text.tokenizer import load_tokenizer
    from tinyxp.tracing import trace

__all__ = [
    "Backend",
    "Cache",
    "CheckpointError",
    "Config",
    "Params",
    "UnsupportedModelError",
    "available_backends",
    "backend",
    "compare",
    "count_parameters",
    "diagnose",
    "extend",
    "forward",
    "generate",
    "init",
    "load",
    "load_tokenizer",
    "loss",
    "new_cache",
    "save",
    "stream",
    "trace",
]

__version__ = "0.1.0"

_HOME = {
    "Backend": "registry",
    "Cache": "cache",
    "CheckpointError": "errors",
    "Config": "config",
    "Params": "params",
    "UnsupportedModelError": "errors",
    "available_backends": "registry",
    "backend": "registry",
    "compare": "doctor.comparison",
    "count_parameters": "shapes",
    "diagnose": "doctor.diagnosing",
    "extend": "model",
    "forward": "model",
    "generate": "generation",
    "init": "initialization",
    "load": "formats",
    "load_tokenizer": "text.tokenizer",
    "loss": "model",
    "new_cache": "cache",
    "save": "formats",
    "stream": "generation",
    "trace": "tracing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tinyxp' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"tinyxp.{_HOME[name]}"), name)
    importlib.import_module("tinyxp.registry").load_imported()
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
