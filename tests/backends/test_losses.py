"""linear_cross_entropy of the backends: the value and the gradients of the pure one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import IDS, LLAMA_CONFIG, LLAMA_TIED_CONFIG, compiled, drawn, host, libraries
from tinyxp import ops

LIBRARIES = libraries("torch", "jax")
DTYPES = [("float64", 1e-12), ("float32", 2e-6), ("bfloat16", 1e-2), ("float16", 2e-3)]
"""With how large a share of the exact gradient's norm each may be off."""
N = 37


def kernel(library: str) -> Any:
    return tinyxp.backend(library).engine.kernels["linear_cross_entropy"]


def arguments(rows: int, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x (2, rows, 6), weight (37, 6), and targets (2, rows) of which about a third is -100."""
    rng = np.random.default_rng(rows)
    x, weight = spread * rng.normal(size=(2, rows, 6)), rng.normal(size=(N, 6))
    targets = rng.integers(0, N, (2, rows))
    targets[rng.random(targets.shape) < 0.3] = -100
    targets[1, -1] = N - 1
    return x, weight, targets


def computed(library: str, dtype: str, f: Any, given: Any, compute: str | None = None) -> list[np.ndarray]:
    """The loss and its gradients with respect to x and weight, of numbers as ``dtype`` holds them."""
    backend = tinyxp.backend(library)
    x, weight, targets = given
    with backend.float64():
        pair = [backend.astype(backend.from_numpy(a, dtype=dtype), compute or dtype) for a in (x, weight)]
        indices = backend.from_numpy(targets.astype(backend.index_dtype))
        value, gradients = differentiated(library, f)(tuple(pair), indices)
        for x, g in zip(pair, gradients, strict=True):
            assert g.dtype == x.dtype
        assert str(value.dtype).endswith("float64" if (compute or dtype) == "float64" else "float32")
        return [host(a).astype(np.float64) for a in (value, *gradients)]


@cache
def differentiated(library: str, f: Any) -> Any:
    """f's value and gradients as one function of (x, weight) and targets; each shape is compiled once."""
    backend = tinyxp.backend(library)

    def loss(pair: Any, targets: Any) -> Any:
        return f(pair[0], pair[1], targets, xp=backend.xp)

    return compiled(backend, backend.value_and_grad(loss))


@pytest.mark.parametrize("rows", [1, 32, 150, 257])
@pytest.mark.parametrize("library", LIBRARIES)
def test_value_and_gradients_are_those_of_the_pure_one(library: str, rows: int) -> None:
    """Of rows that fill a block, begin another, and are fewer than one, in every dtype."""
    for dtype, close in DTYPES if rows == 150 else DTYPES[:2]:
        given = arguments(rows)
        found = computed(library, dtype, kernel(library), given)
        exact = computed(library, dtype, ops.linear_cross_entropy, given, "float64")
        for ours, pure in zip(found, exact, strict=True):
            assert np.linalg.norm(ours - pure) <= close * np.linalg.norm(pure), dtype


@pytest.mark.parametrize("library", LIBRARIES)
def test_narrow_gradients_of_many_blocks_are_as_good_as_the_pure_ones(library: str) -> None:
    """A weight's gradient is summed over 64 blocks on torch; in bfloat16 that would be three times as bad."""
    given = arguments(2048)
    exact = computed(library, "bfloat16", ops.linear_cross_entropy, given, "float32")
    for f in (kernel(library), ops.linear_cross_entropy):
        found = computed(library, "bfloat16", f, given)
        for ours, best in zip(found, exact, strict=True):
            assert np.linalg.norm(ours - best) <= 5e-3 * np.linalg.norm(best)


@pytest.mark.parametrize("library", LIBRARIES)
def test_without_a_target_loss_and_gradients_are_zero(library: str) -> None:
    x, weight, targets = arguments(80)
    for dtype in ("float32", "bfloat16"):
        found = computed(library, dtype, kernel(library), (x, weight, np.full_like(targets, -100)))
        assert not any(a.any() for a in found)


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_without_a_target_get_no_gradient(library: str) -> None:
    given = arguments(80)
    _, dx, _ = computed(library, "float32", kernel(library), given)
    np.testing.assert_array_equal(dx.any(-1), given[2] != -100)


@pytest.mark.parametrize("library", LIBRARIES)
def test_small_losses_keep_their_digits_and_large_logits_do_not_overflow(library: str) -> None:
    """ln(1 + e^-16) is 1.1e-7, less than an epsilon beside logits of 16."""
    target = np.zeros((1, 1), dtype=np.int64)
    for size in (16.0, 14.0, 3.0):
        given = np.full((1, 1, 1), size), np.array([[1.0], [0.0]]), target
        loss, *_ = computed(library, "float32", kernel(library), given)
        pure, *_ = computed(library, "float32", ops.linear_cross_entropy, given)
        assert float(loss) == pytest.approx(float(pure), rel=1e-5)
        assert float(loss) == pytest.approx(np.log1p(np.exp(-size)), rel=0.1)
    given = np.full((1, 1, 1), 1e4), np.array([[1.0], [3.0]]), target
    loss, dx, dweight = computed(library, "float32", kernel(library), given)
    assert float(loss) == 2e4
    assert dx.item() == 2.0
    assert dweight.ravel().tolist() == [-1e4, 1e4]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("config", [LLAMA_CONFIG, LLAMA_TIED_CONFIG], ids=["untied", "tied"])
def test_gradients_of_a_models_loss_tied_and_untied(library: str, config: tinyxp.Config) -> None:
    """Of one block: the kernel replaces what follows the last."""
    backend, config = tinyxp.backend(library), replace(config, n_layers=1)
    ids, targets = np.asarray(IDS), np.asarray([[1, 4, -100, 5, 9]])
    with backend.float64():
        params = drawn(config).to(backend.xp, dtype="float64")
        ours, theirs = (
            compiled(backend, backend.value_and_grad(partial(tinyxp.loss, kernels=kernels)))(
                params, ids, targets
            )
            for kernels in ({"linear_cross_entropy": kernel(library)}, None)
        )
        assert float(host(ours[0])) == pytest.approx(float(host(theirs[0])), rel=1e-14)
        for name, x in theirs[1].items():
            np.testing.assert_allclose(host(ours[1][name]), host(x), rtol=0.0, atol=1e-14, err_msg=name)


# torch


def torchs(rows: int = 80, dtype: str = "float64") -> Any:
    torch = pytest.importorskip("torch")
    x, weight, targets = (torch.tensor(a) for a in arguments(rows))
    return torch, x.to(getattr(torch, dtype)), weight.to(getattr(torch, dtype)), targets


def test_torchs_autograd_scales_adds_and_leaves_out() -> None:
    torch, x, weight, targets = torchs()
    f = kernel("torch")
    pair = torch.func.grad(
        lambda pair: ops.linear_cross_entropy(*pair, targets, xp=tinyxp.backend("torch").xp)
    )((x, weight))
    x.requires_grad_(), weight.requires_grad_()
    for _ in range(2):
        (3.0 * f(x, weight, targets, xp=None)).backward()
    for found, expected in zip((x.grad, weight.grad), pair, strict=True):
        assert torch.allclose(found, 6.0 * expected, rtol=1e-12, atol=1e-15)
    frozen = weight.detach()
    (g,) = torch.autograd.grad(f(x, frozen, targets, xp=None), x)
    assert torch.allclose(g, pair[0], rtol=1e-12, atol=1e-15)
    # A weight in float32 beside activations in bfloat16 gets its gradient in float32.
    master = weight.detach().float().requires_grad_()
    f(x.detach().bfloat16(), master, targets, xp=None).backward()
    assert master.grad.dtype == torch.float32
    assert (master.grad - pair[1]).norm() < 0.01 * pair[1].norm()


def test_torch_computes_no_gradient_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    torch, x, weight, targets = torchs()
    tracked, plain, products = weight.clone().requires_grad_(), torch.mm, []

    def mm(*args: Any, **kwargs: Any) -> Any:
        products.append(args)
        return plain(*args, **kwargs)

    monkeypatch.setattr(torch, "mm", mm)
    expected = kernel("torch")(x, tracked, targets, xp=None).item()
    assert len(products) == 3  # one a block of 64 rows
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert float(kernel("torch")(x, tracked, targets, xp=None)) == expected
    assert float(kernel("torch")(x, weight, targets, xp=None)) == expected
    assert len(products) == 3
    with torch.no_grad():  # torch.func.grad has its own mind
        g = torch.func.grad(lambda w: kernel("torch")(x, w, targets, xp=None))(weight)
    assert g.any()


def test_torch_compiles_it_whole_with_its_gradients() -> None:
    torch, x, weight, targets = torchs(40)
    f, pure = kernel("torch"), ops.linear_cross_entropy
    xp = tinyxp.backend("torch").xp

    def loss(pair: Any) -> Any:
        return f(*pair, targets, xp=xp)

    value, expected = torch.func.grad_and_value(lambda pair: pure(*pair, targets, xp=xp))((x, weight))[::-1]
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert float(compiled((x, weight))) == pytest.approx(float(value), rel=1e-14)
    found = torch.compile(torch.func.grad(loss), fullgraph=True, backend="aot_eager")((x, weight))
    tracked = tuple(a.clone().requires_grad_() for a in (x, weight))
    compiled(tracked).backward()
    for ours, autograds, pure_one in zip(found, (a.grad for a in tracked), expected, strict=True):
        assert torch.allclose(ours, pure_one, rtol=1e-12, atol=1e-15)
        assert torch.allclose(autograds, pure_one, rtol=1e-12, atol=1e-15)


def test_torch_refuses_second_derivatives_and_does_not_give_zeros() -> None:
    torch, x, weight, targets = torchs(40)

    def loss(x: Any) -> Any:
        return kernel("torch")(x, weight, targets, xp=None)

    with pytest.raises(NotImplementedError, match="first derivatives alone"):
        torch.func.grad(lambda x: (torch.func.grad(loss)(x) ** 2).sum())(x)
    x.requires_grad_()
    (g,) = torch.autograd.grad(loss(x), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivatives alone"):
        (g**2).sum().backward()


def test_torch_takes_a_head_of_eight_bits() -> None:
    pytest.importorskip("torch")
    backend = tinyxp.backend("torch")
    params = backend.engine.quantize(drawn(LLAMA_CONFIG).to(backend.xp))
    pure = {"linear": backend.engine.kernels["linear"]}
    found, expected = (tinyxp.loss(params, IDS, IDS, kernels=k) for k in (backend.engine.kernels, pure))
    assert float(found) == pytest.approx(float(expected), rel=1e-6)


# JAX


def test_jax_compiles_it_and_maps_it_over_rows() -> None:
    jax = pytest.importorskip("jax")
    given = x, weight, targets = tuple(jax.numpy.asarray(a) for a in arguments(300))
    xp = tinyxp.backend("jax").xp

    def ours(x: Any, weight: Any, targets: Any = targets) -> Any:
        return kernel("jax")(x, weight, targets, xp=xp)

    def pure(x: Any, weight: Any, targets: Any = targets) -> Any:
        return ops.linear_cross_entropy(x, weight, targets, xp=xp)

    for f in (jax.jit(jax.grad(ours, (0, 1))), jax.grad(jax.jit(ours), (0, 1))):
        for found, expected in zip(f(x, weight), jax.jit(jax.grad(pure, (0, 1)))(x, weight), strict=True):
            np.testing.assert_allclose(found, expected, rtol=0.0, atol=2e-6 * np.abs(expected).max())
    rows = [
        jax.jit(jax.vmap(lambda x, t, f=f: f(x[None], weight, t[None])))(given[0], targets)
        for f in (ours, pure)
    ]
    np.testing.assert_allclose(*rows, rtol=1e-6)


def test_jax_has_second_derivatives_of_it() -> None:
    jax = pytest.importorskip("jax")
    x, weight, targets = tuple(jax.numpy.asarray(a) for a in arguments(40))
    xp = tinyxp.backend("jax").xp

    def bent(f: Any) -> Any:
        return jax.grad(lambda x: (jax.grad(lambda x: f(x, weight, targets, xp=xp))(x) ** 2).sum())

    found, expected = (np.asarray(jax.jit(bent(f))(x)) for f in (kernel("jax"), ops.linear_cross_entropy))
    assert np.abs(expected).max() > 1e-6
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-4 * np.abs(expected).max())
