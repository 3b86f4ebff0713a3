"""Hugging Face's words for activations, grouped by the function that they mean."""

from __future__ import annotations

GELU_TANH = ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate", "gelu_fast")
GELU = ("gelu", "gelu_python")
SILU = ("silu", "swish")
