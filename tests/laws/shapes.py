"""Which shapes laws run on."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any

from hypothesis import strategies as st

from tinyxp import Config
from tinyxp.testing.subjects.decoder import POOL, Decoder

POOLED = False if os.environ.get("HYPOTHESIS_PROFILE") == "long" else None
"""The ``ci`` profile keeps to the pool of shapes where a new one is compiled; the ``long`` one draws them."""

FAMILIES = tuple(config for config in POOL if config.n_layers > 1)
"""GPT-2's block, and Llama's with biases, grouped queries and scaled positions; two layers each."""


@dataclass(frozen=True, eq=False)
class OfTwoFamilies(Decoder):
    """A pooled decoder of ``FAMILIES`` alone; of the other configs if a law needs what both lack.

    Each config of the pool costs seconds of compilation on JAX. The choices of a config are the same source
    on every library, and the laws draw all of them on NumPy, torch and array_api_strict.
    """

    def configs(self, **fixed: Any) -> st.SearchStrategy[Config]:
        fitting = [
            c for c in FAMILIES if all(getattr(c, name, value) == value for name, value in fixed.items())
        ]
        return st.sampled_from(fitting) if fitting and self.pooled else super().configs(**fixed)


def of_two_families(decoder: Decoder) -> Decoder:
    """Return the decoder limited to ``FAMILIES``, if it is pooled."""
    return OfTwoFamilies(**{field.name: getattr(decoder, field.name) for field in fields(decoder)})
