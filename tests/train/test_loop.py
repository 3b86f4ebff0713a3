"""The loop: the same steps on every backend, added up from parts, gone on with, and refused."""

from __future__ import annotations

import math
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import LLAMA_CONFIG, array, drawn, host
from tinyxp import ops
from tinyxp.config import Config
from tinyxp.text.windows import Windows
from tinyxp.train import Recipe, Report, evaluate, fit
from tinyxp.train.loop import accumulate, batch_rows
from tinyxp.train.objective import batch_loss, compile_unless_eager, training_kernels

from .runs import HELD_OUT, LIBRARIES, SHAPES, TRAIN, assert_same, model, on_host, run

# The same steps


@pytest.mark.parametrize("family, more", [("gpt2", {}), ("llama", {"dropout": 0.2, "micro_batch": 2})])
def test_torch_and_jax_take_the_same_steps(family: str, more: dict[str, Any]) -> None:
    """In 20 steps; where a gradient is 0 but for rounding, Adam scales that up: keys' biases, for one."""
    pytest.importorskip("jax")
    config, recipe = SHAPES[family], Recipe(steps=20, batch=4, warmup=4, eps=1e-5, evaluate_every=20, **more)
    ours, theirs = (run(config, library, recipe) for library in ("torch", "jax"))
    for field in ("loss", "norm"):
        found, expected = ([getattr(r, field) for r in reports[1:]] for reports in (ours, theirs))
        assert found == pytest.approx(expected, rel=1e-4)
    assert ours[-1].validation == pytest.approx(theirs[-1].validation, rel=1e-5)
    expected, start = on_host(theirs[-1].params), drawn(config)
    for name, x in on_host(ours[-1].params).items():
        np.testing.assert_allclose(x, expected[name], rtol=0.0, atol=1e-4, err_msg=name)
        if not name.endswith("attn.k.bias"):
            assert np.abs(x - start[name]).max() > 5e-3, name


@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES)
def test_the_steps_are_those_of_torchs_own_optimizer_and_pure_loss(config: Config) -> None:
    torch = pytest.importorskip("torch")
    recipe = Recipe(steps=8, batch=4, warmup=3, clip=0.5, eps=1e-4)
    params = model(config, "torch", "float64")
    reports = list(fit(params, TRAIN, None, recipe))
    theirs = params.replace({name: torch.nn.Parameter(x.clone()) for name, x in params.items()})
    groups = [
        {"params": [x for x in theirs.values() if (x.ndim > 1) is matrix], "weight_decay": 0.1 * matrix}
        for matrix in (True, False)
    ]
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=recipe.betas, eps=recipe.eps)
    for step, report in enumerate(reports[1:]):
        rows = batch_rows(recipe, step, len(TRAIN.ids))
        optimizer.zero_grad()
        value = tinyxp.loss(theirs, TRAIN.ids[rows], TRAIN.targets[rows])
        value.backward()
        norm = torch.nn.utils.clip_grad_norm_(theirs.values(), recipe.clip)
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate(step)
        optimizer.step()
        assert report.loss == pytest.approx(value.item(), rel=1e-7)
        assert report.norm == pytest.approx(norm.item(), rel=1e-5)  # torch divides by the norm plus 1e-6
        assert report.rate == recipe.rate(step)
    for name, x in reports[-1].params.items():
        np.testing.assert_allclose(host(x), theirs[name].detach().numpy(), rtol=0.0, atol=1e-7, err_msg=name)


def test_narrow_numbers_leave_the_parameters_wide() -> None:
    library = "torch"
    recipe = {"steps": 6, "batch": 8, "warmup": 0, "evaluate_every": 6}
    wide = run(LLAMA_CONFIG, library, Recipe(**recipe))
    narrow = run(LLAMA_CONFIG, library, Recipe(**recipe, dtype="bfloat16"))
    for part in narrow[-1].state[:3]:
        assert {x.dtype for x in on_host(part).values()} == {np.dtype(np.float32)}
        assert all("float32" in str(x.dtype) for x in part.values())
    assert narrow[-1].loss != wide[-1].loss
    assert narrow[-1].loss == pytest.approx(wide[-1].loss, rel=0.01)
    assert narrow[-1].validation == pytest.approx(wide[-1].validation, rel=0.01)


# Parts of a batch

GAPS = TRAIN.targets[:4].copy()
GAPS[0, 3:], GAPS[1], GAPS[3, 1:] = -100, -100, -100
BATCH = Windows(TRAIN.ids[:4], GAPS)
"""Windows with 3, 0, 8 and 1 targets."""


@cache
def gradient(library: str, dropout: float) -> Any:
    backend = tinyxp.backend(library)
    recipe = Recipe(steps=1, dropout=dropout)
    computed = partial(batch_loss, kernels=training_kernels(backend, None), recipe=recipe)
    return compile_unless_eager(backend, backend.value_and_grad(computed))


@pytest.mark.parametrize(
    "library, dropout, sizes",
    [
        ("torch", 0.0, (None, 1, 2, 3, 4, 9)),
        ("torch", 0.3, (None, 1, 2, 3, 4, 9)),
        ("jax", 0.3, (None, 3, 1)),
    ],
)
def test_loss_and_gradients_are_the_same_for_any_split(
    library: str, dropout: float, sizes: tuple[int | None, ...]
) -> None:
    params = model(LLAMA_CONFIG, library)
    found = []
    for size in sizes:
        recipe = Recipe(steps=1, batch=4, micro_batch=size, dropout=dropout)
        loss, gradients = accumulate(params, BATCH, 0, recipe, gradient(library, dropout))
        found.append((float(host(loss)), on_host(gradients)))
    (whole, expected), *others = found
    if not dropout:
        assert whole == pytest.approx(float(host(tinyxp.loss(params, *BATCH))), rel=1e-6)
    for loss, gradients in others:
        assert loss == pytest.approx(whole, rel=1e-6)
        for name, x in gradients.items():
            np.testing.assert_allclose(x, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_part_weighs_as_many_targets_as_it_has(library: str) -> None:
    """Token losses 1, 1, 1 and 5 make 2, and not the 3 that is the mean of the parts' means."""
    backend, params = tinyxp.backend(library), model(LLAMA_CONFIG, library)
    batch = Windows(np.zeros((3, 3), int), np.array([[0, 0, 0], [1, -100, -100], [-100] * 3]))

    def gradient(params: Any, ids: Any, targets: Any, kept: Any) -> Any:
        value = {0: 1.0, 1: 5.0, -100: 0.0}[int(host(targets)[0, 0])]
        mean = array(backend, np.array(value), "float32")
        return mean, {name: 0.0 * x + value for name, x in params.items()}

    loss, gradients = accumulate(params, batch, 0, Recipe(steps=1, batch=3, micro_batch=1), gradient)
    assert float(host(loss)) == 2.0
    assert all((x == 2.0).all() for x in on_host(gradients).values())


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_batch_without_a_target_gives_zeros(library: str) -> None:
    params = model(LLAMA_CONFIG, library)
    nothing = BATCH._replace(targets=np.full_like(GAPS, -100))
    for size in (None, 1):
        recipe = Recipe(steps=1, batch=4, micro_batch=size, dropout=0.3)
        loss, gradients = accumulate(params, nothing, 0, recipe, gradient(library, 0.3))
        assert float(host(loss)) == 0.0
        assert not any(x.any() for x in on_host(gradients).values())


# Going on, and the order of windows


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_run_that_goes_on_is_the_unbroken_one_bit_for_bit(library: str) -> None:
    parts = {"micro_batch": 2} if library == "torch" else {}  # and compilations cost seconds
    recipe = Recipe(steps=8, batch=5, warmup=2, dropout=0.1, evaluate_every=3, **parts)
    whole = run(LLAMA_CONFIG, library, recipe)
    assert [r.step for r in whole] == list(range(9))
    assert [r.step for r in whole if r.validation is not None] == [0, 3, 6, 8]
    for k in (1, 5, 8) if library == "torch" else (5,):
        rest = list(fit(whole[k].state, TRAIN, HELD_OUT, recipe))
        assert [r[:5] for r in rest] == [r[:5] for r in whole[k + 1 :]]
        if rest:
            for found, expected in zip(rest[-1].state[:3], whole[-1].state[:3], strict=True):
                assert_same(found, expected)
    again = fit(whole[0].state, TRAIN, HELD_OUT, recipe)
    assert next(again)[:5] == whole[0][:5]


def test_a_run_changes_nothing_that_it_is_given() -> None:
    params, copy = model(LLAMA_CONFIG, "torch"), Windows(*(x.copy() for x in TRAIN))
    start = {name: x.copy() for name, x in on_host(params).items()}
    reports = list(fit(params, TRAIN, None, Recipe(steps=2)))
    states = [on_host(r.params) for r in reports]
    assert_same(params, {name: array(params.backend, x) for name, x in start.items()})
    assert all(np.array_equal(*pair) for pair in zip(TRAIN, copy, strict=True))
    assert not any(np.array_equal(states[1][name], states[2][name]) for name in start)


@pytest.mark.parametrize("count, batch", [(10, 4), (7, 7), (5, 16), (1, 3), (64, 16)])
def test_each_epoch_takes_each_window_once(count: int, batch: int) -> None:
    recipe = Recipe(steps=99, batch=batch, seed=3)
    order = np.concatenate([batch_rows(recipe, step, count) for step in range(3 * count)])
    epochs = order[: len(order) // count * count].reshape(-1, count)
    assert len(epochs) >= 3
    assert (np.sort(epochs, axis=1) == np.arange(count)).all()
    if count > 4:
        assert len(np.unique(epochs[:3], axis=0)) == 3
        other = Recipe(steps=99, batch=batch, seed=4)
        assert not np.array_equal(batch_rows(other, 0, count), batch_rows(recipe, 0, count))


def test_reports_are_of_the_batch_before_the_update_and_of_what_is_held_out() -> None:
    params, recipe = model(LLAMA_CONFIG, "torch"), Recipe(steps=3, batch=4, evaluate_every=2)
    reports = list(fit(params, TRAIN, HELD_OUT, recipe))
    assert reports[0][1:4] == (None, None, None)
    assert all(np.array_equal(x, host(params[name])) for name, x in on_host(reports[0].params).items())
    for before, after in pairwise(reports):
        rows = batch_rows(recipe, before.step, len(TRAIN.ids))
        expected = tinyxp.loss(before.params, TRAIN.ids[rows], TRAIN.targets[rows])
        assert after.loss == pytest.approx(float(expected), rel=1e-6)
    for report in reports:
        expected = None if report.step == 1 else evaluate(report.params, HELD_OUT)
        assert report.validation == expected


def test_it_learns_what_follows_what() -> None:
    """Ids that count around: what comes next is certain."""
    ids = np.arange(400) % 11
    windows = Windows(
        np.stack([ids[i : i + 8] for i in range(60)]), np.stack([ids[i + 1 : i + 9] for i in range(60)])
    )
    *_, last = fit(model(LLAMA_CONFIG, "torch"), windows, windows, Recipe(steps=60, peak=0.02, warmup=5))
    assert last.validation < 0.1 < math.log(11)


# Dropout


def test_dropout_is_of_training_alone_and_off_is_off() -> None:
    plain = run(LLAMA_CONFIG, "torch", Recipe(steps=3, batch=8))
    off = run(LLAMA_CONFIG, "torch", Recipe(steps=3, batch=8, dropout=0.0))
    dropped = run(LLAMA_CONFIG, "torch", Recipe(steps=3, batch=8, dropout=0.5))
    assert_same(plain[-1].params, off[-1].params)
    assert plain[0].validation == dropped[0].validation
    assert abs(plain[1].loss - dropped[1].loss) > 1e-3
    assert dropped[-1].validation == evaluate(dropped[-1].params, HELD_OUT)


# What is refused


@pytest.mark.parametrize("library", ["numpy", "array_api_strict"])
def test_a_backend_without_gradients_says_what_to_install_at_the_call(library: str) -> None:
    with pytest.raises(ValueError, match=rf"'{library}', which has no gradients; (use|install)"):
        fit(model(LLAMA_CONFIG, library), TRAIN, None, Recipe(steps=1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_parameters_are_refused_at_the_call(dtype: str) -> None:
    with pytest.raises(ValueError, match=f"params are {dtype}; they must be float32 or float64"):
        fit(model(LLAMA_CONFIG, "torch", dtype), TRAIN, None, Recipe(steps=1))


def test_other_arguments_are_refused_at_the_call() -> None:
    params = model(LLAMA_CONFIG, "torch")
    with pytest.raises(ValueError, match="recipe is a dict; it must be tinyxp.train.Recipe"):
        fit(params, TRAIN, None, {"steps": 1})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="params is a dict; it must be tinyxp.Params"):
        fit(dict(params), TRAIN, None, Recipe(steps=1))  # type: ignore[arg-type]


def test_jax_without_x64_refuses_float64_at_the_call() -> None:
    with pytest.raises(
        ValueError, match="dtype is 'float64', which JAX computes in only with jax_enable_x64"
    ):
        fit(model(LLAMA_CONFIG, "jax"), TRAIN, None, Recipe(steps=1, dtype="float64"))


def test_a_loss_that_is_not_finite_ends_the_run_and_names_the_step() -> None:
    params = model(LLAMA_CONFIG, "torch")
    reports = fit(params, TRAIN, None, Recipe(steps=3, batch=4))
    state = [next(reports) for _ in range(2)][-1].state
    broken = {**state.params, "final_norm.weight": state.params["final_norm.weight"] * math.nan}
    rest = fit(state._replace(params=state.params.replace(broken)), TRAIN, None, Recipe(steps=3, batch=4))
    with pytest.raises(ValueError, match="the loss at step 1 is nan"):
        next(rest)
    assert list(rest) == []
    assert isinstance(next(reports), Report)  # the run that was not broken goes on


def test_a_run_keeps_no_graph_of_parameters_that_want_gradients() -> None:
    params = model(SHAPES["llama"], "torch")
    wanting = params.replace({name: x.clone().requires_grad_() for name, x in params.items()})
    *_, last = fit(wanting, TRAIN, None, Recipe(steps=2, warmup=0))
    assert not any(x.requires_grad for x in last.params.values())
    assert all(x.requires_grad and x.grad is None for x in wanting.values())
    *_, plain = fit(params, TRAIN, None, Recipe(steps=2, warmup=0))
    assert last.loss == plain.loss


def test_a_product_of_the_callers_makes_the_logits_too() -> None:
    params = model(SHAPES["llama"], "torch")
    widths = []

    def linear(x: Any, weight: Any, bias: Any = None, *, xp: Any) -> Any:
        widths.append(weight.shape[0])
        return ops.linear(x, weight, bias, xp=xp)

    list(fit(params, TRAIN, None, Recipe(steps=1, warmup=0), kernels={"linear": linear}))
    assert widths.count(params.config.vocab_size) == 1
