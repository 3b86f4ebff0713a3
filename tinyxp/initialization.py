"""The first values of a decoder's parameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyxp import registry
from tinyxp.checks import as_integer
from tinyxp.config import Config
from tinyxp.joint import lay_together
from tinyxp.params import Params
from tinyxp.shapes import as_config, parameter_shapes
from tinyxp.typing import Array, Namespace

INIT_STD = 0.02


def init(
    config: Config,
    *,
    seed: int = 0,
    xp: Namespace = np,
    dtype: str = "float32",
    device: Any = None,
) -> Params:
    """Return random parameters after GPT-2's scheme: matrices normal with standard deviation 0.02, and
    0.02 / sqrt(2 L) for the two of each block that write into the residual stream; norm weights 1, biases 0.

    The numbers are the same on every backend: they are drawn in float64 on the host from
    ``numpy.random.default_rng(seed)``, in the order of ``parameter_shapes``, and rounded to ``dtype``.
    (Radford et al., 2019.)
    """
    as_config(config)
    seed = as_integer("seed", seed, low=0)
    target = registry.backend(xp)
    target.dtype(dtype)
    rng = np.random.default_rng(seed)
    residual_std = INIT_STD / math.sqrt(2 * config.n_layers)
    arrays: dict[str, Array] = {}
    for name, shape in parameter_shapes(config).items():
        if name.endswith(".bias"):
            host = np.zeros(shape)
        elif len(shape) == 1:
            host = np.ones(shape)
        else:
            writes_residual = name.endswith(("attn.o.weight", "mlp.down.weight"))
            host = rng.normal(0.0, residual_std if writes_residual else INIT_STD, shape)
        arrays[name] = target.from_numpy(host, dtype=dtype, device=device)
    return Params(lay_together(arrays, config, target), config)
