"""Params: what is refused, read-only, other names, copies."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import GPT2_CONFIG, LLAMA_CONFIG, drawn, host
from tinyxp import Config, Params, init


def test_missing_and_unknown_names_are_listed() -> None:
    arrays = dict(drawn(LLAMA_CONFIG))
    del arrays["blocks.1.attn.q.weight"], arrays["final_norm.weight"]
    arrays["blocks.7.attn.q.weight"] = np.zeros((8, 8))
    with pytest.raises(ValueError, match="missing") as error:
        Params(arrays, LLAMA_CONFIG)
    for word in ("blocks.1.attn.q.weight", "final_norm.weight", "unknown", "blocks.7.attn.q.weight"):
        assert word in str(error.value)


def test_head_and_tied_flag_must_agree() -> None:
    arrays = dict(drawn(LLAMA_CONFIG))
    tied = replace(LLAMA_CONFIG, tie_embeddings=True)
    with pytest.raises(ValueError, match=r"unknown \['head.weight'\]"):
        Params(arrays, tied)
    del arrays["head.weight"]
    with pytest.raises(ValueError, match=r"missing \['head.weight'\]"):
        Params(arrays, LLAMA_CONFIG)
    assert "head.weight" not in Params(arrays, tied)


@pytest.mark.parametrize("name", list(drawn(GPT2_CONFIG)))
def test_misshapen_entries(backend: tinyxp.Backend, name: str) -> None:
    arrays = dict(drawn(GPT2_CONFIG).to(backend.xp))
    shape = tuple(arrays[name].shape)
    wrong = (shape[0] + 1, *shape[1:])
    arrays[name] = backend.xp.zeros(wrong)
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the words follow
        Params(arrays, GPT2_CONFIG)
    for word in (name, str(wrong), str(shape)):
        assert word in str(error.value)


@pytest.mark.parametrize("wrong", [[[0.0] * 8] * 11, None, 1.0, "w"], ids=["list", "None", "float", "str"])
def test_entries_that_are_no_arrays(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"embed\.weight|array"):
        Params({**drawn(LLAMA_CONFIG), "embed.weight": wrong}, LLAMA_CONFIG)


def test_arrays_of_two_libraries() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="one library.*numpy.*torch"):
        Params({**drawn(LLAMA_CONFIG), "embed.weight": torch.zeros(11, 8)}, LLAMA_CONFIG)


def test_integer_weights() -> None:
    arrays = {name: np.ones(x.shape, dtype=np.int64) for name, x in drawn(LLAMA_CONFIG).items()}
    with pytest.raises(ValueError, match="dtype"):
        tinyxp.forward(Params(arrays, LLAMA_CONFIG), [[1]])


def test_read_only() -> None:
    params = drawn(LLAMA_CONFIG)
    with pytest.raises(TypeError):
        params["embed.weight"] = params["head.weight"]  # type: ignore[index]
    with pytest.raises(TypeError):
        del params["embed.weight"]  # type: ignore[attr-defined]
    for attribute in ("config", "xp", "anything"):
        with pytest.raises(AttributeError):
            setattr(params, attribute, None)


def test_the_mapping_that_was_given_is_not_kept() -> None:
    arrays = dict(drawn(LLAMA_CONFIG))
    params = Params(arrays, LLAMA_CONFIG)
    arrays.clear()
    assert params["embed.weight"].shape == (11, 8)


def test_from_state_dict() -> None:
    params = drawn(LLAMA_CONFIG)
    theirs = {f"model.{name}": x for name, x in params.items()}
    by_function = Params.from_state_dict(
        theirs, LLAMA_CONFIG, rename=lambda name: name.removeprefix("model.")
    )
    by_mapping = Params.from_state_dict(
        theirs, LLAMA_CONFIG, rename={f"model.{name}": name for name in params}
    )
    partly = {("wte" if name == "embed.weight" else name): x for name, x in params.items()}
    kept = Params.from_state_dict(partly, LLAMA_CONFIG, rename={"wte": "embed.weight"})
    for made in (by_function, by_mapping, kept, Params.from_state_dict(params, LLAMA_CONFIG)):
        assert all(made[name] is x for name, x in params.items())


def test_from_state_dict_leaves_out_and_refuses() -> None:
    params = drawn(LLAMA_CONFIG)
    buffers = {**params, "attn.masked_bias": np.zeros(1)}

    def skip(name: str) -> str | None:
        return None if name == "attn.masked_bias" else name

    assert len(Params.from_state_dict(buffers, LLAMA_CONFIG, rename=skip)) == len(params)
    with pytest.raises(ValueError, match=r"unknown \['attn.masked_bias'\]"):
        Params.from_state_dict(buffers, LLAMA_CONFIG)
    with pytest.raises(ValueError, match=r"embed\.weight is given twice.*attn\.masked_bias"):
        Params.from_state_dict(buffers, LLAMA_CONFIG, rename={"attn.masked_bias": "embed.weight"})
    with pytest.raises(ValueError, match=r"missing \['embed.weight'\]"):
        Params.from_state_dict(params, LLAMA_CONFIG, rename={"embed.weight": "x"})


def test_repr_is_short() -> None:
    assert repr(init(Config())) == "<Params of numpy: 21 arrays, 26,784 numbers, float32>"


def test_params_are_hashable_and_compared_by_identity() -> None:
    params = drawn(LLAMA_CONFIG)
    other = Params(dict(params), LLAMA_CONFIG)
    assert params == params
    assert params != other
    assert len({params, other}) == 2


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda params: pickle.loads(pickle.dumps(params))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_parameters_are_copied_and_pickled(
    backend: tinyxp.Backend, duplicate: Callable[[Params], Params]
) -> None:
    again = duplicate(drawn(LLAMA_CONFIG).to(backend.xp))
    assert isinstance(again, Params)
    assert again.config == LLAMA_CONFIG
    assert again.xp is backend.xp
    assert all(np.array_equal(host(again[name]), x) for name, x in drawn(LLAMA_CONFIG).items())
    with pytest.raises(AttributeError, match="read-only"):
        del again.config
