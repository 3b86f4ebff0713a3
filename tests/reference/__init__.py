"""What several test modules share."""

from .arrays import FLOAT32, array, compiled, distance, float64_on, host, kind, libraries
from .models import (
    CONFIGS,
    GPT2_CONFIG,
    IDS,
    LLAMA_CONFIG,
    LLAMA_TIED_CONFIG,
    alone,
    drawn,
    filled,
    padded,
)
from .names import from_theirs, is_gpt2, is_stored_in_out, their_name, their_shapes, to_theirs
from .transformers import their_model

__all__ = [
    "CONFIGS",
    "FLOAT32",
    "GPT2_CONFIG",
    "IDS",
    "LLAMA_CONFIG",
    "LLAMA_TIED_CONFIG",
    "alone",
    "array",
    "compiled",
    "distance",
    "drawn",
    "filled",
    "float64_on",
    "from_theirs",
    "host",
    "is_gpt2",
    "is_stored_in_out",
    "kind",
    "libraries",
    "padded",
    "their_model",
    "their_name",
    "their_shapes",
    "to_theirs",
]
