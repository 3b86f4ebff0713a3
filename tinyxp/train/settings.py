"""What a new training run is: its model, its vocabulary and its recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tinyxp.checks import as_integer
from tinyxp.config import GPT2, Config
from tinyxp.train.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A new run, as plain data."""

    recipe: Recipe
    family: str = "gpt2"
    """"gpt2" or "llama": the choices of the block."""
    width: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int | None = None
    """Key/value heads; None: as many as heads."""
    context: int = 128
    """Tokens of a window."""
    untied: bool = False
    """Whether the head is a matrix of its own."""
    vocabulary: str = "4096"
    """The size of a vocabulary to train, or the name of a tokenizer, of which the ids in use are kept."""
    held_out: float = 0.1
    """The share of the text, at its end, that is not trained on."""
    prompt: str | None = None
    """What samples begin with; None: the beginning of the held-out text."""

    def config(self, vocab_size: int) -> Config:
        """Return the config. MLPs have width 4 d, or with a gate 8/3 d rounded up to a multiple of 64.

        Raise ValueError naming the field for sizes that do not fit.
        """
        d = as_integer("width", self.width, low=1)
        heads = as_integer("heads", self.heads, low=1)
        gated = self.family == "llama"
        family: dict[str, Any] = {} if gated else GPT2
        return Config(
            **family
            | {
                "vocab_size": vocab_size,
                "n_layers": as_integer("layers", self.layers, low=1),
                "d_model": d,
                "n_heads": heads,
                "n_kv_heads": heads if self.kv_heads is None else self.kv_heads,
                "d_ff": -(-8 * d // (3 * 64)) * 64 if gated else 4 * d,
                "max_seq_len": as_integer("context", self.context, low=1),
                "tie_embeddings": not self.untied,
            }
        )
