"""``tinyxp backends``."""

from __future__ import annotations

import json

import numpy as np

import tinyxp

from .running import Call


def test_backends_lists_every_library(call: Call) -> None:
    facts = json.loads(call("backends", "--json").stdout)
    assert facts["numpy"]["version"] == np.__version__
    assert facts["numpy"]["dtypes"] == ["float64", "float32", "float16"]
    assert facts.keys() == tinyxp.available_backends().keys()
    assert {"torch", "jax", "strict", "mlx", "dask", "ndonnx", "mparray"} <= facts.keys()
    lines = call("backends").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(facts)
    (numpy,) = [line for line in lines if line.startswith("numpy ")]
    assert numpy.split() == ["numpy", np.__version__, "float64", "float32", "float16", "cpu"]
