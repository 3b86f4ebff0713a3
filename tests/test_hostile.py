"""What hostile callers do: traced and foreign arrays, copies, broken adapters, long generations."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import tinyxp
from tinyxp import Config, Params
from tinyxp.decoding import CHUNK
from tinyxp.generation import AHEAD

IDS = [[3, 1, 4, 1, 5]]
TARGETS = [[1, 4, 1, 5, -100]]
LEARNED = Config(position="learned", norm="layer", mlp="gelu_tanh", max_seq_len=2048)


@pytest.fixture(scope="module")
def params() -> Params:
    return tinyxp.init(Config(), seed=1)


def test_jax_arrays_closed_over_in_a_trace_are_checked_and_used(params: Params) -> None:
    p, ids, targets = params.to(jnp), jnp.asarray(IDS), jnp.asarray(TARGETS)
    mask = jnp.asarray([[1, 1, 1, 1, 1]])
    traced = jax.jit(
        lambda q: tinyxp.loss(q, ids, targets, mask=mask, positions=jnp.asarray([[0, 1, 2, 3, 4]]))
    )
    assert float(traced(p)) == pytest.approx(float(tinyxp.loss(p, ids, targets)), rel=1e-6)
    outside = jnp.asarray([[128]])
    with pytest.raises(ValueError, match="ids holds 128"):
        jax.jit(lambda q: tinyxp.forward(q, outside))(p)


def test_compiling_for_a_second_vocabulary_and_for_dynamic_shapes() -> None:
    torch.compiler.reset()
    compiled = torch.compile(tinyxp.forward, fullgraph=True, backend="eager")
    dynamic = torch.compile(tinyxp.forward, fullgraph=True, backend="eager", dynamic=True)
    for size in (128, 77):
        p = tinyxp.init(Config(vocab_size=size)).to(torch)
        for ids in (torch.tensor(IDS), torch.tensor([[1, 2, 3], [4, 5, 6]])):
            wanted = tinyxp.forward(p, ids)
            assert torch.equal(compiled(p, ids), wanted)
            assert torch.equal(dynamic(p, ids), wanted)


def test_gradients_of_each_sample_in_torch(params: Params) -> None:
    p = params.to(torch)
    ids, targets = torch.tensor([[[1, 2]], [[3, 4]]]), torch.tensor([[[2, 1]], [[4, 3]]])
    each = torch.func.vmap(torch.func.grad(tinyxp.loss), in_dims=(None, 0, 0))(p, ids, targets)
    one = torch.func.grad(tinyxp.loss)(p, ids[1], targets[1])
    assert torch.allclose(each["blocks.0.attn.q.weight"][1], one["blocks.0.attn.q.weight"], atol=1e-7)


def test_gradients_of_numpy_parameters_combine_with_them(params: Params) -> None:
    gradient = jax.grad(tinyxp.loss)(params, np.asarray(IDS), np.asarray(TARGETS))
    stepped = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)
    assert isinstance(stepped, Params)
    assert stepped.backend.name == "jax"
    assert float(tinyxp.loss(stepped, IDS, TARGETS)) < float(tinyxp.loss(params, IDS, TARGETS))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_parameters_are_copied_and_pickled(
    backend: tinyxp.Backend, duplicate: object, params: Params
) -> None:
    p = params.to(backend.xp)
    again = duplicate(p)  # type: ignore[operator]
    assert again.config == p.config
    assert np.array_equal(backend.to_numpy(again["embed.weight"]), params["embed.weight"])
    with pytest.raises(AttributeError, match="read-only"):
        del again.config


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.uint16, torch.uint32, torch.uint64])
def test_ids_of_every_integer_dtype_of_torch(params: Params, dtype: torch.dtype) -> None:
    wanted = tinyxp.loss(params.to(torch), IDS, IDS)
    assert torch.equal(
        tinyxp.loss(params.to(torch), torch.tensor(IDS).to(dtype), torch.tensor(IDS).to(dtype)), wanted
    )


def test_caches_of_other_models_and_libraries_are_refused(params: Params) -> None:
    other = tinyxp.init(Config(n_layers=3))
    for cache, words in (
        (tinyxp.new_cache(other, 1, 8), r"cache has \(layers, rows"),
        (tinyxp.new_cache(tinyxp.init(Config(n_kv_heads=4)), 1, 8), "heads"),
        (tinyxp.new_cache(params.to(dtype="float64"), 1, 8), "in float64; the parameters want .* in float32"),
        (tinyxp.new_cache(params.to(torch), 1, 8), "cache holds no arrays of numpy"),
    ):
        with pytest.raises(ValueError, match=words):
            tinyxp.extend(params, IDS, cache)


def test_a_cache_grows_while_rows_of_unequal_length_go_on(backend: tinyxp.Backend) -> None:
    """Prompts longer than a chunk, and more new tokens than a cache has room for at first."""
    config = Config(vocab_size=16, n_layers=1, d_model=8, n_heads=2, n_kv_heads=1, d_ff=8, max_seq_len=64)
    p = tinyxp.init(config, seed=2)
    p = Params({name: x * 20 if x.ndim == 2 else x for name, x in p.items()}, config)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 16, (2, CHUNK + 40))
    mask = np.ones(ids.shape, dtype=bool)
    mask[1, 30:] = False  # the second row's last real column lies in the first chunk
    new = tinyxp.generate(p, ids, AHEAD + 40, mask=mask, xp=backend.xp)
    rows = [ids[0].tolist(), ids[1, :30].tolist()]
    for row, made in zip(rows, np.asarray(backend.to_numpy(new)).tolist(), strict=True):
        logits = tinyxp.forward(p.to(dtype="float64"), [row + made])[0]
        assert np.argmax(logits[len(row) - 1 : -1], axis=-1).tolist() == made


def test_a_generous_limit_costs_nothing_up_front() -> None:
    p = tinyxp.init(Config(), seed=1)
    (first,) = tinyxp.generate(p, IDS, 1)[0].tolist()
    assert tinyxp.generate(p, IDS, 10**15, temperature=0.0, eos=first).tolist() == [[first]]
    assert tinyxp.generate(p, IDS, 10**15, temperature=1.0, top_k=1, seed=1, eos=first).tolist() == [[first]]


ADAPTER = """
import mylib
from tinyxp import Backend
backend = Backend("mylib", mylib)
"""
BROKEN = "raise RuntimeError('this adapter is broken')"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with two libraries, one adapter that works and one that does not, as pip would leave them."""
    (tmp_path / "mylib.py").write_text("from numpy import *\nfrom numpy import bool\n__name__ = 'mylib'\n")
    (tmp_path / "otherlib.py").write_text("")
    (tmp_path / "my_adapter.py").write_text(ADAPTER)
    (tmp_path / "broken_adapter.py").write_text(BROKEN)
    info = tmp_path / "my_distribution-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-distribution\nVersion: 1.5\n")
    (info / "top_level.txt").write_text("mylib\notherlib\n")
    (info / "RECORD").write_text("mylib.py,,\notherlib.py,,\n")
    (info / "entry_points.txt").write_text(
        "[tinyxp.backends]\nmylib = my_adapter:backend\notherlib = broken_adapter:backend\n"
    )
    return tmp_path


def run(site: Path, program: str) -> str:
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(site)!r})\n{textwrap.dedent(program)}",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_a_third_party_s_backend_is_the_equal_of_ours(site: Path) -> None:
    program = """
        import mylib, tinyxp
        print(tinyxp.backend("mylib"), tinyxp.available_backends()["mylib"])
        params = tinyxp.init(tinyxp.Config())
        print(tinyxp.forward(params, [[1, 2]], xp=mylib).shape)
    """
    assert run(site, program) == "<tinyxp backend mylib> 1.5\n(1, 2, 128)\n"


def test_a_broken_adapter_breaks_nothing_else_and_says_why_when_asked_for(site: Path) -> None:
    program = """
        import otherlib, tinyxp
        print(tinyxp.forward(tinyxp.init(tinyxp.Config()), [[1, 2]]).shape)
        try:
            tinyxp.backend("otherlib")
        except RuntimeError as error:
            print(error)
    """
    assert run(site, program) == "(1, 2, 128)\nthis adapter is broken\n"
