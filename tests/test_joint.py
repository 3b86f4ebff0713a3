"""Joint projections: what lies together in memory is one product, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import (
    CONFIGS,
    FLOAT32,
    GPT2_CONFIG,
    IDS,
    LLAMA_CONFIG,
    distance,
    drawn,
    filled,
    host,
    libraries,
)
from tinyxp import Config, Params, extend, forward, new_cache, ops
from tinyxp.engine import new_decoder
from tinyxp.joint import JOINT, lay_together, project
from tinyxp.shapes import parameter_shapes

QKV, GATE_UP = ("+".join(names) for names in JOINT)
BIASED = replace(LLAMA_CONFIG, attn_bias=True, mlp_bias=True, attn_out_bias=True)
VIEWS = pytest.mark.parametrize("library", libraries("numpy", "torch"))


def separate(config: Config, library: str, dtype: str = "float32") -> Params:
    """A model none of whose arrays lie together."""
    return filled(config).to(tinyxp.backend(library).xp, dtype=dtype)


def together(config: Config, library: str, dtype: str = "float32") -> Params:
    params = separate(config, library, dtype)
    return Params(lay_together(dict(params), config, params.backend), config)


def joints(params: Params) -> set[str]:
    """The joint parameters that every block has."""
    names = [{name for name in params.block(i) if "+" in name} for i in range(params.config.n_layers)]
    assert all(found == names[0] for found in names)
    return names[0]


def rows(whole: Any, widths: list[int]) -> Iterator[Any]:
    start = 0
    for width in widths:
        yield whole[start : start + width]
        start += width


# What lies together


@VIEWS
@pytest.mark.parametrize(
    "config, expected",
    [
        (LLAMA_CONFIG, {f"{QKV}.weight", f"{GATE_UP}.weight"}),
        (BIASED, {f"{QKV}.weight", f"{QKV}.bias", f"{GATE_UP}.weight", f"{GATE_UP}.bias"}),
        (replace(LLAMA_CONFIG, attn_bias=True), {f"{QKV}.weight", f"{QKV}.bias", f"{GATE_UP}.weight"}),
        (GPT2_CONFIG, {f"{QKV}.weight", f"{QKV}.bias"}),
    ],
    ids=["llama", "biases", "qwen2", "gpt2"],
)
def test_what_was_laid_together_is_joined(library: str, config: Config, expected: set[str]) -> None:
    apart, params = separate(config, library), together(config, library)
    assert set(params) == set(apart)
    assert all(np.array_equal(host(params[name]), host(apart[name])) for name in params)
    assert joints(apart) == joints(apart.join()) == joints(params) == set()
    found = params.join()
    assert joints(found) == expected
    assert set(found) == set(parameter_shapes(config))  # as a mapping it is what it was
    for i in range(config.n_layers):
        block = found.block(i)
        for joint in expected:
            names, kind = joint.rsplit(".", 1)
            parts = [block[f"{name}.{kind}"] for name in names.split("+")]
            assert np.array_equal(host(block[joint]), np.concatenate([host(part) for part in parts]))


def address(x: Any) -> int:
    return int(x.data_ptr() if hasattr(x, "data_ptr") else x.__array_interface__["data"][0])


@VIEWS
def test_both_forms_are_the_same_memory(library: str) -> None:
    params = together(BIASED, library).join()
    for kind in ("weight", "bias"):
        whole = params.block(1)[f"{QKV}.{kind}"]
        names = [f"blocks.1.attn.{name}.{kind}" for name in "qkv"]
        for name, part in zip(names, rows(whole, [8, 4, 4]), strict=True):
            assert address(part) == address(params[name])
        whole[-1] = 7.0
        assert np.all(host(params[names[-1]])[-1] == 7.0)


@VIEWS
def test_what_lies_together_is_not_copied_again(library: str) -> None:
    params = together(LLAMA_CONFIG, library)
    again = lay_together(dict(params), LLAMA_CONFIG, params.backend)
    assert all(again[name] is params[name] for name in params)


@VIEWS
def test_a_group_that_is_partly_together_is_laid_together_whole(library: str) -> None:
    params = together(LLAMA_CONFIG, library)
    arrays = dict(params)
    arrays["blocks.0.attn.v.weight"] = arrays["blocks.0.attn.v.weight"] + 1.0  # elsewhere now
    assert f"{QKV}.weight" not in Params(arrays, LLAMA_CONFIG).join().block(0)
    assert f"{QKV}.weight" in Params(arrays, LLAMA_CONFIG).join().block(1)
    values = {name: host(x).copy() for name, x in arrays.items()}
    found = Params(lay_together(arrays, LLAMA_CONFIG, params.backend), LLAMA_CONFIG)
    assert joints(found.join()) == {f"{QKV}.weight", f"{GATE_UP}.weight"}
    assert all(np.array_equal(host(found[name]), values[name]) for name in values)


@VIEWS
def test_weights_are_joined_only_with_their_biases(library: str) -> None:
    arrays = dict(together(BIASED, library))
    arrays["blocks.0.mlp.up.bias"] = arrays["blocks.0.mlp.up.bias"] + 0.0
    block = Params(arrays, BIASED).join().block(0)
    assert {name for name in block if "+" in name} == {f"{QKV}.weight", f"{QKV}.bias"}


@VIEWS
def test_what_is_of_several_dtypes_stays_so(library: str) -> None:
    arrays = dict(separate(LLAMA_CONFIG, library))
    backend = tinyxp.backend(library)
    arrays["blocks.0.mlp.up.weight"] = backend.astype(arrays["blocks.0.mlp.up.weight"], "float64")
    dtypes = {name: x.dtype for name, x in arrays.items()}
    found = Params(lay_together(dict(arrays), LLAMA_CONFIG, backend), LLAMA_CONFIG)
    assert {name: x.dtype for name, x in found.items()} == dtypes
    assert f"{GATE_UP}.weight" not in found.join().block(0)
    assert f"{GATE_UP}.weight" in found.join().block(1)


def test_what_lies_on_several_devices_stays_so() -> None:
    pytest.importorskip("torch")
    arrays = dict(separate(LLAMA_CONFIG, "torch"))
    backend, name = tinyxp.backend("torch"), "blocks.0.attn.k.weight"
    arrays[name] = backend.astype(arrays[name], None, "meta")
    found = Params(lay_together(dict(arrays), LLAMA_CONFIG, backend), LLAMA_CONFIG)
    assert found[name] is arrays[name]
    assert str(found["blocks.0.attn.q.weight"].device) == "cpu"


# What does not


def parts_of(library: str, x: np.ndarray) -> Any:
    return tinyxp.backend(library).from_numpy(x)


@VIEWS
def test_arrays_one_below_another_are_joined(library: str) -> None:
    backend, whole = tinyxp.backend(library), parts_of(library, np.arange(24.0).reshape(6, 4))
    found = backend.join_views([whole[:1], whole[1:4], whole[4:]])
    assert np.array_equal(host(found), host(whole))
    assert address(found) == address(whole)
    assert np.array_equal(host(backend.join_views([whole[1:2], whole[2:4]])), host(whole)[1:4])
    assert np.array_equal(host(backend.join_views([whole[0, :3], whole[0, 3:]])), host(whole)[0])  # biases


@VIEWS
def test_arrays_that_lie_otherwise_are_not_joined(library: str) -> None:
    backend, whole = tinyxp.backend(library), parts_of(library, np.arange(24.0).reshape(6, 4))
    assert backend.join_views([whole[2:4], whole[:2]]) is None  # the other way round
    assert backend.join_views([whole[:2], whole[3:]]) is None  # a gap
    assert backend.join_views([whole[:2], whole[1:3]]) is None  # an overlap
    assert backend.join_views([whole[:2], parts_of(library, host(whole)[2:].copy())]) is None
    assert backend.join_views([whole[:, :2], whole[:, 2:]]) is None  # beside one another
    assert backend.join_views([whole[::2], whole[1::2]]) is None
    assert backend.join_views([whole[:2], whole[2:].reshape(8, 2)]) is None  # other rows
    square = parts_of(library, np.arange(32.0).reshape(8, 4))
    assert backend.join_views([square[:4].T, square[4:].T]) is None


@VIEWS
def test_arrays_of_two_dtypes_are_not_joined(library: str) -> None:
    backend, whole = tinyxp.backend(library), parts_of(library, np.arange(8.0))
    other = whole[4:].view(tinyxp.backend(library).dtype("float32"))
    assert backend.join_views([whole[:4], other]) is None


def test_numpy_arrays_that_lie_together_by_chance_are_not_joined() -> None:
    """Of the memory behind an array that owns it nothing is known but that it ends."""
    backend, memory = tinyxp.backend("numpy"), bytearray(8 * 12)
    first, second = (
        np.frombuffer(memoryview(memory)[i : i + 48], dtype=float).reshape(2, 3) for i in (0, 48)
    )
    assert address(first) + first.nbytes == address(second)
    assert backend.join_views([first, second]) is None
    one = np.frombuffer(memory, dtype=float).reshape(4, 3)
    assert backend.join_views([one[:2], one[2:]]) is not None
    assert backend.join_views([np.arange(3.0)]) is None  # owns its memory


def test_torch_tensors_of_two_storages_are_not_joined() -> None:
    torch = pytest.importorskip("torch")
    backend, memory = tinyxp.backend("torch"), np.arange(12.0).reshape(4, 3)
    first, second = torch.from_numpy(memory[:2]), torch.from_numpy(memory[2:])
    assert address(first) + first.nbytes == address(second)
    assert backend.join_views([first, second]) is None


def test_numpy_memory_that_may_not_be_written_stays_so() -> None:
    whole = np.arange(24.0).reshape(6, 4)
    whole.setflags(write=False)
    found = tinyxp.backend("numpy").join_views([whole[:3], whole[3:]])
    assert not found.flags.writeable
    assert np.array_equal(found, whole)


@pytest.mark.parametrize("library", libraries("numpy", "torch"))
def test_single_rows_whose_strides_mean_nothing(library: str) -> None:
    """Of one row the stride is any number: here that of every other row of two."""
    backend = tinyxp.backend(library)
    many = backend.from_numpy(np.arange(16.0).reshape(4, 4))
    two = many[:2]
    assert np.array_equal(
        backend.to_numpy(backend.join_views([two[::2], two[1::2]])), np.arange(8.0).reshape(2, 4)
    )


@pytest.mark.parametrize("library", libraries("jax", "strict"))
def test_libraries_without_views_leave_params_as_they_are(library: str) -> None:
    params = separate(LLAMA_CONFIG, library)
    arrays = dict(params)
    assert lay_together(arrays, LLAMA_CONFIG, params.backend) is arrays
    assert all(arrays[name] is params[name] for name in params)
    assert params.join() is params
    parts = [params[f"blocks.0.attn.{name}.weight"] for name in "qkv"]
    assert params.backend.join_views(parts) is None


# What is computed with them


class Counted:
    """``ops.linear`` that counts its products and notes how wide they are."""

    def __init__(self) -> None:
        self.widths: list[int] = []

    def __call__(self, x: Any, weight: Any, bias: Any = None, *, xp: Any) -> Any:
        self.widths.append(int(weight.shape[0]))
        return ops.linear(x, weight, bias, xp=xp)


@VIEWS
@pytest.mark.parametrize("config", [LLAMA_CONFIG, BIASED, GPT2_CONFIG], ids=["llama", "biases", "gpt2"])
def test_one_product_in_place_of_many(library: str, config: Config) -> None:
    expected = forward(filled(config), IDS)
    for params, fused in ((together(config, library), False), (together(config, library).join(), True)):
        linear = Counted()
        assert (
            distance(forward(params, IDS, kernels={"linear": linear, "project": project}), expected)
            <= FLOAT32
        )
        inner = [config.d_ff] * 2 if config.mlp == "swiglu" else [config.d_ff]
        kv = config.n_kv_heads * config.head_dim
        heads, inner = ([8 + 2 * kv], [sum(inner)]) if fused else ([8, kv, kv], inner)
        assert linear.widths == [*heads, 8, *inner, 8] * 2 + [11]


@pytest.mark.parametrize("library", libraries("numpy", "torch", "jax", "strict"))
@pytest.mark.parametrize("config", [*CONFIGS.values(), BIASED], ids=[*CONFIGS, "biases"])
def test_prepared_parameters_are_the_same_parameters(library: str, config: Config) -> None:
    params = separate(config, library)
    found = params.backend.engine.prepare(params)
    assert isinstance(found, Params)
    assert found.config == config
    assert list(found) == list(params)
    assert len(found) == len(params)
    assert found.backend is params.backend
    assert all(np.array_equal(host(found[name]), host(params[name])) for name in params)
    assert distance(forward(found, IDS), forward(filled(config), IDS)) <= FLOAT32
    cache = new_cache(found, 1, 5)
    assert distance(extend(found, IDS, cache)[0], forward(filled(config), IDS)) <= FLOAT32
    decoder = new_decoder(found, 1, 5)
    assert distance(decoder(np.asarray(IDS)), forward(filled(config), IDS)[:, -1]) <= FLOAT32
    again = params.backend.engine.prepare(found)
    assert all(np.array_equal(host(again[name]), host(params[name])) for name in params)


@VIEWS
def test_prepared_parameters_are_joined_whatever_they_were(library: str) -> None:
    for params in (separate(LLAMA_CONFIG, library), together(LLAMA_CONFIG, library)):
        assert joints(params.backend.engine.prepare(params)) == {f"{QKV}.weight", f"{GATE_UP}.weight"}
    assert joints(params) == set()  # the given ones are what they were


@VIEWS
def test_what_init_makes_and_what_load_reads_lies_together(library: str, tmp_path: Any) -> None:
    xp = tinyxp.backend(library).xp
    made = tinyxp.init(LLAMA_CONFIG, xp=xp)
    assert joints(made.join()) == {f"{QKV}.weight", f"{GATE_UP}.weight"}
    tinyxp.save(drawn(LLAMA_CONFIG), tmp_path / "model.npz")
    read = tinyxp.load(tmp_path / "model.npz", xp=xp)
    assert joints(read.join()) == {f"{QKV}.weight", f"{GATE_UP}.weight"}


def test_held_as_keeps_everything_but_the_form() -> None:
    params = drawn(LLAMA_CONFIG)
    other = {name: 2.0 * x for name, x in params.items()}
    blocks: list[dict[str, Any]] = [{"attn.q.weight": other["blocks.0.attn.q.weight"]}, {}]
    held = params.replace(other, blocks)
    assert isinstance(held, Params)
    assert held.config is params.config
    assert held.backend is params.backend
    assert held["embed.weight"] is other["embed.weight"]
    assert held.block(0) == blocks[0]
    assert held.block(1) == {}
    assert params.block(1).keys() == params.replace(other).block(1).keys()
    assert held != params
    with pytest.raises(AttributeError, match="read-only"):
        held.config = LLAMA_CONFIG


@VIEWS
def test_joined_parameters_are_saved_and_differentiated_as_any_others(library: str, tmp_path: Any) -> None:
    params = together(LLAMA_CONFIG, library).join()
    tinyxp.save(params, tmp_path / "model.npz")
    read = tinyxp.load(tmp_path / "model.npz")
    assert all(np.array_equal(read[name], host(params[name])) for name in params)
    if library == "torch":
        value, gradients = params.backend.value_and_grad(tinyxp.loss)(params, IDS, [[1, 4, 1, 5, 9]])
        plain, expected = params.backend.value_and_grad(tinyxp.loss)(
            separate(LLAMA_CONFIG, library), IDS, [[1, 4, 1, 5, 9]]
        )
        assert float(value) == pytest.approx(float(plain), abs=1e-6)
        assert list(gradients) == list(params)
        assert all(distance(gradients[name], expected[name]) <= 1e-5 for name in params)
