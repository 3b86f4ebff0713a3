"""Params: names and shapes that fit the config, counts, first values, conversion; read-only."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp import Config, Params, count_parameters, init
from tinyxp.config import GPT2

from .reference import GPT2_CONFIG, LLAMA_CONFIG, drawn, filled, float64_on, host

LAYER_SHAPES = {
    "embed.weight": (11, 8),
    "pos_embed.weight": (16, 8),
    "blocks.0.attn_norm.weight": (8,),
    "blocks.0.attn_norm.bias": (8,),
    "blocks.0.attn.q.weight": (8, 8),
    "blocks.0.attn.q.bias": (8,),
    "blocks.0.attn.k.weight": (8, 8),
    "blocks.0.attn.k.bias": (8,),
    "blocks.0.attn.v.weight": (8, 8),
    "blocks.0.attn.v.bias": (8,),
    "blocks.0.attn.o.weight": (8, 8),
    "blocks.0.attn.o.bias": (8,),
    "blocks.0.mlp_norm.weight": (8,),
    "blocks.0.mlp_norm.bias": (8,),
    "blocks.0.mlp.up.weight": (32, 8),
    "blocks.0.mlp.up.bias": (32,),
    "blocks.0.mlp.down.weight": (8, 32),
    "blocks.0.mlp.down.bias": (8,),
    "final_norm.weight": (8,),
    "final_norm.bias": (8,),
}
GATED_SHAPES = {
    "embed.weight": (11, 8),
    "blocks.0.attn_norm.weight": (8,),
    "blocks.0.attn.q.weight": (24, 8),
    "blocks.0.attn.k.weight": (12, 8),
    "blocks.0.attn.v.weight": (12, 8),
    "blocks.0.attn.o.weight": (8, 24),
    "blocks.0.mlp_norm.weight": (8,),
    "blocks.0.mlp.gate.weight": (12, 8),
    "blocks.0.mlp.up.weight": (12, 8),
    "blocks.0.mlp.down.weight": (8, 12),
    "final_norm.weight": (8,),
    "head.weight": (11, 8),
}


@pytest.mark.parametrize(
    "config, shapes",
    [
        (replace(GPT2_CONFIG, n_layers=1), LAYER_SHAPES),
        (replace(LLAMA_CONFIG, n_layers=1, head_dim=12), GATED_SHAPES),
    ],
)
def test_names_and_shapes(config: Config, shapes: dict[str, tuple[int, ...]]) -> None:
    params = init(config)
    assert {name: x.shape for name, x in params.items()} == shapes
    assert len(params) == len(shapes)
    assert params.config is config


@pytest.mark.parametrize(
    "config, expected",
    [
        (
            Config(),
            {"embed": 4096, "pos_embed": 0, "attention": 6144, "mlp": 12288, "norm": 160, "head": 4096}
            | {"total": 26784},
        ),
        (
            Config.preset("gpt2"),
            {"embed": 38597376, "pos_embed": 786432, "attention": 28348416, "mlp": 56669184, "norm": 38400}
            | {"head": 0, "total": 124439808},
        ),
    ],
)
def test_counts_by_group(config: Config, expected: dict[str, int]) -> None:
    assert count_parameters(config) == expected


def test_counts_in_total() -> None:
    toy = Config(**GPT2, vocab_size=4, max_seq_len=3, d_model=2, n_layers=1, n_heads=1, n_kv_heads=1, d_ff=8)
    totals = {
        92: toy,
        100: replace(toy, tie_embeddings=False),
        163037184: Config.preset("gpt2-untied"),
        134515008: Config.preset("smollm2-135m"),
        494032768: Config.preset("qwen2-0.5b"),
    }
    for total, config in totals.items():
        assert count_parameters(config)["total"] == total
    one, none = (count_parameters(replace(Config.preset("gpt2"), n_layers=n))["total"] for n in (2, 1))
    assert one - none == 7087872


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        GPT2_CONFIG,
        replace(GPT2_CONFIG, tie_embeddings=False),
        Config(attn_bias=True),
        Config(attn_out_bias=True, n_kv_heads=1),
        Config(mlp_bias=True, head_dim=10),
        Config(mlp="gelu", mlp_bias=True),
        Config(norm="layer", position="learned", tie_embeddings=True),
    ],
)
def test_the_closed_form_counts_what_is_there(config: Config) -> None:
    counts = count_parameters(config)
    groups = dict.fromkeys(counts, 0)
    for name, x in init(config).items():
        for group, part in {
            "embed": "embed.",
            "pos_embed": "pos_embed.",
            "attention": ".attn.",
            "mlp": ".mlp.",
            "norm": "norm.",
            "head": "head.",
        }.items():
            if name.startswith(part) or (part[0] in ".n" and part in name):
                groups[group] += math.prod(x.shape)
        groups["total"] += math.prod(x.shape)
    assert counts == groups


def test_init_is_the_same_on_every_backend(backend: tinyxp.Backend) -> None:
    config = replace(LLAMA_CONFIG, attn_bias=True)
    here = init(config, seed=5, xp=backend.xp)
    there = init(config, seed=5)
    assert here.xp is backend.xp
    for name, x in there.items():
        assert np.array_equal(host(here[name]), x)
        assert host(here[name]).dtype == np.float32
    assert not np.array_equal(init(config, seed=6)["embed.weight"], there["embed.weight"])


def test_init_scale() -> None:
    config = Config(vocab_size=1000, n_layers=8, d_model=64, d_ff=256, attn_bias=True, norm="layer")
    params = init(config)
    for name, x in params.items():
        if name.endswith(".bias"):
            assert not x.any()
        elif x.ndim == 1:
            assert (x == 1.0).all()
        else:
            residual = name.endswith(("attn.o.weight", "mlp.down.weight"))
            expected = 0.02 / math.sqrt(16) if residual else 0.02
            # Five standard errors of the estimate.
            assert abs(x.std() / expected - 1.0) < 5.0 / math.sqrt(2 * x.size), name
            assert abs(x.mean()) < 5.0 * expected / math.sqrt(x.size), name


def test_init_dtypes(backend: tinyxp.Backend) -> None:
    double = init(LLAMA_CONFIG, dtype="float64")
    with float64_on(backend):
        for dtype in backend.dtypes():
            params = init(LLAMA_CONFIG, xp=backend.xp, dtype=dtype)
            assert {str(x.dtype).rpartition(".")[2] for x in params.values()} == {dtype}
            # Drawn in float64, then rounded once.
            rounded = host(backend.from_numpy(double["embed.weight"], dtype=dtype))
            assert np.array_equal(host(params["embed.weight"]), rounded)


@pytest.mark.parametrize("seed", [-1, 1.5, "1", None, True], ids=repr)
def test_init_refuses_a_seed(seed: Any) -> None:
    with pytest.raises(ValueError, match=rf"^seed is {seed!r}"):
        init(LLAMA_CONFIG, seed=seed)


@pytest.mark.parametrize("dtype", ["int8", "float", "complex64", "", None, 3], ids=repr)
def test_unknown_dtypes(backend: tinyxp.Backend, dtype: Any) -> None:
    with pytest.raises(ValueError, match=rf"^dtype is {dtype!r}.*float32"):
        init(LLAMA_CONFIG, xp=backend.xp, dtype=dtype)


def test_a_dtype_that_the_library_lacks() -> None:
    with pytest.raises(ValueError, match=r"^dtype is 'bfloat16'; numpy has float64, float32, float16"):
        init(LLAMA_CONFIG, dtype="bfloat16")
    with pytest.raises(ValueError, match=r"^dtype is 'float16'.*float64, float32"):
        init(LLAMA_CONFIG, xp=tinyxp.backend("strict").xp, dtype="float16")


def test_jax_says_that_it_needs_x64() -> None:
    jnp = pytest.importorskip("jax.numpy")
    for refused in (
        lambda: init(LLAMA_CONFIG, xp=jnp, dtype="float64"),
        lambda: drawn(LLAMA_CONFIG).to(jnp, dtype="float64"),
        lambda: filled(LLAMA_CONFIG).to(jnp),
        lambda: tinyxp.forward(filled(LLAMA_CONFIG), [[1]], xp=jnp),
    ):
        with pytest.raises(ValueError, match="jax_enable_x64"):
            refused()


def test_unknown_devices(backend: tinyxp.Backend) -> None:
    for refused in (
        lambda: init(LLAMA_CONFIG, xp=backend.xp, device="warp"),
        lambda: drawn(LLAMA_CONFIG).to(backend.xp, device="warp"),
    ):
        with pytest.raises(ValueError, match=r"^device is 'warp'"):
            refused()


def test_the_first_device_is_the_default(backend: tinyxp.Backend) -> None:
    first = backend.devices()[0]
    params = init(LLAMA_CONFIG, xp=backend.xp, device=first)
    assert params["embed.weight"].device == init(LLAMA_CONFIG, xp=backend.xp)["embed.weight"].device


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


def test_to_and_back(backend: tinyxp.Backend) -> None:
    params = drawn(LLAMA_CONFIG)
    there = params.to(backend.xp)
    assert there.xp is backend.xp
    assert there.config == params.config
    back = there.to(np)
    assert back.xp is np
    for name, x in params.items():
        assert backend.is_array(there[name])
        assert np.array_equal(back[name], x)
        assert back[name].dtype == x.dtype


def test_to_itself_copies_nothing(backend: tinyxp.Backend) -> None:
    there = drawn(LLAMA_CONFIG).to(backend.xp)
    assert all(x is there[name] for name, x in there.to().items())
    assert all(x is there[name] for name, x in there.to(backend.xp, dtype="float32").items())


def test_to_torch_shares_memory() -> None:
    torch = pytest.importorskip("torch")
    params = init(LLAMA_CONFIG)
    there = params.to(torch)
    assert there["embed.weight"].data_ptr() == params["embed.weight"].ctypes.data
    assert np.shares_memory(there.to(np)["embed.weight"], params["embed.weight"])


def test_read_only_memory_converts_without_a_warning(backend: tinyxp.Backend) -> None:
    arrays = {name: x.copy() for name, x in drawn(LLAMA_CONFIG).items()}
    for x in arrays.values():
        x.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        there = Params(arrays, LLAMA_CONFIG).to(backend.xp)
        tinyxp.forward(there, [[1, 2, 3, 4, 5]])


def test_views_that_are_not_contiguous(backend: tinyxp.Backend) -> None:
    params = drawn(LLAMA_CONFIG)
    arrays = {name: np.asfortranarray(x) for name, x in params.items()}
    there = Params(arrays, LLAMA_CONFIG).to(backend.xp)
    assert all(np.array_equal(host(there[name]), x) for name, x in params.items())


def test_bfloat16_through_numpy_is_float32() -> None:
    torch = pytest.importorskip("torch")
    half = drawn(LLAMA_CONFIG).to(torch, dtype="bfloat16")
    here = half.to(np)
    assert here["embed.weight"].dtype == np.float32
    assert np.array_equal(here["embed.weight"], half["embed.weight"].float().numpy())
    jnp = pytest.importorskip("jax.numpy")
    assert half.to(jnp)["embed.weight"].dtype == jnp.bfloat16
    assert np.array_equal(host(half.to(jnp)["embed.weight"]), here["embed.weight"])


def test_xp_in_every_accepted_form() -> None:
    params = drawn(LLAMA_CONFIG)
    for library, modules in {
        "torch": ["torch", "array_api_compat.torch"],
        "numpy": ["numpy", "array_api_compat.numpy"],
        "jax": ["jax", "jax.numpy"],
    }.items():
        for module in map(pytest.importorskip, modules):
            assert params.to(module).xp is tinyxp.backend(library).xp


@pytest.mark.parametrize("xp", [3, None.__class__, object()], ids=["int", "type", "object"])
def test_what_is_no_namespace(xp: Any) -> None:
    with pytest.raises(ValueError, match="xp is"):
        drawn(LLAMA_CONFIG).to(xp)


def test_repr_is_short() -> None:
    assert repr(init(Config())) == "<Params of numpy: 21 arrays, 26,784 numbers, float32>"


def test_params_are_hashable_and_compared_by_identity() -> None:
    params = drawn(LLAMA_CONFIG)
    other = Params(dict(params), LLAMA_CONFIG)
    assert params == params
    assert params != other
    assert len({params, other}) == 2


def test_a_pytree_of_torch() -> None:
    torch = pytest.importorskip("torch")
    pytree = torch.utils._pytree
    params = drawn(LLAMA_CONFIG).to(torch)
    leaves, spec = pytree.tree_flatten(params)
    assert [x.shape for x in leaves] == [x.shape for x in params.values()]
    again = pytree.tree_unflatten([2.0 * x for x in leaves], spec)
    assert isinstance(again, Params)
    assert again.config is params.config
    assert torch.equal(again["head.weight"], 2.0 * params["head.weight"])


def test_a_pytree_of_jax() -> None:
    jax = pytest.importorskip("jax")
    params = drawn(LLAMA_CONFIG).to(jax.numpy)
    leaves, structure = jax.tree.flatten(params)
    assert len(leaves) == len(params)
    again = jax.tree.map(lambda x: 2.0 * x, params)
    assert isinstance(again, Params)
    assert again.config is params.config
    assert np.array_equal(again["head.weight"], 2.0 * params["head.weight"])
    # Another config is another structure: jit must not take the one's code for the other.
    other = Params(dict(params), replace(LLAMA_CONFIG, norm_eps=1e-3))
    assert jax.tree.structure(other) != structure
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    assert paths == [f"['{name}']" for name in params]
