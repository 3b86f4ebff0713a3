"""forward and loss: causality, padding on either side, positions, kernels, dtypes of the loss."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyxp
from tinyxp import Config, Params, forward, loss, ops

from .reference import (
    GPT2_CONFIG,
    IDS,
    LLAMA_CONFIG,
    array,
    distance,
    drawn,
    filled,
    float64_on,
    host,
)

CONFIGS = {"gpt2": GPT2_CONFIG, "llama": LLAMA_CONFIG}
FLOAT32 = 1e-5
"""Two float32 runs of these small models, logits of size 3, in whatever order they sum."""
WIDTH = 10


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> Config:
    return CONFIGS[request.param]


@pytest.fixture
def params(backend: tinyxp.Backend, config: Config) -> Params:
    return filled(config).to(backend.xp, dtype="float32")


def alone(config: Config, row: Any) -> np.ndarray:
    """The logits (t, n) of one row by itself, in float64 on NumPy."""
    return forward(filled(config), [list(row)])[0]


def padded(rows: list[list[int]], lefts: list[int], width: int, pads: Any) -> tuple[np.ndarray, np.ndarray]:
    """ids and mask (b, width), each row after so many columns of padding."""
    ids, mask = np.array(pads, dtype=np.int64), np.zeros((len(rows), width), dtype=bool)
    for r, (row, left) in enumerate(zip(rows, lefts, strict=True)):
        ids[r, left : left + len(row)] = row
        mask[r, left : left + len(row)] = True
    return ids, mask


# Padding


def test_zero_to_five_pads_on_either_side(params: Params) -> None:
    """Six rows of one batch with 0 to 5 columns of padding on the left and 5 to 0 on the right."""
    expected = alone(params.config, IDS[0])
    pads = np.random.default_rng(0).integers(0, 11, (6, WIDTH))
    ids, mask = padded(IDS * 6, list(range(6)), WIDTH, pads)
    for order in (np.arange(6), np.array([4, 1, 5, 0, 3, 2])):
        logits = host(forward(params, ids[order], mask=mask[order]))
        for r, left in enumerate(order):
            assert distance(logits[r, left : left + 5], expected) <= FLOAT32


def test_padding_in_float64(backend: tinyxp.Backend, config: Config) -> None:
    with float64_on(backend):
        params = filled(config).to(backend.xp)
        ids, mask = padded(IDS * 2, [2, 0], 7, np.full((2, 7), 9))
        logits = host(forward(params, ids, mask=mask))
        assert distance(logits[0, 2:], alone(config, IDS[0])) <= 1e-12
        assert distance(logits[1, :5], alone(config, IDS[0])) <= 1e-12


@pytest.mark.parametrize("name", ["numpy", "torch", "jax", "strict"])
@given(data=st.data())
def test_padding_anywhere(name: str, data: st.DataObject) -> None:
    backend = tinyxp.backend(name)
    config = CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))]
    lengths = data.draw(st.lists(st.integers(1, WIDTH), min_size=6, max_size=6))
    rows = [data.draw(st.lists(st.integers(0, 10), min_size=n, max_size=n)) for n in lengths]
    lefts = [data.draw(st.integers(0, WIDTH - n)) for n in lengths]
    pads = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 11, (6, WIDTH))
    ids, mask = padded(rows, lefts, WIDTH, pads)
    logits = host(forward(filled(config).to(backend.xp, dtype="float32"), ids, mask=mask))
    for r, (row, left) in enumerate(zip(rows, lefts, strict=True)):
        assert distance(logits[r, left : left + len(row)], alone(config, row)) <= FLOAT32


def test_a_mask_of_ones_is_no_mask(params: Params) -> None:
    for ones in (np.ones((1, 5), dtype=bool), [[1] * 5], [[True] * 5]):
        assert distance(forward(params, IDS, mask=ones), forward(params, IDS)) <= FLOAT32


def test_masks_of_every_kind_are_alike(params: Params) -> None:
    ids, mask = padded(IDS, [1], 6, [[0] * 6])
    logits = host(forward(params, ids, mask=mask))
    own = array(params.backend, mask)
    for other in (mask.tolist(), mask.astype(np.int64), own, ops.cast(own, params.xp.int32, xp=params.xp)):
        assert np.array_equal(host(forward(params, ids, mask=other)), logits)


def test_rows_that_are_all_padding_are_finite(params: Params) -> None:
    mask = [[True] * 5, [False] * 5]
    points = tinyxp.trace(params, IDS * 2, mask=mask)
    assert all(np.isfinite(host(x)).all() for name, x in points.items() if not name.endswith("scores"))
    assert not host(points["blocks.0.attn.weights"])[1].any()
    assert not host(points["blocks.0.attn.heads"])[1].any()
    assert distance(host(points["logits"])[0], alone(params.config, IDS[0])) <= FLOAT32


def test_gradients_with_padding_are_finite_and_the_same(config: Config) -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    ids, mask = padded([*IDS, []], [2, 0], 7, np.full((2, 7), 9))
    targets = np.where(mask, 4, -100)
    here = filled(config).to(torch, dtype="float32")
    g = torch.func.grad(loss)(here, ids, targets, mask=mask)
    there = filled(config).to(jax.numpy, dtype="float32")
    j = jax.jit(jax.grad(loss))(there, ids, targets, mask=mask)
    lone = torch.func.grad(loss)(here, IDS, [[4] * 5])
    for name in here:
        assert torch.isfinite(g[name]).all(), name
        assert distance(g[name], j[name]) <= FLOAT32, name
        assert distance(g[name], lone[name]) <= FLOAT32, name


# Causality and positions


def test_the_future_does_not_matter(params: Params) -> None:
    changed = [[3, 1, 4, 8, 0]]
    before, after = host(forward(params, IDS)), host(forward(params, changed))
    assert distance(before[:, :3], after[:, :3]) <= 1e-6
    assert distance(before[:, 3:], after[:, 3:]) > 0.1


def test_the_past_does(params: Params) -> None:
    before, after = host(forward(params, IDS)), host(forward(params, [[2, 1, 4, 1, 5]]))
    assert (np.abs(before - after).max(-1) > 1e-4).all()


def test_positions_default_to_counting(params: Params) -> None:
    logits = host(forward(params, IDS))
    for positions in ([[0, 1, 2, 3, 4]], np.arange(5)[None]):
        assert distance(forward(params, IDS, positions=positions), logits) <= FLOAT32


def test_positions_of_each_row(params: Params) -> None:
    """Left padding without its positions costs 1.41 on GPT-2, and rows may differ."""
    positions = [[0, 1, 2, 3, 4], [4, 9, 5, 7, 6]]
    logits = host(forward(params, IDS * 2, positions=positions))
    assert distance(logits[0], alone(params.config, IDS[0])) <= FLOAT32
    truth = forward(filled(params.config), IDS, positions=positions[1:])
    assert distance(logits[1], truth[0]) <= FLOAT32
    assert distance(truth[0], logits[0]) > 0.05


def test_one_row_of_positions_serves_all(params: Params) -> None:
    one = forward(params, IDS * 2, positions=[[1, 2, 3, 4, 5]])
    assert distance(one, forward(params, IDS * 2, positions=[[1, 2, 3, 4, 5]] * 2)) == 0.0


def test_learned_positions_are_looked_up(backend: tinyxp.Backend) -> None:
    params = filled(GPT2_CONFIG).to(backend.xp, dtype="float32")
    found = host(tinyxp.trace(params, IDS, positions=[[7, 0, 15, 3, 3]])["embed"])
    whole = filled(GPT2_CONFIG)
    expected = whole["embed.weight"][IDS[0]] + whole["pos_embed.weight"][[7, 0, 15, 3, 3]]
    assert distance(found[0], expected) <= 1e-6


def test_rotary_positions_are_relative(backend: tinyxp.Backend) -> None:
    params = filled(LLAMA_CONFIG).to(backend.xp, dtype="float32")
    moved = forward(params, IDS, positions=[[7, 8, 9, 10, 11]])
    assert distance(moved, alone(LLAMA_CONFIG, IDS[0])[None]) <= FLOAT32


def test_rotary_positions_go_on_beyond_max_seq_len(backend: tinyxp.Backend) -> None:
    short = replace(LLAMA_CONFIG, max_seq_len=3)
    params = Params(dict(filled(LLAMA_CONFIG)), short).to(backend.xp, dtype="float32")
    assert distance(forward(params, IDS), alone(LLAMA_CONFIG, IDS[0])[None]) <= FLOAT32


# Ids


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "uint8"])
def test_ids_of_any_integer_dtype_and_library(params: Params, dtype: str) -> None:
    backend, ids = params.backend, np.asarray(IDS, dtype=dtype)
    expected = host(forward(params, IDS))
    for given_ids in (
        ids,
        array(backend, ids),
        *(array(tinyxp.backend(name), ids) for name in ("torch", "jax", "strict")),
    ):
        assert np.array_equal(host(forward(params, given_ids)), expected)


def test_arguments_are_left_alone(params: Params) -> None:
    ids, mask = padded(IDS, [1], 6, [[0] * 6])
    there = array(params.backend, ids.copy()), array(params.backend, mask.copy())
    weights = {name: host(x).copy() for name, x in params.items()}
    forward(params, there[0], mask=there[1])
    assert np.array_equal(host(there[0]), ids)
    assert np.array_equal(host(there[1]), mask)
    assert all(np.array_equal(host(x), weights[name]) for name, x in params.items())


def test_results_are_arrays_of_the_library(params: Params) -> None:
    assert params.backend.is_array(forward(params, IDS))
    assert params.backend.is_array(loss(params, IDS, IDS))


def test_xp_converts_the_parameters(backend: tinyxp.Backend) -> None:
    params = drawn(LLAMA_CONFIG)
    logits = forward(params, IDS, xp=backend.xp)
    assert backend.is_array(logits)
    assert distance(logits, forward(params, IDS)) <= FLOAT32
    assert abs(float(host(loss(params, IDS, IDS, xp=backend.xp))) - float(loss(params, IDS, IDS))) <= FLOAT32


# Loss


def test_loss_shifts_nothing(params: Params) -> None:
    targets = [[8, 0, 10, 3, 2]]
    logits = alone(params.config, IDS[0])
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -np.mean([log_p[i, target] for i, target in enumerate(targets[0])])
    assert float(host(loss(params, IDS, targets))) == pytest.approx(expected, abs=2e-6)


def test_loss_leaves_out_minus_100(params: Params) -> None:
    logits = alone(params.config, IDS[0])
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    value = float(host(loss(params, IDS, [[-100, 0, -100, 3, -100]])))
    assert value == pytest.approx(-(log_p[1, 0] + log_p[3, 3]) / 2, abs=2e-6)
    assert float(host(loss(params, IDS, [[-100] * 5]))) == 0.0


def test_loss_takes_a_mask_and_positions(params: Params) -> None:
    ids, mask = padded(IDS, [2], 7, [[9] * 7])
    targets = np.where(mask, 4, -100)
    expected = float(host(loss(params, IDS, [[4] * 5])))
    assert float(host(loss(params, ids, targets, mask=mask))) == pytest.approx(expected, abs=FLOAT32)
    moved = float(host(loss(params, IDS, [[4] * 5], positions=[[0, 2, 5, 6, 9]])))
    assert abs(moved - expected) > 1e-3


def test_micro_batches_weigh_by_their_targets(params: Params) -> None:
    """Token losses 1, 1, 1 and 5 make 2, not 3: the mean of micro-batches counts their targets."""
    ids, targets = IDS * 2, [[4, 4, 4, -100, -100], [-100, 8, -100, -100, -100]]
    whole = float(host(loss(params, ids, targets)))
    first, second = (float(host(loss(params, [i], [t]))) for i, t in zip(ids, targets, strict=True))
    assert whole == pytest.approx((3 * first + second) / 4, abs=2e-6)
    assert abs(whole - (first + second) / 2) > 1e-3


def test_gradients_of_any_split_add_up(config: Config) -> None:
    torch = pytest.importorskip("torch")
    params = filled(config).to(torch)
    ids, targets = IDS * 3, [[4, 4, 4, -100, -100], [-100, 8, -100, -100, -100], [-100] * 5]
    whole = torch.func.grad(loss)(params, ids, targets)
    parts = [torch.func.grad(loss)(params, [i], [t]) for i, t in zip(ids, targets, strict=True)]
    for name in params:
        assert not parts[2][name].any()  # a micro-batch without a target adds nothing, not NaN
        summed = (3 * parts[0][name] + parts[1][name]) / 4
        assert distance(whole[name], summed) <= 1e-12, name


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_loss_is_float32(params: Params, dtype: str) -> None:
    if dtype not in params.backend.dtypes():
        pytest.skip(f"{params.backend.name} has no {dtype}")
    half = params.to(dtype=dtype)
    value = loss(half, IDS, IDS)
    assert str(value.dtype).endswith("float32")
    assert float(host(value)) == pytest.approx(float(host(loss(params, IDS, IDS))), rel=0.02)


# Kernels


def test_an_attention_without_its_mask_sees_the_future(params: Params) -> None:
    def blind(q: Any, k: Any, v: Any, visible: Any, *, xp: Any, tap: Any = ops.untapped) -> Any:
        return ops.attention(q, k, v, visible | True, xp=xp, tap=tap)

    right, wrong = forward(params, IDS), forward(params, IDS, kernels={"attention": blind})
    assert distance(right, wrong) > 0.01
    # The last position sees everything in the first block, so only the second spoils it.
    assert distance(host(right)[:, 0], host(wrong)[:, 0]) > 0.01


@pytest.mark.parametrize("name", ops.Kernels._fields)
def test_every_kernel_is_called_and_can_be_replaced(backend: tinyxp.Backend, name: str) -> None:
    config = {
        "layer_norm": GPT2_CONFIG,
        "gelu_tanh": GPT2_CONFIG,
        "gelu": replace(GPT2_CONFIG, mlp="gelu"),
    }.get(name, LLAMA_CONFIG)
    params = Params(dict(filled(replace(config, mlp=GPT2_CONFIG.mlp) if name == "gelu" else config)), config)
    params = params.to(backend.xp, dtype="float32")
    calls = []

    def kernel(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return getattr(ops, name)(*args, **kwargs)

    def run(kernels: Any) -> Any:
        cache = tinyxp.new_cache(params, 1, 5)
        return tinyxp.extend(params, IDS, cache, kernels=kernels)[0]

    plain = run(None)
    assert np.array_equal(host(run({name: kernel})), host(plain))
    per_layer = {"linear": 7, "rms_norm": 2, "layer_norm": 2, "rotary": 2, "write_cache": 2}.get(name, 1)
    assert len(calls) == 2 * per_layer + (name in ("linear", "rms_norm", "layer_norm"))
    assert np.array_equal(host(run(ops.Kernels(**{name: kernel}))), host(plain))


def test_kernels_of_wrong_names() -> None:
    with pytest.raises(ValueError, match=r"kernels.*'softmaks'.*attention"):
        forward(drawn(LLAMA_CONFIG), IDS, kernels={"softmaks": ops.softmax})


@pytest.mark.parametrize("kernels", [3, "linear", [ops.linear], {"linear": 3}], ids=str)
def test_kernels_of_wrong_types(kernels: Any) -> None:
    with pytest.raises(ValueError, match="kernels"):
        forward(drawn(LLAMA_CONFIG), IDS, kernels=kernels)


# Memory


def test_the_mask_is_made_once(params: Params) -> None:
    masks = []

    def attention(q: Any, k: Any, v: Any, visible: Any, *, xp: Any, tap: Any = ops.untapped) -> Any:
        masks.append(visible)
        return ops.attention(q, k, v, visible, xp=xp, tap=tap)

    forward(params, IDS * 2, kernels={"attention": attention})
    assert len(masks) == params.config.n_layers
    assert all(mask is masks[0] for mask in masks)
    assert tuple(masks[0].shape) == (1, 1, 5, 5)


def test_last_costs_the_head_of_one_column(params: Params) -> None:
    """At t 4096 and a vocabulary of 151,936 that is 0.61 MB instead of 2.49 GB."""
    sizes = []

    def linear(x: Any, weight: Any, bias: Any = None, *, xp: Any) -> Any:
        y = ops.linear(x, weight, bias, xp=xp)
        sizes.append(tuple(y.shape))
        return y

    cache = tinyxp.new_cache(params, 2, 5)
    logits, _ = tinyxp.extend(params, IDS * 2, cache, last=True, kernels={"linear": linear})
    assert tuple(logits.shape) == sizes[-1] == (2, 1, 11)
    assert sum(size[-1] == 11 for size in sizes) == 1


# Precision


def test_positions_stay_apart_in_bfloat16(backend: tinyxp.Backend) -> None:
    """In bfloat16 only 641 of the first 2048 positions are distinct."""
    if "bfloat16" not in backend.dtypes():
        pytest.skip(f"{backend.name} has no bfloat16")
    params = filled(LLAMA_CONFIG).to(backend.xp, dtype="bfloat16")
    positions = [[2041, 2042, 2043, 2044, 2045]]
    points = tinyxp.trace(params, [[3] * 5], positions=positions)
    half = LLAMA_CONFIG.head_dim // 2
    q = host(points["blocks.0.attn.q"]).reshape(5, 2, 2 * half)
    z = q[..., :half] + 1j * q[..., half:]
    angles = np.asarray(positions[0])[:, None, None] * np.array([1.0, 0.01])
    z = z * np.exp(1j * angles)
    expected = np.concatenate([z.real, z.imag], -1).swapaxes(0, 1)
    # A handful of bfloat16 roundings of numbers below 1.
    assert distance(host(points["blocks.0.attn.q_rotated"])[0], expected) <= 0.015


def test_inverse_frequencies(backend: tinyxp.Backend) -> None:
    """At head_dim 8 and theta 1e4: 1, 0.1, 0.01, 0.001; read from what the model does at position 1."""
    params = drawn(Config()).to(backend.xp)
    points = tinyxp.trace(params, IDS)
    q = host(points["blocks.0.attn.q"]).reshape(5, 4, 8)[1]
    before, after = q, host(points["blocks.0.attn.q_rotated"])[0, :, 1]
    turned = (after[:, :4] + 1j * after[:, 4:]) / (before[:, :4] + 1j * before[:, 4:])
    np.testing.assert_allclose(np.angle(turned), [[1.0, 0.1, 0.01, 0.001]] * 4, atol=2e-6)


def test_rotary_tables_are_float64_in_a_float64_run(backend: tinyxp.Backend) -> None:
    with float64_on(backend):
        params = filled(LLAMA_CONFIG).to(backend.xp)
        points = tinyxp.trace(params, IDS, positions=[[100003, 5, 77777, 1, 0]])
        k = host(points["blocks.0.attn.k"])[0]
        z = (k[:, :2] + 1j * k[:, 2:]) * np.exp(
            1j * np.array([[100003.0], [5.0], [77777.0], [1.0], [0.0]]) * np.array([1.0, 0.01])
        )
        expected = np.concatenate([z.real, z.imag], -1)
        assert distance(host(points["blocks.0.attn.k_rotated"])[0, 0], expected) <= 1e-11


def test_a_width_of_one_and_a_single_token(backend: tinyxp.Backend) -> None:
    config = Config(
        vocab_size=1, n_layers=1, d_model=2, n_heads=1, n_kv_heads=1, head_dim=2, d_ff=1, max_seq_len=1
    )
    params = drawn(config).to(backend.xp)
    assert tuple(forward(params, [[0]]).shape) == (1, 1, 1)
    assert float(host(loss(params, [[0]], [[0]]))) == 0.0
    assert math.isfinite(float(host(forward(params, [[0]]))[0, 0, 0]))
