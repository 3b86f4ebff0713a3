"""A user's function as a side: called with what it takes, and its answer checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import libraries
from tinyxp.doctor import Batch, as_side, compare

from .models import IDS, llama, traced

BATCH = Batch(IDS)


@pytest.mark.parametrize("library", libraries("numpy", "torch", "jax", "strict"))
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_a_function_may_give_arrays_of_any_library(library: str, dtype: str) -> None:
    backend = tinyxp.backend(library)
    with backend.float64():
        if dtype not in backend.dtypes():
            pytest.skip(f"{library} has no {dtype} here")
        wanted = traced(llama(), IDS)["logits"]
        given = backend.from_numpy(wanted, dtype=dtype)
        side = as_side(lambda ids: given)
        points, computed_in = side.trace(BATCH)
        found = points["logits"]
    assert computed_in == dtype
    assert side.dtype is None  # a run leaves the side as it was
    assert found.dtype == np.dtype("float32" if dtype == "bfloat16" else dtype)
    assert found == pytest.approx(wanted, rel=1e-2)


def test_lists_and_torch_modules_that_need_gradients_are_taken() -> None:
    logits = traced(llama(), IDS)["logits"]
    assert np.array_equal(
        as_side(lambda ids: logits.astype(float).tolist()).trace(BATCH).points["logits"], logits
    )
    torch = pytest.importorskip("torch")
    given = torch.tensor(logits, requires_grad=True)
    assert np.array_equal(as_side(lambda ids: given * 1).trace(BATCH).points["logits"], logits)


def test_what_a_function_says_it_computes_in_is_the_narrowest_of_its_points() -> None:
    points = traced(llama(), IDS)
    points["embed"] = points["embed"].astype(np.float64)
    points["logits"] = points["logits"].astype(np.float16)
    assert as_side(lambda ids: points).trace(BATCH).dtype == "float16"


def test_one_sequence_may_lack_its_batch_axis() -> None:
    one = Batch(IDS[:1])
    points = {name: x[0] for name, x in traced(llama(), IDS[:1]).items()}
    found = as_side(lambda ids: points).trace(one).points
    assert all(found[name].shape == (1, *x.shape) for name, x in points.items())
    assert compare(llama(), lambda ids: points, IDS[:1]).agrees


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (np.zeros((2, 12)), r"F gave logits of shape \(2, 12\); it must be \(b, t, n\), with 2 rows"),
        (np.zeros((3, 12, 61)), r"shape \(3, 12, 61\)"),
        (np.zeros((2, 0, 61)), r"shape \(2, 0, 61\)"),
        (np.zeros((2, 12, 61), int), r"trace point logits has dtype int64"),
        (np.zeros((2, 12, 61), object), r"dtype object"),
        (np.zeros((2, 12, 61), complex), r"dtype complex128"),
        ({}, r"F gave no trace point"),
        ({"mlp.hidden": np.zeros((2, 12, 61))}, r"trace point is 'mlp\.hidden'; known are embed, blocks"),
        ({"blocks.0.attn.scores": np.zeros((2, 12, 12))}, r"blocks\.0\.attn\.scores of shape \(2, 12, 12\)"),
        (None, r"logits"),
        ("text", r"logits"),
        ([[1.0], [1.0, 2.0]], r"logits"),
        ({3: np.zeros((2, 12, 61))}, r"trace point is 3"),
    ],
)
def test_what_a_function_must_give_is_said_in_a_line(answer: Any, said: str) -> None:
    def f(ids: Any) -> Any:
        return answer

    with pytest.raises(ValueError, match=said) as error:
        as_side(f, "F").trace(BATCH)
    assert "\n" not in str(error.value)


def test_a_mask_goes_to_functions_that_take_one_and_to_no_other() -> None:
    mask = np.arange(12) >= np.array([[0], [4]])
    seen: list[Any] = []

    def takes(ids: Any, mask: Any = None) -> Any:
        seen.append(mask)
        return traced(llama(), ids, mask)

    def takes_all(ids: Any, **named: Any) -> Any:
        seen.append(named["mask"])
        return traced(llama(), ids, **named)

    for function in (takes, takes_all):
        as_side(function).trace(Batch(IDS, mask))
        assert np.array_equal(seen.pop(), mask)
    as_side(takes).trace(BATCH)
    assert seen == [None]
    with pytest.raises(ValueError, match=r"F takes no mask, and there is padding"):
        as_side(lambda ids: ids, "F").trace(Batch(IDS, mask))
