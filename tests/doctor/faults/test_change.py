"""Changes of parameters and kernels."""

from __future__ import annotations

import numpy as np
import pytest

from tinyxp.doctor.faults.change import edit_parameters, edit_rotary, load_from, name_in_block

ARRAYS = {
    "blocks.3.attn.k.weight": np.ones((2, 4)),
    "blocks.3.attn.q.weight": np.zeros((4, 4)),
    "blocks.3.attn.v.weight": np.full((2, 4), 3.0),
    "embed.weight": np.full((5, 4), 7.0),
}


@pytest.mark.parametrize(
    ("name", "short"),
    [("blocks.3.attn.k.weight", "attn.k.weight"), ("embed.weight", "embed.weight")],
)
def test_the_name_within_a_block(name: str, short: str) -> None:
    assert name_in_block(name) == short


def test_only_the_named_parameters_are_edited() -> None:
    change = edit_parameters(["attn.k.weight"], np.negative).parameters
    assert change is not None
    edited = {name: change(name, x, ARRAYS.__getitem__) for name, x in ARRAYS.items()}
    assert np.array_equal(edited.pop("blocks.3.attn.k.weight"), -np.ones((2, 4)))
    assert all(edited[name] is ARRAYS[name] for name in edited)


def test_parameters_are_loaded_from_the_same_block_and_of_the_same_shape_only() -> None:
    change = load_from({"attn.k": "attn.v", "attn.q": "attn.k"}).parameters
    assert change is not None
    k, q = (change(f"blocks.3.attn.{x}.weight", ARRAYS[f"blocks.3.attn.{x}.weight"], read) for x in "kq")
    assert np.array_equal(k, np.full((2, 4), 3.0))
    assert q is ARRAYS["blocks.3.attn.q.weight"]


def read(name: str) -> np.ndarray:
    return ARRAYS[name]


def test_an_edited_rotation_calls_the_one_before_it() -> None:
    def double(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, *, xp: object) -> np.ndarray:
        return 2.0 * x

    edit = edit_rotary(lambda rotary, x, cos, sin, xp: rotary(rotary(x, cos, sin), cos, sin))
    kernel = edit.kernels["rotary"](double, None)  # type: ignore[arg-type]
    one = np.ones(1)
    assert kernel(one, one, one, xp=np) == 4.0
