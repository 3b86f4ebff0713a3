"""Somebody else's model as a subject."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import numpy as np
import pytest

from tinyxp.testing import foreign
from tinyxp.testing.subjects.foreign_model import Interface


def one_hot(ids: Any, **more: Any) -> Any:
    return np.eye(5)[ids]


def test_its_keywords_are_those_of_the_interface() -> None:
    keywords = list(inspect.signature(foreign).parameters)[1:]
    assert keywords == list(get_type_hints(Interface))


def test_abilities_are_what_it_takes() -> None:
    assert foreign(one_hot, vocab_size=5, max_seq_len=4).abilities == frozenset()
    able = foreign(
        one_hot,
        vocab_size=5,
        max_seq_len=4,
        mask=True,
        positions=True,
        rotary=True,
        step=one_hot,
        name="mine",
    )
    assert able.abilities == {"mask", "positions", "rotary", "cache"}
    assert able.name == "mine"
    assert able.recipe.startswith(
        "foreign(function, vocab_size=5, max_seq_len=4, xp='numpy', dtype='float32'"
    )
    assert able.recipe.endswith("mask=True, positions=True, rotary=True, step=step)")


def test_logits_are_numpy_and_have_the_vocabulary() -> None:
    model = foreign(one_hot, vocab_size=5, max_seq_len=4)
    np.testing.assert_array_equal(model.forward([[1, 2]]), np.eye(5)[[[1, 2]]])
    with pytest.raises(AssertionError, match=r"logits have shape \(1, 2, 5\); .* is \(1, 2, 6\)"):
        foreign(one_hot, vocab_size=6, max_seq_len=4).forward([[1, 2]])


@pytest.mark.parametrize(
    "function, change, message",
    [
        ("no function", {}, "each must be a function"),
        (one_hot, {"step": 3}, "each must be a function"),
        (one_hot, {"dtype": "int8"}, "dtype is 'int8'; known are float64"),
        (one_hot, {"rotary": True}, "rotary is True, but positions is False"),
        (one_hot, {"vocab_size": 0}, "vocab_size is 0"),
        (one_hot, {"max_seq_len": 1.5}, "max_seq_len is 1.5"),
    ],
)
def test_contradictions_are_rejected(function: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        foreign(function, **{"vocab_size": 5, "max_seq_len": 4} | change)
