"""AdamW: the numbers of its paper's update, decay of matrices alone, torch's own, on every backend."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import GPT2_CONFIG, LLAMA_CONFIG, drawn, filled, float64_on, host, libraries
from tinyxp import Params
from tinyxp.train import Recipe, State
from tinyxp.train.objective import compile_unless_eager
from tinyxp.train.optimizer import adamw, global_norm, initial_state, update_scalars

CONSTANT = Recipe(steps=9, peak=0.1, warmup=0, floor=1.0, clip=1e9)
"""A learning rate of 0.1 throughout, and no clipping."""


def updated(state: State, gradients: Params, recipe: Recipe) -> tuple[State, float]:
    """The state after one update, and the norm of the gradient."""
    update = compile_unless_eager(state.params.backend, partial(adamw, recipe=recipe))
    *new, norm = update(
        state.params, state.first, state.second, gradients, update_scalars(recipe, state.step)
    )
    return State(*new, state.step + 1), float(host(norm))


def full(params: Params, value: float) -> Params:
    return params.replace({name: value + 0.0 * x for name, x in params.items()})


@pytest.mark.parametrize(
    "library, dtype", [*((x, "float32") for x in ("torch", "jax")), ("numpy", "float64")]
)
@pytest.mark.parametrize("g, expected", [(0.5, [0.890000002, 0.781100004]), (1e-8, [0.94, 0.8806])])
def test_two_updates_of_a_matrix(library: str, dtype: str, g: float, expected: list[float]) -> None:
    pytest.importorskip(library)
    params = filled(GPT2_CONFIG).to(tinyxp.backend(library).xp, dtype=dtype)
    state, found = initial_state(full(params, 1.0)), []
    for _ in range(2):
        state, _ = updated(state, full(params, g), CONSTANT)
        found.append(float(host(state.params["blocks.1.attn.q.weight"])[3, 2]))
    assert found == pytest.approx(expected, abs=6e-10 if dtype == "float64" else 2e-7)
    # Without decay it is the plain Adam: a first step of lr g / (|g| + eps).
    bias = initial_state(full(params, 1.0))
    bias, _ = updated(bias, full(params, g), CONSTANT)
    assert float(host(bias.params["final_norm.bias"])[0]) == pytest.approx(
        1.0 - 0.1 * g / (g + 1e-8), abs=2e-7
    )


@pytest.mark.parametrize("library", libraries("numpy", "torch", "jax", "strict"))
def test_decay_takes_matrices_alone_and_a_tied_table_once(library: str) -> None:
    backend = tinyxp.backend(library)
    with float64_on(backend):
        start = filled(GPT2_CONFIG).to(backend.xp)
        state, norm = updated(initial_state(start), full(start, 0.0), CONSTANT)
        pairs = [(host(state.params[name]).ravel(), host(x).ravel()) for name, x in start.items()]
    found, before = (np.concatenate(x) for x in zip(*pairs, strict=True))
    assert norm == 0.0
    assert found.size == 1976
    assert np.sum(before == 0.0) == 1  # which decays to itself
    decayed = np.concatenate([np.full(x.size, x.size > 32) for x, _ in pairs])
    assert decayed.sum() == 1752
    np.testing.assert_allclose(found[decayed], 0.99 * before[decayed], rtol=1e-14)
    np.testing.assert_array_equal(found[~decayed], before[~decayed])


@pytest.mark.parametrize("clip", [1.0, 1e9], ids=["clipped", "whole"])
def test_the_updates_are_torchs(clip: float) -> None:
    torch = pytest.importorskip("torch")
    params = drawn(LLAMA_CONFIG).to(tinyxp.backend("torch").xp, dtype="float64")
    theirs = {name: torch.nn.Parameter(x.clone()) for name, x in params.items()}
    groups = [
        {"params": [x for x in theirs.values() if x.ndim > 1], "weight_decay": 0.1},
        {"params": [x for x in theirs.values() if x.ndim == 1], "weight_decay": 0.0},
    ]
    recipe = Recipe(steps=6, peak=0.1, warmup=2, clip=clip, eps=1e-3)
    optimizer = torch.optim.AdamW(groups, lr=0.1, betas=recipe.betas, eps=recipe.eps)
    rng, state = np.random.default_rng(0), initial_state(params)
    for step in range(6):
        scale = 10.0 ** (step - 4)  # norms on both sides of 1
        gradients = {name: torch.tensor(scale * rng.normal(size=x.shape)) for name, x in params.items()}
        for name, x in theirs.items():
            x.grad = gradients[name].clone()
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate(step)
        expected = torch.nn.utils.clip_grad_norm_(theirs.values(), clip)
        optimizer.step()
        state, norm = updated(state, params.replace(gradients), recipe)
        assert norm == pytest.approx(float(expected), rel=1e-12)
    for name, x in state.params.items():
        # torch divides by the norm plus 1e-6.
        np.testing.assert_allclose(host(x), theirs[name].detach().numpy(), rtol=0.0, atol=3e-6)


@pytest.mark.parametrize("library", libraries("numpy", "torch", "jax", "strict"))
def test_the_norm_is_over_all_parameters_and_what_is_below_the_clip_is_whole(library: str) -> None:
    params = drawn(LLAMA_CONFIG).to(tinyxp.backend(library).xp)
    squares = sum(float(np.sum(x.astype(np.float64) ** 2)) for x in drawn(LLAMA_CONFIG).values())
    norm = float(host(global_norm(params, xp=params.xp)))
    assert norm == pytest.approx(math.sqrt(squares), rel=1e-6)
    moments = []
    for clip in (1e9, 2 * norm, norm / 4):
        state, found = updated(initial_state(params), params, Recipe(steps=1, clip=clip))
        assert found == pytest.approx(norm, rel=1e-6)  # as it was before it was clipped
        moments.append(host(state.first["head.weight"]))
    np.testing.assert_array_equal(moments[0], moments[1])
    np.testing.assert_allclose(moments[2], moments[0] / 4, rtol=1e-6)


@pytest.mark.parametrize("library", libraries("numpy", "torch", "jax"))
def test_an_update_changes_nothing_that_it_is_given_and_keeps_dtypes(library: str) -> None:
    params = drawn(LLAMA_CONFIG).to(tinyxp.backend(library).xp)
    params = params.replace({name: 1.0 * x for name, x in params.items()})  # memory of its own
    before = initial_state(params)
    after, _ = updated(before, params, CONSTANT)
    for name, x in drawn(LLAMA_CONFIG).items():
        np.testing.assert_array_equal(host(before.params[name]), x)
        assert not host(before.first[name]).any()
        assert not host(before.second[name]).any()
        for part in (after.params, after.first, after.second):
            assert host(part[name]).dtype == np.float32
        assert not np.array_equal(host(after.params[name]), x)


def test_no_gradient_ever_moves_nothing_by_nothing() -> None:
    """0 / (sqrt(0) + eps) is 0."""
    state: Any = initial_state(full(drawn(LLAMA_CONFIG), 1.0))
    for _ in range(3):
        state, _ = updated(state, full(drawn(LLAMA_CONFIG), 0.0), Recipe(steps=9, decay=0.0))
    assert all(np.array_equal(x, np.ones_like(x)) for x in state.params.values())
