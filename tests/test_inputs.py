"""Bad input: one ValueError that names the field, the value and the limit, the same on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import GPT2_CONFIG, LLAMA_CONFIG, array, drawn, host
from tinyxp import Config, Params, extend, forward, loss, new_cache, trace

FOUR = Config(vocab_size=4, n_layers=1, d_model=8, n_heads=2, n_kv_heads=2, d_ff=8)
NAMES = [name for name in ("numpy", "torch", "jax", "strict") if tinyxp.available_backends()[name]]


def message(call: Callable[[Params], Any], params: Params) -> str:
    """What the call says on every backend that is installed, which must be one thing."""
    found = {}
    for name in NAMES:
        with pytest.raises(ValueError) as error:  # noqa: PT011 - callers look at the message
            call(params.to(tinyxp.backend(name).xp))
        found[name] = str(error.value)
    assert len(set(found.values())) == 1, found
    return found["numpy"]


BAD_IDS: list[tuple[Any, list[str]]] = [
    ([[0, 4]], ["ids holds 4", "vocabulary size 4"]),
    ([[0, -1]], ["ids holds -1", "0 or more", "vocabulary size 4"]),
    ([[0, -5]], ["ids holds -5", "vocabulary size 4"]),
    ([[0, 2**31 + 5]], ["ids holds 2147483653", "vocabulary size 4"]),
    ([[0, -(2**31) - 1]], ["ids holds -2147483649"]),
    ([[2**32]], ["ids holds 4294967296"]),
    ([[2**63]], ["ids holds 9223372036854775808"]),
    (np.array([[2**63 + 1]], dtype=np.uint64), ["ids holds 9223372036854775809"]),
    ([[2**70]], ["ids"]),
    ([[1.0, 2.0]], ["ids has dtype float64", "integer"]),
    (np.ones((1, 2), dtype=np.float32), ["ids has dtype float32", "integer"]),
    ([[True, False]], ["ids has dtype bool", "integer"]),
    ([["a", "b"]], ["ids has dtype", "integer"]),
    ("abc", ["ids"]),
    ([[None]], ["ids"]),
    (None, ["ids"]),
    ([[1, 2], [3]], ["ids"]),
    ([1, 2], ["ids has shape (2,)", "(batch, time)"]),
    (3, ["ids has shape ()"]),
    ([[[1]]], ["ids has shape (1, 1, 1)"]),
    (np.zeros((0, 3), dtype=np.int64), ["ids has shape (0, 3)", "1 or more"]),
    (np.zeros((2, 0), dtype=np.int64), ["ids has shape (2, 0)", "1 or more"]),
    ([], ["ids has shape (0,)"]),
    ([[]], ["ids has shape (1, 0)"]),
    ({"input_ids": [[1]]}, ["ids"]),
]


@pytest.mark.parametrize("ids, words", BAD_IDS, ids=[str(ids) for ids, _ in BAD_IDS])
def test_ids(ids: Any, words: list[str]) -> None:
    said = message(lambda params: forward(params, ids), drawn(FOUR))
    assert all(word in said for word in words)
    for call in (
        lambda params: trace(params, ids),
        lambda params: loss(params, ids, [[1]]),
        lambda params: extend(params, ids, new_cache(params, 1, 4)),
    ):
        assert message(call, drawn(FOUR)) == said


@pytest.mark.parametrize("bad", [4, -1, -5])
def test_ids_in_arrays_of_the_library_itself(bad: int) -> None:
    """JAX returns the last row or NaN for them, and a negative id wraps on every library."""
    said = message(lambda params: forward(params, array(params.backend, [[1, bad]])), drawn(FOUR))
    assert said == message(lambda params: forward(params, [[1, bad]]), drawn(FOUR))
    for dtype in ("int8", "int32"):
        ids = np.array([[1, bad]], dtype=dtype)
        assert (
            message(lambda params, ids=ids: forward(params, array(params.backend, ids)), drawn(FOUR)) == said
        )


def test_ids_of_a_narrow_dtype_and_a_large_vocabulary(backend: tinyxp.Backend) -> None:
    """The limit may not fit the ids' dtype."""
    params = drawn(Config(vocab_size=300, n_layers=1, d_model=8, d_ff=8)).to(backend.xp)
    ids = array(backend, np.array([[100, 127]], dtype=np.int8))
    assert np.array_equal(host(forward(params, ids)), host(forward(params, [[100, 127]])))


@pytest.mark.parametrize("kind, value", [("float32", 1.0), ("bool", True)], ids=["float", "bool"])
def test_ids_of_the_library_itself_that_are_no_integers(kind: str, value: Any) -> None:
    said = message(
        lambda params: forward(params, array(params.backend, np.full((1, 2), value, dtype=kind))), drawn(FOUR)
    )
    assert f"ids has dtype {kind}" in said


BAD_TARGETS: list[tuple[Any, list[str]]] = [
    ([[0, 4]], ["targets holds 4", "vocabulary size 4", "-100"]),
    ([[0, -1]], ["targets holds -1", "-100"]),
    ([[0, -5]], ["targets holds -5"]),
    ([[0, -99]], ["targets holds -99"]),
    ([[-100, 4]], ["targets holds 4"]),
    ([[-101, -100]], ["targets holds -101"]),
    ([[0, 2**31 + 5]], ["targets holds 2147483653"]),
    ([[1.0, 2.0]], ["targets has dtype float64"]),
    ([[True, False]], ["targets has dtype bool"]),
    ([[0]], ["targets has shape (1, 1)", "ids has (1, 2)"]),
    ([[0, 1], [2, 3]], ["targets has shape (2, 2)", "ids has (1, 2)"]),
    ([0, 1], ["targets has shape (2,)"]),
    ([[]], ["targets has shape (1, 0)"]),
    ("ab", ["targets"]),
    (None, ["targets"]),
]


@pytest.mark.parametrize("targets, words", BAD_TARGETS, ids=[str(targets) for targets, _ in BAD_TARGETS])
def test_targets(targets: Any, words: list[str]) -> None:
    said = message(lambda params: loss(params, [[1, 2]], targets), drawn(FOUR))
    assert all(word in said for word in words)


@pytest.mark.parametrize("bad", [4, -1, -5])
def test_targets_in_arrays_of_the_library_itself(bad: int) -> None:
    said = message(lambda params: loss(params, [[1, 2]], array(params.backend, [[-100, bad]])), drawn(FOUR))
    assert said == message(lambda params: loss(params, [[1, 2]], [[-100, bad]]), drawn(FOUR))


BAD_MASKS: list[tuple[Any, list[str]]] = [
    ([[True]], ["mask has shape (1, 1)", "ids has (1, 2)"]),
    ([True, True], ["mask has shape (2,)", "ids has (1, 2)"]),
    ([[True, True]] * 2, ["mask has shape (2, 2)"]),
    ([[[[True, True]]]], ["mask has shape (1, 1, 1, 2)"]),
    ([[1.0, 0.0]], ["mask has dtype float64", "bool"]),
    ([[0, 2]], ["mask", "0", "1"]),
    ([[0, -1]], ["mask", "0", "1"]),
    ([[0, -10000]], ["mask", "0", "1"]),
    ([["x", "y"]], ["mask has dtype"]),
    ([[True], [True, False]], ["mask"]),
    ("ab", ["mask"]),
]


@pytest.mark.parametrize("mask, words", BAD_MASKS, ids=[str(mask) for mask, _ in BAD_MASKS])
def test_masks(mask: Any, words: list[str]) -> None:
    said = message(lambda params: forward(params, [[1, 2]], mask=mask), drawn(FOUR))
    assert all(word in said for word in words)
    assert (
        message(lambda params: extend(params, [[1, 2]], new_cache(params, 1, 2), mask=mask), drawn(FOUR))
        == said
    )


@pytest.mark.parametrize(
    "mask, words",
    [
        ([[True]], ["mask has shape (1, 1)", "ids has (1, 2)"]),
        (np.ones((1, 2), dtype=np.float32), ["mask has dtype float32", "bool"]),
        (np.array([[0, 2]], dtype=np.int32), ["mask", "0", "1"]),
        (np.array([[-1, 0]], dtype=np.int32), ["mask", "0", "1"]),
    ],
    ids=str,
)
def test_masks_of_the_library_itself(mask: Any, words: list[str]) -> None:
    said = message(lambda params: forward(params, [[1, 2]], mask=array(params.backend, mask)), drawn(FOUR))
    assert all(word in said for word in words)


BAD_POSITIONS: list[tuple[Any, list[str]]] = [
    ([[0]], ["positions has shape (1, 1)", "ids has (2, 2)"]),
    ([0, 1], ["positions has shape (2,)"]),
    ([[0, 1]] * 3, ["positions has shape (3, 2)", "ids has (2, 2)"]),
    ([[0, -1]], ["positions holds -1", "0 or more"]),
    ([[0.0, 1.0]], ["positions has dtype float64", "integer"]),
    ([[False, True]], ["positions has dtype bool"]),
    ([[0, 1], [0]], ["positions"]),
    ("01", ["positions"]),
]


@pytest.mark.parametrize("positions, words", BAD_POSITIONS, ids=[str(p) for p, _ in BAD_POSITIONS])
@pytest.mark.parametrize("config", [LLAMA_CONFIG, GPT2_CONFIG], ids=["llama", "gpt2"])
def test_positions(config: Config, positions: Any, words: list[str]) -> None:
    said = message(lambda params: forward(params, [[1, 2]] * 2, positions=positions), drawn(config))
    assert all(word in said for word in words)


@pytest.mark.parametrize("position", [2**31 + 5, 2**32])
def test_positions_that_jax_s_integers_cannot_hold(position: int) -> None:
    """In 32 bits they would wrap to others without a word; the learned ones end long before."""
    jax = pytest.importorskip("jax")
    with pytest.raises(ValueError, match=str(position)):
        forward(drawn(FOUR).to(jax.numpy), [[1, 2]], positions=[[0, position]])
    said = message(lambda params: forward(params, [[1, 2]], positions=[[0, position]]), drawn(GPT2_CONFIG))
    assert f"positions holds {position}; it must be 0 or more and below max_seq_len 16" in said


@pytest.mark.parametrize("position", [16, 17, 1000])
def test_learned_positions_have_an_end(position: int) -> None:
    said = message(lambda params: forward(params, [[1, 2]], positions=[[0, position]]), drawn(GPT2_CONFIG))
    assert f"positions holds {position}; it must be 0 or more and below max_seq_len 16" in said
    own = message(
        lambda params: forward(params, [[1, 2]], positions=array(params.backend, [[0, position]])),
        drawn(GPT2_CONFIG),
    )
    assert own == said


def test_too_long_for_learned_positions() -> None:
    said = message(lambda params: forward(params, [[1] * 17]), drawn(GPT2_CONFIG))
    assert "17 > 16" in said
    assert "max_seq_len" in said
    assert message(lambda params: loss(params, [[1] * 17], [[1] * 17]), drawn(GPT2_CONFIG)) == said
    masked = message(lambda params: forward(params, [[1] * 17], mask=[[True] * 17]), drawn(GPT2_CONFIG))
    assert masked == said
    # With padding the real tokens count.
    forward(drawn(GPT2_CONFIG), [[1] * 17], mask=[[False] + [True] * 16])


def test_too_long_for_learned_positions_without_values() -> None:
    """The length is static, so that it is known under jit and on meta too."""
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    with pytest.raises(ValueError, match="17 > 16"):
        jax.jit(forward)(drawn(GPT2_CONFIG).to(jax.numpy), np.ones((1, 17), dtype=np.int32))
    with pytest.raises(ValueError, match="17 > 16"):
        forward(
            drawn(GPT2_CONFIG).to(torch, device="meta"), torch.ones((1, 17), dtype=torch.int64, device="meta")
        )


def test_a_cache_too_short_under_jit() -> None:
    jax = pytest.importorskip("jax")
    params = drawn(LLAMA_CONFIG).to(jax.numpy)
    with pytest.raises(ValueError, match=r"cache length: 5 columns > 4"):
        jax.jit(extend)(params, np.ones((1, 5), dtype=np.int32), new_cache(params, 1, 4))


@pytest.mark.parametrize("wrong", [None, {}, "model", 3], ids=repr)
def test_what_are_no_params(wrong: Any) -> None:
    for call in (
        lambda: forward(wrong, [[1]]),
        lambda: loss(wrong, [[1]], [[1]]),
        lambda: new_cache(wrong, 1, 4),
        lambda: trace(wrong, [[1]]),
    ):
        with pytest.raises(ValueError, match=f"^params is a {type(wrong).__name__}"):
            call()


@pytest.mark.parametrize("xp", [3, "cupy", object()], ids=["int", "str", "object"])
def test_what_is_no_namespace(xp: Any) -> None:
    with pytest.raises(ValueError, match="cupy|xp is"):
        forward(drawn(FOUR), [[1]], xp=xp)
