"""JAX's engine: compiled prefill, step and greedy loop, and a compiled forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from tinyxp.engine import Engine
from tinyxp.inputs import Inputs, check_inputs
from tinyxp.model import compute
from tinyxp.ops import Kernels, untapped
from tinyxp.params import Params

from .jax_decoding import JaxDecoder, stack
from .jax_kernels import attention, linear, reference_attention, reference_softmax, write_cache
from .jax_loss import linear_cross_entropy

KERNELS = {
    "attention": attention,
    "linear": linear,
    "write_cache": write_cache,
    "linear_cross_entropy": linear_cross_entropy,
}
TRAINING_KERNELS = {"linear_cross_entropy": linear_cross_entropy}
REFERENCES = {
    "softmax": reference_softmax,
    "silu": lambda x, *, xp: jax.nn.silu(x),
    "gelu": lambda x, *, xp: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x, *, xp: jax.nn.gelu(x, approximate=True),
    "attention": reference_attention,
}


class JaxEngine(Engine):
    """Everything compiled: one loop over stacked blocks, and one over tokens."""

    kernels = KERNELS
    training_kernels = TRAINING_KERNELS
    references = REFERENCES
    decoder = JaxDecoder

    def prepare(self, params: Params) -> Params:
        stacked = stack(params)
        jax.block_until_ready(stacked.blocks)
        return params.replace(stacked)

    def compile(self, params: Params) -> Callable[..., jax.Array]:
        leaves, static = params._flatten()
        kernels = Kernels(**self.kernels)

        def compute_leaves(leaves: list[jax.Array], *inputs: Any) -> jax.Array:
            logits, _ = compute(Inputs(Params._unflatten(leaves, static), *inputs), None, kernels, untapped)
            return logits

        compiled = jax.jit(compute_leaves)

        def forward(ids: Any, *, positions: Any = None, mask: Any = None) -> jax.Array:
            plain = positions is None and mask is None and isinstance(ids, jax.Array)
            if plain and ids.ndim == 2 and ids.size and ids.dtype == self.backend.index_dtype:
                logits = compiled(leaves, ids, None, None)
                check_inputs(params, ids, None, None, None)  # while XLA computes
                return logits
            inputs = check_inputs(params, ids, positions, mask, None)
            return compiled(leaves, inputs.ids, inputs.positions, inputs.mask)

        return forward
