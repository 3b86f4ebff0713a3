"""The strategies: they reach every branch, shrink to the smallest, and draw only what is valid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

import tinyxp
from tinyxp import Config
from tinyxp.config import GPT2, MLPS, NORMS, POSITIONS, RopeScaling
from tinyxp.sampling import Sampler
from tinyxp.shapes import parameter_shapes
from tinyxp.testing import strategies
from tinyxp.testing.strategies import configs

SEARCH = settings(max_examples=1000, derandomize=True, database=None, suppress_health_check=list(HealthCheck))

LLAMA = {"norm": "rms", "position": "rope", "mlp": "swiglu"}
IN_GPT2 = {name: value for name, value in GPT2.items() if name != "tie_embeddings"}


def smallest(strategy: st.SearchStrategy[Any], condition: Callable[[Any], Any] = lambda value: True) -> Any:
    """The smallest value of this kind; NoSuchExample where none is drawn."""
    return find(strategy, condition, settings=SEARCH)


def reach(strategy: st.SearchStrategy[Any], condition: Callable[[Any], Any]) -> Any:
    """Some value of this kind, not shrunk; NoSuchExample where none is drawn."""
    return find(strategy, condition, settings=settings(SEARCH, phases=[Phase.generate]))


def has(config: Config, fields: dict[str, Any]) -> bool:
    return all(getattr(config, name) == value for name, value in fields.items())


BRANCHES: dict[str, Callable[[Config], bool]] = {
    "llama": lambda c: has(c, LLAMA),
    "gpt2": lambda c: has(c, IN_GPT2),
    "llama's norm with learned positions": lambda c: has(c, {"norm": "rms", "position": "learned"}),
    "llama's mlp with gpt2's norm": lambda c: has(c, {"norm": "layer", "mlp": "swiglu"}),
    "rotary positions with gelu": lambda c: has(c, {"position": "rope", "mlp": "gelu_tanh"}),
    "mqa": lambda c: c.n_kv_heads == 1 < c.n_heads,
    "gqa": lambda c: 1 < c.n_kv_heads < c.n_heads,
    "mha": lambda c: 1 < c.n_kv_heads == c.n_heads,
    "three queries a head": lambda c: c.n_heads == 3 * c.n_kv_heads > 3,
    "one head": lambda c: c.n_heads == 1,
    "odd d_model": lambda c: c.d_model % 2 == 1,
    "odd head_dim": lambda c: c.head_dim % 2 == 1,
    "heads wider than the stream": lambda c: c.n_heads * c.head_dim > c.d_model,
    "heads narrower than the stream": lambda c: c.n_heads * c.head_dim < c.d_model,
    "d_ff below d_model": lambda c: c.d_ff < c.d_model,
    "d_ff of 1": lambda c: c.d_ff == 1,
    "three blocks": lambda c: c.n_layers == 3,
    "the largest": lambda c: c.vocab_size == 12 and c.d_model > 10 and c.d_ff > 10,
    "a large eps": lambda c: c.norm_eps == 0.1,
    "linear scaling": lambda c: c.rope_scaling is not None and c.rope_scaling.rope_type == "linear",
    "llama3 scaling": lambda c: c.rope_scaling is not None and c.rope_scaling.rope_type == "llama3",
    "no scaling": lambda c: c.position == "rope" and c.rope_scaling is None,
    "another theta": lambda c: c.rope_theta == 100.0 and c.head_dim > 4,
    **{f"norm {x}": lambda c, x=x: c.norm == x for x in NORMS},
    **{f"position {x}": lambda c, x=x: c.position == x for x in POSITIONS},
    **{f"mlp {x}": lambda c, x=x: c.mlp == x for x in MLPS},
    **{
        f"{name} {x}": lambda c, name=name, x=x: has(c, {**LLAMA, name: x})
        for name in ("attn_bias", "attn_out_bias", "mlp_bias", "head_bias", "tie_embeddings")
        for x in (True, False)
    },
    "gpt2 untied": lambda c: has(c, {**IN_GPT2, "tie_embeddings": False}),
    "gpt2 with the exact gelu": lambda c: has(c, {**IN_GPT2, "mlp": "gelu"}),
}


@pytest.mark.parametrize("branch", BRANCHES)
def test_configs_reach(branch: str) -> None:
    reach(configs(), BRANCHES[branch])


def test_configs_shrink_to_the_smallest() -> None:
    config = smallest(configs())
    assert (config.vocab_size, config.n_layers, config.n_heads, config.d_ff, config.d_model) == (
        2,
        1,
        1,
        1,
        3,
    )
    rotary = smallest(configs(), lambda c: c.position == "rope")
    assert (rotary.head_dim, rotary.n_heads, rotary.rope_scaling, rotary.attn_bias) == (2, 1, None, False)
    learned = smallest(configs(), lambda c: c.position == "learned")
    assert (learned.n_layers, learned.n_heads, learned.head_dim, learned.d_ff) == (1, 1, 1, 1)
    deep = smallest(configs(), lambda c: c.n_layers > 1 and c.attn_bias)
    assert (deep.n_layers, deep.n_heads, deep.mlp_bias, deep.rope_scaling) == (2, 1, False, None)


@given(config=configs())
def test_drawn_models_are_small(config: Config) -> None:
    assert tinyxp.count_parameters(config)["total"] < 10_000
    assert 12 <= config.max_seq_len <= 16


@given(data=st.data())
def test_sizes_are_ranges_or_numbers_and_fields_may_be_fixed(data: st.DataObject) -> None:
    config = data.draw(
        configs(d_model=8, n_layers=(2, 2), queries_per_kv_head=1, norm="rms", families=["gpt2"])
    )
    assert has(config, {"d_model": 8, "n_layers": 2, "norm": "rms", "position": "learned"})
    assert config.n_heads == config.n_kv_heads
    config = data.draw(configs(position="learned", rope_theta=3.0, n_heads=4, n_kv_heads=2))
    assert has(config, {"position": "learned", "rope_theta": 3.0, "rope_scaling": None, "n_heads": 4})
    config = data.draw(configs(rope_scaling=None, position="rope", head_dim=(5, 5)))
    assert has(config, {"rope_scaling": None, "position": "rope", "head_dim": 6})


def test_the_scalings_are_those_of_hugging_face() -> None:
    for scaling in strategies.SCALINGS:
        assert isinstance(RopeScaling.parse(scaling), RopeScaling)


@pytest.mark.parametrize("family", strategies.FAMILIES)
def test_random_arrays_keep_activations_of_order_one(family: str) -> None:
    rng = np.random.default_rng(0)

    @settings(max_examples=10)
    @given(config=configs(families=[family], d_model=(8, 12), d_ff=(4, 12), head_dim=(4, 8), vocab_size=8))
    def sizes(config: Config) -> None:
        arrays = strategies.random_arrays(config, int(rng.integers(1000)))
        assert {name: x.shape for name, x in arrays.items()} == parameter_shapes(config)
        assert {x.dtype for x in arrays.values()} == {np.dtype("float64")}
        ids = rng.integers(0, config.vocab_size, (4, 8))
        points = tinyxp.trace(tinyxp.Params(arrays, config), ids)
        found.extend((name.rpartition(".")[2], float(np.sqrt(np.mean(x**2)))) for name, x in points.items())

    found: list[tuple[str, float]] = []
    sizes()
    names = {name for name, _ in found}
    for name in names - {"weights"}:
        median = np.median([size for other, size in found if other == name])
        assert 0.2 < median < 6.0, name
    assert {"scores", "hidden", "logits", "q"} <= names


def test_random_arrays_are_the_seed_s_own() -> None:
    config = Config()
    first, again, other = (strategies.random_arrays(config, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not any(np.array_equal(first[name], other[name]) for name in first)
    biased = strategies.random_arrays(Config(**GPT2, n_kv_heads=4))
    norm, bias = biased["blocks.0.attn_norm.weight"], biased["blocks.0.attn_norm.bias"]
    assert abs(norm.mean() - 1.0) < 0.3 > abs(bias.mean())
    assert norm.std() > 0.1 < bias.std()


@given(data=st.data())
def test_params_are_of_their_config(data: st.DataObject) -> None:
    config = data.draw(configs(n_layers=1))
    params = data.draw(strategies.params(config))
    assert params.config == config
    assert str(params.dtype) == "float64"


@given(data=st.data())
def test_token_ids_are_valid(data: st.DataObject) -> None:
    config = data.draw(configs())
    ids = np.asarray(data.draw(strategies.token_ids(config, rows=(2, 3), columns=(3, 20))))
    assert ids.dtype.kind == "i"
    assert ids.shape[0] in (2, 3)
    assert 3 <= ids.shape[1] <= config.max_seq_len
    assert 0 <= ids.min() <= ids.max() < config.vocab_size


SMALL = Config(vocab_size=3, max_seq_len=6)


def test_token_ids_shrink_to_one_zero_and_reach_every_corner() -> None:
    assert smallest(strategies.token_ids(SMALL)) == [[0]]
    assert smallest(strategies.token_ids(SMALL), lambda ids: len(ids) == 3) == [[0], [0], [0]]
    assert smallest(strategies.token_ids(SMALL), lambda ids: 2 in ids[0]) == [[2]]
    assert reach(strategies.token_ids(SMALL, columns=(1, 9)), lambda ids: len(ids[0]) == 6)
    one = Config(max_seq_len=1)
    assert smallest(strategies.token_ids(one, columns=(2, 6))) == [[0]]


@given(batch=strategies.padded_batches(SMALL))
def test_padded_batches_have_one_piece_of_real_tokens_in_each_row(batch: tuple[Any, Any]) -> None:
    ids, mask = np.asarray(batch[0]), np.asarray(batch[1])
    assert ids.shape == mask.shape
    assert mask.dtype == bool
    assert mask.any(axis=1).all()
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(int), axis=1)
    assert (np.sum(edges == 1, axis=1) == 1).all()
    assert 0 <= ids.min() <= ids.max() < 3


def test_padded_batches_reach_every_side() -> None:
    batches = strategies.padded_batches(SMALL)
    assert smallest(batches) == ([[0]], [[True]])
    for row in ([True, False], [False, True], [False, True, False], [True, True]):
        assert reach(batches, lambda batch, row=row: batch[1][0] == row)
    assert reach(batches, lambda batch: batch[0][0][0] and not batch[1][0][0])  # any id on padding
    assert reach(batches, lambda batch: len({tuple(row) for row in batch[1]}) == 3)


@given(data=st.data(), t=st.integers(1, 9))
def test_chunkings_add_up(data: st.DataObject, t: int) -> None:
    pieces = data.draw(strategies.chunkings(t))
    assert sum(pieces) == t
    assert min(pieces) >= 1


def test_chunkings_are_all_ways_of_cutting() -> None:
    assert smallest(strategies.chunkings(1)) == [1]
    assert smallest(strategies.chunkings(4)) == [4]
    for pieces in ([1, 1, 1, 1], [3, 1], [1, 3], [2, 2], [1, 2, 1]):
        assert reach(strategies.chunkings(4), lambda found, pieces=pieces: found == pieces)


@given(x=strategies.logits(magnitude=5.0))
def test_logits_are_exact_in_float32(x: np.ndarray) -> None:
    assert x.dtype == np.float64
    assert x.ndim == 2
    assert np.array_equal(x.astype(np.float32), x)
    assert np.abs(x).max() <= 5.0


def test_logits_reach_ties_and_single_columns() -> None:
    assert smallest(strategies.logits()).tolist() == [[0.0]]
    tied = smallest(strategies.logits(), lambda x: x.shape[1] > 2 and len(set(x[0].tolist())) == 2)
    assert tied.shape == (1, 3)
    assert reach(strategies.logits(), lambda x: x.shape == (3, 1)).size == 3
    assert reach(strategies.logits(), lambda x: x.max() - x.min() > 20.0).size > 1


@given(chosen=strategies.sampling_settings())
def test_sampling_settings_are_valid(chosen: dict[str, Any]) -> None:
    assert chosen.keys() == {"temperature", "top_k", "top_p", "seed"}
    Sampler(**chosen)


def test_sampling_settings_reach_every_kind() -> None:
    drawn = strategies.sampling_settings(vocab_size=4)
    assert smallest(drawn) == {"temperature": 0.0, "top_k": None, "top_p": None, "seed": 0}
    for name, values in {
        "temperature": [0.0, 1.0, 10.0],
        "top_k": [None, 1, 5],
        "top_p": [None, 1.0, 0.0],
    }.items():
        for value in values:
            reach(drawn, lambda chosen, name=name, value=value: chosen[name] == value)
    both = reach(drawn, lambda chosen: chosen["top_k"] and chosen["top_p"] and chosen["temperature"])
    assert 0.0 < both["top_p"] <= 1.0


@given(text=strategies.texts())
def test_texts_can_be_written(text: str) -> None:
    assert text.encode().decode() == text


def test_texts_reach_every_kind() -> None:
    assert smallest(strategies.texts()) == ""
    for condition in (
        lambda text: "<|endoftext|>" in text,
        lambda text: any(ord(c) > 0xFFFF for c in text),
        lambda text: "  " in text,
        lambda text: "\x00" in text,
        lambda text: any(0x300 <= ord(c) < 0x370 for c in text),
        lambda text: len(text) > 30,
    ):
        reach(strategies.texts(), condition)


def test_seeds_are_small_numbers() -> None:
    assert smallest(strategies.seeds()) == 0
    assert smallest(strategies.seeds(), lambda seed: seed > 60_000) == 60_001
