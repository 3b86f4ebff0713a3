"""How often JAX compiles: counted where it compiles, the operations outside jit with the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

pytest.importorskip("jax")

COUNTED = """
import json
import jax, numpy as np
import jax.numpy as jnp

compiled = []

def listen(name, seconds, **more):
    if name == "/jax/core/compile/backend_compile_duration":
        compiled.append(more["fun_name"])

jax.monitoring.register_event_duration_secs_listener(listen)

def counted():
    found = list(compiled)
    compiled.clear()
    return found

found = {}
jax.jit(lambda x: 2 * x + 1)(np.arange(3))
found["one function"] = counted()
jax.jit(lambda x: 3 * x + 1)(np.arange(3))
jnp.ones(17) - 0.5
found["a function and operations"] = counted()

from tinyxp import Config, generate, init, stream

config = Config(vocab_size=32, n_layers=2, d_model=8, n_heads=2, n_kv_heads=1, d_ff=8, max_seq_len=4096)
params = init(config, xp=jnp)
found["params"] = counted()
rng = np.random.default_rng(0)
lengths = [1, 2, 31, 32, 33, 127, 128, 129, 257, 384, 385, 511, 512, 513, 640, 641, 769, 1409, 1499, 1500]
lengths += rng.permutation(sorted(set(range(1, 1501)) - set(lengths)))[:80].tolist()
lengths = rng.permutation(lengths)
assert len(set(lengths.tolist())) == 100
"""

GREEDY = """
for length in lengths:
    ids = rng.integers(0, 32, (1, length))
    generate(params, ids if length % 2 else ids.tolist(), 1 + length % 7, eos=3)
found["generate"] = counted()
print(json.dumps(found))
"""

DRAWN = """
for length in lengths[:40]:
    ids = rng.integers(0, 32, (1, length))
    generate(params, ids, 3, temperature=1.0, seed=0)
    list(stream(params, ids, 2))
found["generate"] = counted()
print(json.dumps(found))
"""


def run(code: str) -> dict[str, list[str]]:
    """What a fresh process compiles."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", COUNTED + code],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("code", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_prompts_of_a_hundred_lengths_share_their_compilations(code: str) -> None:
    """Of 1 to 1500 ids: at most 8, whatever compiles: prefills, steps or loops, and single operations."""
    found = run(code)
    assert len(found["one function"]) == 1  # the counter counts,
    assert len(found["a function and operations"]) >= 2  # and single operations too
    assert found["params"] == []
    names = Counter(found["generate"])
    assert 0 < names.total() <= 8, names
