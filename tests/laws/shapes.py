"""Which shapes laws run on."""

import os

POOLED = False if os.environ.get("HYPOTHESIS_PROFILE") == "long" else None
"""The ``ci`` profile keeps to the pool of shapes where a new one is compiled; the ``long`` one draws them."""
