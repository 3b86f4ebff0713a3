"""A plugin of pytest for the mutation tests: NumPy alone, tinyxp from this tree, and no shrinking.

Mutants run in processes forked from one that has collected the tests. Other array libraries would make them
slow, and threads that they start do not survive a fork, so here they are as if they were not installed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hypothesis
from hypothesis import Phase

import tinyxp

ROOT = Path(__file__).parents[2]
HIDDEN = ("array_api_strict", "dask", "jax", "mlx", "mparray", "ndonnx", "torch", "transformers")

for library in HIDDEN:
    # None: it cannot be imported, nor is its spec found
    if sys.modules.setdefault(library, None) is not None:  # type: ignore[arg-type]
        raise ImportError(f"{library} is imported already; the mutation tests are for NumPy alone")
if Path(tinyxp.__file__).parent != ROOT / "tinyxp":
    raise ImportError(f"tinyxp is {tinyxp.__file__}; the mutation tests need the one in {ROOT}")
tinyxp.__path__.append(str(ROOT))  # in a tree, tinyxp.backends is there

hypothesis.settings.register_profile(
    "mutation", derandomize=True, deadline=None, max_examples=10, phases=(Phase.explicit, Phase.generate)
)
os.environ["HYPOTHESIS_PROFILE"] = "mutation"  # tests/conftest.py loads it
