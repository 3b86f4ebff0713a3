"""Loading and saving models: Hugging Face folders, GGUF, llama2.c and .npz, each in a file of its own."""

from __future__ import annotations

from tinyxp.formats.checkpoint import TensorInfo
from tinyxp.formats.loading import load
from tinyxp.formats.opening import describe, load_config, open_checkpoint
from tinyxp.formats.writing import convert, save

__all__ = ["TensorInfo", "convert", "describe", "load", "load_config", "open_checkpoint", "save"]
