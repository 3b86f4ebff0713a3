"""The cache: every way of cutting a sequence gives the logits of one pass, and a cache is a value."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyxp
from tests.reference import (
    CONFIGS,
    GPT2_CONFIG,
    LLAMA_CONFIG,
    alone,
    compiled,
    distance,
    drawn,
    filled,
    float64_on,
    host,
    libraries,
)
from tinyxp import Config, Params, extend, forward, new_cache

TWELVE = np.random.default_rng(5).integers(0, 11, (3, 12))
LEFTS = (0, 3, 5)
MASK = np.arange(12) >= np.array(LEFTS)[:, None]
CUTS = ([12], [1] * 12, [5, 7], [11, 1])


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> Config:
    return CONFIGS[request.param]


def chunked(
    params: Params, ids: np.ndarray, mask: np.ndarray | None, cuts: Any, length: int = 12
) -> np.ndarray:
    """The logits of ids given in chunks of these lengths."""
    extend_by = compiled(params.backend, extend)
    cache, found, at = new_cache(params, len(ids), length), [], 0
    for cut in cuts:
        part = slice(at, at + cut)
        logits, cache = extend_by(params, ids[:, part], cache, mask=None if mask is None else mask[:, part])
        found.append(host(logits))
        at += cut
    return np.concatenate(found, axis=1)


def cuts_in_float32() -> list[Any]:
    """Each library and way of cutting. JAX compiles every width, so two ways wait for ``make test-all``."""
    return [
        pytest.param(name, cuts, marks=pytest.mark.rare if name == "jax" and max(cuts) > 7 else ())
        for name, cuts in itertools.product(("numpy", "torch", "jax", "strict"), CUTS)
    ]


def extend_to_last(params: Params, ids: Any, cache: Any, mask: Any) -> Any:
    return extend(params, ids, cache, mask=mask, last=True)


@pytest.mark.parametrize("backend, cuts", cuts_in_float32(), indirect=["backend"])
def test_cuts_in_float32(backend: tinyxp.Backend, config: Config, cuts: list[int]) -> None:
    params = filled(config).to(backend.xp, dtype="float32")
    assert distance(chunked(params, TWELVE[:1], None, cuts)[0], alone(config, TWELVE[0])) <= 1e-5
    logits = chunked(params, TWELVE, MASK, cuts, length=14)
    for r, left in enumerate(LEFTS):
        assert distance(logits[r, left:], alone(config, TWELVE[r, left:])) <= 1e-5


@pytest.mark.parametrize("cuts", CUTS, ids=str)
@pytest.mark.parametrize("name", libraries("numpy", "torch", "strict"))
def test_cuts_in_float64(name: str, config: Config, cuts: list[int]) -> None:
    params = filled(config).to(tinyxp.backend(name).xp)
    assert distance(chunked(params, TWELVE[:1], None, cuts)[0], alone(config, TWELVE[0])) <= 1e-12
    logits = chunked(params, TWELVE, MASK, cuts)
    for r, left in enumerate(LEFTS):
        assert distance(logits[r, left:], alone(config, TWELVE[r, left:])) <= 1e-12


def test_cuts_in_float64_on_jax(config: Config) -> None:
    jax = pytest.importorskip("jax")
    with float64_on(tinyxp.backend("jax")):
        params = filled(config).to(jax.numpy)
        logits = chunked(params, TWELVE, MASK, [5, 7])
        for r, left in enumerate(LEFTS):
            assert distance(logits[r, left:], alone(config, TWELVE[r, left:])) <= 1e-12


def test_all_2048_cuts(config: Config) -> None:
    """Every one of the 2^11 ways of cutting 12 ids: their chunks are extensions of the prefixes' caches."""
    params, expected = filled(config), alone(config, TWELVE[0])
    caches = {0: new_cache(params, 1, 12)}
    for start, end in itertools.combinations(range(13), 2):
        logits, cache = extend(params, TWELVE[:1, start:end], caches[start])
        assert distance(logits[0], expected[start:end]) <= 1e-12
        if end not in caches:
            caches[end] = cache
        # Whatever led to this prefix, its cache is the same; so every path through the cuts is covered.
        for ours, known in zip((*cache.keys, *cache.values), (*caches[end].keys, *caches[end].values)):  # noqa: B905
            assert distance(ours, known) <= 1e-12


@given(data=st.data())
@pytest.mark.parametrize("name", libraries("numpy", "torch", "strict"))
def test_any_cuts_with_any_padding(name: str, data: st.DataObject) -> None:
    config = CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))]
    params = filled(config).to(tinyxp.backend(name).xp)
    # Padding anywhere, in the middle too: the real tokens of a row are its sequence.
    mask = np.array([data.draw(st.lists(st.booleans(), min_size=12, max_size=12)) for _ in range(3)])
    order = data.draw(st.permutations(range(3)))
    cuts, left = [], 12
    while left:
        cuts.append(data.draw(st.integers(1, left)))
        left -= cuts[-1]
    logits = chunked(params, TWELVE[order], mask, cuts, length=data.draw(st.integers(12, 15)))
    for r, row in enumerate(TWELVE[order]):
        if mask[r].any():
            assert distance(logits[r, mask[r]], alone(config, row[mask[r]])) <= 1e-12


def test_right_padding_goes_on_from_the_last_real_column(backend: tinyxp.Backend, config: Config) -> None:
    params = filled(config).to(backend.xp, dtype="float32")
    ids, mask = TWELVE[:, :5], np.arange(5) < np.array([[5], [3], [1]])
    cache = new_cache(params, 3, 8)
    logits, cache = compiled(backend, extend_to_last)(params, ids, cache, mask)
    assert tuple(logits.shape) == (3, 1, 11)
    for r, length in enumerate((5, 3, 1)):
        assert distance(host(logits)[r, 0], alone(config, ids[r, :length])[-1]) <= 1e-5
    logits, _ = compiled(backend, extend)(params, TWELVE[:, 5:8], cache)
    for r, length in enumerate((5, 3, 1)):
        row = np.concatenate([ids[r, :length], TWELVE[r, 5:8]])
        assert distance(host(logits)[r], alone(config, row)[length:]) <= 1e-5


def test_last_is_each_rows_last_real_column(backend: tinyxp.Backend, config: Config) -> None:
    params = filled(config).to(backend.xp, dtype="float32")
    mask = np.array([[1, 1, 1, 1, 1], [0, 1, 1, 0, 0], [1, 0, 0, 0, 0]], dtype=bool)
    whole, _ = compiled(backend, extend)(params, TWELVE[:, :5], new_cache(params, 3, 8), mask=mask)
    last, _ = compiled(backend, extend_to_last)(params, TWELVE[:, :5], new_cache(params, 3, 8), mask)
    for r, column in enumerate((4, 2, 0)):
        assert distance(host(last)[r, 0], host(whole)[r, column]) <= 1e-6


def test_two_continuations_of_one_cache(backend: tinyxp.Backend, config: Config) -> None:
    params, extend_by = filled(config).to(backend.xp, dtype="float32"), compiled(backend, extend)
    _, start = extend_by(params, TWELVE[:1, :5], new_cache(params, 1, 12))
    before = [
        host(x).copy() for x in (*start.keys, *start.values, start.real, start.used, start.next_position)
    ]
    first, _ = extend_by(params, TWELVE[1:2, :7], start)
    second, _ = extend_by(params, TWELVE[2:3, :7], start)
    again, _ = extend_by(params, TWELVE[1:2, :7], start)
    after = [host(x) for x in (*start.keys, *start.values, start.real, start.used, start.next_position)]
    assert all(map(np.array_equal, before, after))
    assert np.array_equal(host(first), host(again))
    for logits, row in ((first, TWELVE[1]), (second, TWELVE[2])):
        whole = np.concatenate([TWELVE[0, :5], row[:7]])
        assert distance(host(logits)[0], alone(config, whole)[5:]) <= 1e-5


def test_explicit_positions(backend: tinyxp.Backend, config: Config) -> None:
    params = filled(config).to(backend.xp, dtype="float32")
    positions = np.array([[3, 4, 5, 6, 7], [0, 2, 4, 6, 8], [9, 8, 7, 6, 5]])
    expected = forward(filled(config), TWELVE[:, :5], positions=positions)
    extend_by, cache, found = compiled(backend, extend), new_cache(params, 3, 8), []
    for part in (slice(0, 3), slice(3, 5)):
        logits, cache = extend_by(params, TWELVE[:, part], cache, positions=positions[:, part])
        found.append(host(logits))
    assert distance(np.concatenate(found, axis=1), expected) <= 1e-5


def test_counting_goes_on_after_explicit_positions(backend: tinyxp.Backend) -> None:
    params = filled(GPT2_CONFIG).to(backend.xp, dtype="float32")
    extend_by, positions = compiled(backend, extend), np.array([[4, 5, 6]])
    _, cache = extend_by(params, TWELVE[:1, :3], new_cache(params, 1, 8), positions=positions)
    logits, _ = extend_by(params, TWELVE[:1, 3:5], cache)
    expected = forward(filled(GPT2_CONFIG), TWELVE[:1, :5], positions=[[4, 5, 6, 7, 8]])
    assert distance(logits, expected[:, 3:]) <= 1e-5


def test_a_new_cache(backend: tinyxp.Backend) -> None:
    for dtype in ("float32", "bfloat16"):
        if dtype not in backend.dtypes():
            continue
        params = drawn(LLAMA_CONFIG).to(backend.xp, dtype=dtype)
        cache = new_cache(params, 3, 7)
        assert len(cache.keys) == len(cache.values) == 2
        for x in (*cache.keys, *cache.values):
            assert tuple(x.shape) == (3, 1, 7, 4)
            assert x.dtype == params.dtype
        _, after = compiled(backend, extend)(params, np.ones((3, 1), dtype=np.int64), cache)
        assert after.keys[0].dtype == params.dtype


# Errors


@pytest.mark.parametrize("field", ["batch", "length"])
@pytest.mark.parametrize("value", [0, -1, 1.0, True, "2", None], ids=repr)
def test_new_cache_checks(backend: tinyxp.Backend, field: str, value: Any) -> None:
    params = drawn(LLAMA_CONFIG).to(backend.xp)
    with pytest.raises(ValueError, match=rf"^{field} is {value!r}"):
        new_cache(params, **({"batch": 1, "length": 1} | {field: value}))


def test_no_room(backend: tinyxp.Backend) -> None:
    params = drawn(LLAMA_CONFIG).to(backend.xp)
    _, cache = extend(params, TWELVE[:1, :5], new_cache(params, 1, 8))
    with pytest.raises(ValueError, match=r"cache length: 9 columns > 8"):
        extend(params, TWELVE[:1, :4], cache)
    logits, _ = extend(params, TWELVE[:1, :3], cache)
    assert tuple(logits.shape) == (1, 3, 11)


def test_other_rows(backend: tinyxp.Backend) -> None:
    params = drawn(LLAMA_CONFIG).to(backend.xp)
    with pytest.raises(ValueError, match=r"ids has 3 rows; the cache has 2"):
        extend(params, TWELVE, new_cache(params, 2, 12))


@pytest.mark.parametrize(
    "other",
    [GPT2_CONFIG, replace(LLAMA_CONFIG, n_layers=3), replace(LLAMA_CONFIG, n_kv_heads=2)],
    ids=["gpt2", "three layers", "two heads"],
)
def test_a_cache_of_another_model(other: Config) -> None:
    with pytest.raises(ValueError, match=r"cache has \(layers, rows, heads"):
        extend(drawn(LLAMA_CONFIG), [[1]], new_cache(drawn(other), 1, 4))


def test_a_cache_of_another_dtype() -> None:
    params = drawn(LLAMA_CONFIG)
    with pytest.raises(ValueError, match=r"in float64; the parameters need .* in float32"):
        extend(params, [[1]], new_cache(params.to(dtype="float64"), 1, 4))


@pytest.mark.parametrize("name", libraries("torch", "jax", "strict"))
def test_a_cache_of_another_library(name: str) -> None:
    params = drawn(LLAMA_CONFIG)
    with pytest.raises(ValueError, match="cache holds no numpy arrays"):
        extend(params, [[1]], new_cache(params.to(tinyxp.backend(name).xp), 1, 4))


@pytest.mark.parametrize("cache", [None, (), "cache"], ids=repr)
def test_what_is_no_cache(cache: Any) -> None:
    kind = type(cache).__name__
    with pytest.raises(ValueError, match=rf"^cache is a {kind}; it must come from tinyxp\.new_cache$"):
        extend(drawn(LLAMA_CONFIG), [[1]], cache)


def test_last_is_a_flag() -> None:
    params = drawn(LLAMA_CONFIG)
    with pytest.raises(ValueError, match=r"^last is 1; it must be True or False$"):
        extend(params, [[1]], new_cache(params, 1, 4), last=1)  # type: ignore[arg-type]


def test_learned_positions_run_out(backend: tinyxp.Backend) -> None:
    params = drawn(GPT2_CONFIG).to(backend.xp)
    _, cache = compiled(backend, extend)(params, TWELVE[:1], new_cache(params, 1, 24))
    with pytest.raises(ValueError, match=r"positions: 17 > 16, the max_seq_len"):
        extend(params, TWELVE[:1, :5], cache)


def test_padding_does_not_use_up_learned_positions(backend: tinyxp.Backend) -> None:
    """12 columns and 5 more are 17, but only 14 of them are real in the longest row."""
    params = filled(GPT2_CONFIG).to(backend.xp, dtype="float32")
    _, cache = compiled(backend, extend)(params, TWELVE[1:], new_cache(params, 2, 17), mask=MASK[1:])
    logits, _ = compiled(backend, extend)(params, TWELVE[1:, :5], cache)
    row = np.concatenate([TWELVE[1, 3:], TWELVE[1, :5]])
    assert distance(host(logits)[0], alone(GPT2_CONFIG, row)[9:]) <= 1e-5


# Under jit


def test_torch_compiles_a_step_once() -> None:
    torch = pytest.importorskip("torch")
    torch.compiler.reset()
    params = filled(LLAMA_CONFIG).to(torch, dtype="float32")
    compiled = torch.compile(extend, fullgraph=True, backend="aot_eager", dynamic=False)
    cache, found = new_cache(params, 1, 12), []
    try:
        for i in range(12):
            logits, cache = compiled(params, torch.tensor(TWELVE[:1, i : i + 1]), cache)
            found.append(host(logits)[0, 0])
            torch.compiler.set_stance("fail_on_recompile")
    finally:
        torch.compiler.set_stance("default")
    assert distance(np.stack(found), alone(LLAMA_CONFIG, TWELVE[0])) <= 1e-5


def test_jax_traces_a_step_once() -> None:
    jax = pytest.importorskip("jax")
    params, traces = filled(LLAMA_CONFIG).to(jax.numpy, dtype="float32"), []

    @jax.jit
    def step(params: Params, ids: Any, cache: Any) -> Any:
        traces.append(ids.shape)
        return extend(params, ids, cache)

    cache, found = new_cache(params, 1, 12), []
    for i in range(12):
        logits, cache = step(params, TWELVE[:1, i : i + 1], cache)
        found.append(host(logits)[0, 0])
    assert distance(np.stack(found), alone(LLAMA_CONFIG, TWELVE[0])) <= 1e-5
    assert traces == [(1, 1)]
