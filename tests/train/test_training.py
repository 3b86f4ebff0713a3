"""The loop as a whole: the same steps on every backend, gone on with, added up, and refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp.text.windows import Windows, cut_windows, split_stream
from tinyxp.train import Recipe, evaluate, fit
from tinyxp.train.loop import accumulated, batch_rows
from tinyxp.train.objective import compiled, objective, training_kernels
from tinyxp.train.optimizer import Scalars, adamw, initial

GPT2 = tinyxp.Config(
    **tinyxp.config.GPT2
    | {
        "vocab_size": 11,
        "n_layers": 2,
        "d_model": 8,
        "n_heads": 2,
        "n_kv_heads": 2,
        "d_ff": 32,
        "max_seq_len": 16,
    }
)
LLAMA = tinyxp.Config(vocab_size=11, d_model=8, n_heads=2, n_kv_heads=1, head_dim=4, d_ff=12, max_seq_len=16)
STREAM = np.random.default_rng(0).integers(0, 11, 400)
TRAIN, HELD_OUT = (cut_windows(part, 8) for part in split_stream(STREAM, 0.2))


def namespace(library: str) -> Any:
    return tinyxp.backend(pytest.importorskip(library).__name__).xp


def trained(config: tinyxp.Config, library: str, recipe: Recipe) -> list[Any]:
    return list(fit(tinyxp.init(config, xp=namespace(library)), TRAIN, HELD_OUT, recipe))


def host(params: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(x) for name, x in params.items()}


def test_the_learning_rate_climbs_in_a_line_and_falls_to_a_tenth_at_the_last_step() -> None:
    recipe = Recipe(steps=200, peak=3e-3, warmup=20)
    assert recipe.rate(0) == pytest.approx(1.5e-4)
    assert recipe.rate(19) == recipe.rate(20) == pytest.approx(3e-3)
    assert recipe.rate(199) == pytest.approx(3e-4)
    rho = (100 - 20) / (199 - 20)
    assert recipe.rate(100) == pytest.approx(3e-4 + 2.7e-3 * (1 + math.cos(math.pi * rho)) / 2)
    assert Recipe(steps=1, warmup=0).rate(0) == pytest.approx(3e-4)
    assert Recipe(steps=3, warmup=9, peak=9.0).rate(2) == 3.0


@pytest.mark.parametrize(
    "change, message",
    [
        ({"steps": 0}, "steps is 0; it must be an integer of 1 or more"),
        ({"peak": math.nan}, "peak is nan; it must be a finite number above 0"),
        ({"batch": 0}, "batch is 0"),
        ({"dropout": 1.0}, "dropout has 1.0; it must be a number from 0 to below 1"),
        ({"betas": (0.9, 1.0)}, "betas has 1.0"),
        ({"decay": -0.1}, "decay is -0.1"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"micro_batch": 0}, "micro_batch is 0"),
    ],
)
def test_a_bad_recipe_names_its_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        Recipe(**{"steps": 1} | change)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("g, expected", [(0.5, [0.890000002, 0.781100004]), (1e-8, [0.94, 0.8806])])
def test_two_updates_of_adamw(library: str, g: float, expected: list[float]) -> None:
    recipe = Recipe(steps=2, eps=1e-8, clip=1e9)
    params = tinyxp.init(GPT2, xp=namespace(library))
    xp = params.xp
    ones = params.held_as({name: xp.ones_like(x) for name, x in params.items()})
    gradients = params.held_as({name: g * xp.ones_like(x) for name, x in params.items()})
    state, found = initial(ones), []
    for t in (1, 2):
        now = Scalars(0.1, 1 - 0.9**t, 1 - 0.95**t)
        *new, _ = adamw(*state[:3], gradients, now, recipe=recipe)
        state = type(state)(*new, t)
        found.append(float(state.params["embed.weight"][3, 2]))
    assert found == pytest.approx(expected, rel=1e-5)


def test_decay_takes_matrices_alone_and_a_tied_table_once() -> None:
    params = tinyxp.init(GPT2, dtype="float64")
    ones = params.held_as({name: np.ones_like(x) for name, x in params.items()})
    none = params.held_as({name: np.zeros_like(x) for name, x in params.items()})
    new, _, _, norm = adamw(*initial(ones)[:3], none, Scalars(0.1, 0.1, 0.05), recipe=Recipe(steps=1))
    values = np.concatenate([x.ravel() for x in new.values()])
    assert (norm, values.size) == (0.0, 1976)
    assert np.sum(np.isclose(values, 0.99, rtol=1e-15)) == 1752
    assert np.sum(values == 1.0) == 224


def test_the_updates_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    params = tinyxp.init(GPT2, xp=torch)
    theirs = {name: torch.nn.Parameter(x.clone()) for name, x in params.items()}
    groups = [
        {"params": [x for x in theirs.values() if x.ndim > 1], "weight_decay": 0.1},
        {"params": [x for x in theirs.values() if x.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.1, betas=(0.9, 0.95), eps=1e-8)
    recipe, state = Recipe(steps=9, peak=0.1, warmup=0, floor=1.0), initial(params)
    torch.manual_seed(0)
    for t in range(1, 6):
        gradients = {name: torch.randn_like(x) for name, x in params.items()}
        for name, x in theirs.items():
            x.grad = gradients[name].clone()
        expected = torch.nn.utils.clip_grad_norm_(theirs.values(), 1.0)
        optimizer.step()
        now = Scalars(0.1, 1 - 0.9**t, 1 - 0.95**t)
        *new, norm = adamw(*state[:3], params.held_as(gradients), now, recipe=recipe)
        state = type(state)(*new, t)
        assert float(norm) == pytest.approx(float(expected), rel=1e-6)
    for name, x in state.params.items():
        assert torch.allclose(x, theirs[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
@pytest.mark.parametrize("more", [{}, {"dropout": 0.2, "micro_batch": 3}], ids=["plain", "dropout"])
def test_torch_and_jax_take_the_same_steps(config: tinyxp.Config, more: dict[str, Any]) -> None:
    recipe = Recipe(steps=12, batch=5, warmup=4, **more)
    ours, theirs = (trained(config, library, recipe) for library in ("torch", "jax"))
    assert [r.loss for r in ours[1:]] == pytest.approx([r.loss for r in theirs[1:]], rel=2e-5)
    assert ours[-1].validation == pytest.approx(theirs[-1].validation, rel=2e-5)
    assert ours[-1].loss != ours[1].loss
    expected = host(theirs[-1].params)
    for name, x in host(ours[-1].params).items():
        if not name.endswith("attn.k.bias"):  # whose gradient is 0 but for rounding, which Adam scales up
            assert np.allclose(x, expected[name], rtol=1e-3, atol=2e-5), name


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_run_that_goes_on_is_the_unbroken_one_bit_for_bit(library: str) -> None:
    recipe = Recipe(steps=8, batch=4, warmup=2, dropout=0.1, evaluate_every=3)
    whole = trained(GPT2, library, recipe)
    rest = list(fit(whole[5].state, TRAIN, HELD_OUT, recipe))
    assert [r.step for r in rest] == [6, 7, 8]
    assert [r[:5] for r in rest] == [r[:5] for r in whole[6:]]
    assert all(np.array_equal(x, host(whole[-1].params)[name]) for name, x in host(rest[-1].params).items())
    assert [r.step for r in whole if r.validation is not None] == [0, 3, 6, 8]


def test_an_epoch_sees_each_window_once_and_the_next_in_another_order() -> None:
    recipe = Recipe(steps=9, batch=4)
    order = np.concatenate([batch_rows(recipe, step, 10) for step in range(5)])
    assert sorted(order[:10]) == sorted(order[10:]) == list(range(10))
    assert order[:10].tolist() != order[10:].tolist()
    assert len(batch_rows(recipe, 0, 3)) == 4


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_gradients_are_the_same_for_any_split_of_unequal_micro_batches(library: str) -> None:
    targets = TRAIN.targets[:4].copy()
    targets[0, 3:], targets[1, :], targets[3, 1:] = -100, -100, -100
    batch = Windows(TRAIN.ids[:4], targets)
    params = tinyxp.init(LLAMA, xp=namespace(library))
    backend = params.backend
    expected = float(tinyxp.loss(params, *batch))
    found = []
    for size in (4, 3, 2, 1):
        recipe = Recipe(steps=1, batch=4, micro_batch=size)
        f = compiled(
            backend,
            backend.value_and_grad(
                lambda *args, r=recipe: objective(*args, kernels=training_kernels(backend, None), recipe=r)
            ),
        )
        loss, gradients = accumulated(params, batch, 0, recipe, f)
        assert float(loss) == pytest.approx(expected, rel=1e-6)
        found.append(host(gradients))
    for other in found[1:]:
        for name, x in found[0].items():
            assert np.allclose(other[name], x, rtol=1e-4, atol=1e-7), name


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_evaluation_does_not_depend_on_how_many_windows_go_together(library: str) -> None:
    params = tinyxp.init(LLAMA, xp=namespace(library), seed=3)
    whole = float(tinyxp.loss(params, *HELD_OUT))
    for batch in (1, 4, len(HELD_OUT.ids), 99):
        assert evaluate(params, HELD_OUT, batch=batch) == pytest.approx(whole, rel=1e-6)
    nothing = HELD_OUT._replace(targets=np.full_like(HELD_OUT.ids, -100))
    with pytest.raises(ValueError, match="no target that counts"):
        evaluate(params, nothing)


def test_bfloat16_computes_beside_parameters_in_float32() -> None:
    wide = trained(LLAMA, "torch", Recipe(steps=6, batch=8, warmup=0))
    narrow = trained(LLAMA, "torch", Recipe(steps=6, batch=8, warmup=0, dtype="bfloat16"))
    assert str(narrow[-1].params.dtype) == "torch.float32"
    assert narrow[-1].loss != wide[-1].loss
    assert narrow[-1].loss == pytest.approx(wide[-1].loss, rel=0.01)


def test_dropout_drops_in_training_alone() -> None:
    params = tinyxp.init(LLAMA, xp=namespace("torch"))
    plain = list(fit(params, TRAIN, HELD_OUT, Recipe(steps=1, batch=8)))
    dropped = list(fit(params, TRAIN, HELD_OUT, Recipe(steps=1, batch=8, dropout=0.5)))
    assert (
        dropped[0].validation == plain[0].validation
    )  # before the first update nothing differs but training
    assert dropped[1].loss != plain[1].loss


@pytest.mark.parametrize(
    "windows, message",
    [
        (Windows(np.array([[1, 11]]), np.array([[1, 2]])), "train has the id 11; the vocabulary size is 11"),
        (Windows(np.array([[1, 2]]), np.array([[1, -1]])), "train has the target -1"),
        (Windows(np.zeros((0, 4), int), np.zeros((0, 4), int)), "train has ids of shape"),
        (Windows(np.zeros((1, 17), int), np.zeros((1, 17), int)), "windows of 17 tokens; max_seq_len is 16"),
        (Windows(np.zeros((1, 2)), np.zeros((1, 2))), "ids of dtype float64"),
    ],
)
def test_bad_windows_are_refused_at_the_call(windows: Windows, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(tinyxp.init(GPT2, xp=namespace("torch")), windows, None, Recipe(steps=1))


def test_numpy_says_what_to_install_and_narrow_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no gradients; .*pip install 'tinyxp\[torch\]'"):
        fit(tinyxp.init(LLAMA), TRAIN, None, Recipe(steps=1))
    with pytest.raises(ValueError, match="params are float16"):
        fit(tinyxp.init(LLAMA, xp=namespace("torch"), dtype="float16"), TRAIN, None, Recipe(steps=1))


def test_a_loss_that_is_not_finite_ends_the_run_and_names_the_step() -> None:
    params = tinyxp.init(LLAMA, xp=namespace("torch"))
    params = params.held_as({**params, "final_norm.weight": params["final_norm.weight"] * math.nan})
    reports = fit(params, TRAIN, None, Recipe(steps=2))
    next(reports)
    with pytest.raises(ValueError, match="the loss at step 0 is nan"):
        next(reports)
