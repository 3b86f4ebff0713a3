"""PyTorch: autograd, torch.func, torch.compile and devices take the model as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import tinyxp
from tests.reference import IDS, LLAMA_CONFIG, distance, drawn, filled, host
from tinyxp import Config, Params, extend, forward, generate, init, loss, new_cache

from .gradients import MASK, TARGETS, check_gradient

torch = pytest.importorskip("torch")


def test_func_grad(config: Config) -> None:
    params = filled(config).to(torch)
    grads = torch.func.grad(loss)(params, IDS, TARGETS, mask=MASK)
    check_gradient(grads, filled(config), 1e-7)


def test_autograd(config: Config) -> None:
    leaves = {name: torch.tensor(x, requires_grad=True) for name, x in filled(config).items()}
    loss(Params(leaves, config), IDS, TARGETS, mask=MASK).backward()
    functional = torch.func.grad(loss)(filled(config).to(torch), IDS, TARGETS, mask=MASK)
    for name, x in leaves.items():
        assert distance(x.grad, functional[name]) <= 1e-12


def test_parameters_of_a_module() -> None:
    """torch.nn.Parameter is as good as a tensor."""
    leaves = {name: torch.nn.Parameter(torch.tensor(x)) for name, x in filled(LLAMA_CONFIG).items()}
    params = Params(leaves, LLAMA_CONFIG)
    assert distance(forward(params, IDS), forward(filled(LLAMA_CONFIG), IDS)) <= 1e-12
    assert host(generate(params, IDS, 6)).tolist() == [[2, 8, 4, 2, 8, 6]]


def test_vmap() -> None:
    params = filled(LLAMA_CONFIG).to(torch)
    ids = torch.tensor([[IDS[0]], [[9, 2, 6, 5, 3]]])
    found = torch.func.vmap(forward, in_dims=(None, 0))(params, ids)
    for one, row in zip(found, ids, strict=True):
        assert distance(one, forward(filled(LLAMA_CONFIG), row.tolist())) <= 1e-12


def test_per_example_gradients() -> None:
    params = filled(LLAMA_CONFIG).to(torch)
    ids = torch.tensor([[IDS[0]], [[9, 2, 6, 5, 3]]])
    grads = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(params, ids, ids)
    for r, row in enumerate(ids):
        alone = torch.func.grad(loss)(params, row, row)
        assert distance(grads["embed.weight"][r], alone["embed.weight"]) <= 1e-12


def compiled(
    f: Callable[..., Any], backend: str = "aot_eager", *, dynamic: bool | None = None
) -> Callable[..., Any]:
    torch.compiler.reset()
    return torch.compile(f, fullgraph=True, backend=backend, dynamic=dynamic)


def test_compile(config: Config) -> None:
    params = filled(config).to(torch)
    run = compiled(forward)
    ids, mask = torch.tensor(IDS), torch.tensor(MASK)
    assert distance(run(params, ids), forward(filled(config), IDS)) <= 1e-12
    expected = forward(filled(config), IDS, mask=MASK)
    assert distance(run(params, ids, mask=mask)[:, 1:], expected[:, 1:]) <= 1e-12


def test_compile_of_a_gradient() -> None:
    params = filled(LLAMA_CONFIG).to(torch)
    ids, targets = torch.tensor(IDS), torch.tensor(TARGETS)
    grads = compiled(torch.func.grad(loss))(params, ids, targets)
    expected = torch.func.grad(loss)(params, ids, targets)
    assert all(distance(grads[name], expected[name]) <= 1e-12 for name in params)


def test_compile_of_extend() -> None:
    params = filled(LLAMA_CONFIG).to(torch)
    logits, cache = compiled(extend)(params, torch.tensor(IDS), new_cache(params, 1, 8))
    assert distance(logits, forward(filled(LLAMA_CONFIG), IDS)) <= 1e-12
    assert int(cache.used) == 5


@pytest.mark.parametrize("dynamic", [None, True])
def test_compile_for_a_second_vocabulary_and_length(dynamic: bool | None) -> None:
    run = compiled(forward, "eager", dynamic=dynamic)
    for config in (LLAMA_CONFIG, replace(LLAMA_CONFIG, vocab_size=7)):
        params = filled(config).to(torch)
        for ids in ([[3, 1, 4, 1, 5]], [[1, 2, 3], [4, 5, 6]]):
            assert distance(run(params, torch.tensor(ids)), forward(filled(config), ids)) <= 1e-12


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "uint32", "uint64"])
def test_ids_of_every_integer_dtype(dtype: str) -> None:
    params, ids = drawn(LLAMA_CONFIG).to(torch), torch.tensor(IDS).to(getattr(torch, dtype))
    assert torch.equal(loss(params, ids, ids), loss(params, IDS, IDS))


def test_meta(config: Config) -> None:
    params = init(config, xp=torch, device="meta")
    assert params["embed.weight"].device.type == "meta"
    ids = torch.zeros((2, 7), dtype=torch.int64, device="meta")
    logits = forward(params, ids)
    assert logits.device.type == "meta"
    assert logits.shape == (2, 7, 11)
    assert loss(params, ids, ids).shape == ()
    step, cache = extend(params, ids, new_cache(params, 2, 9), mask=ids == 0, positions=ids, last=True)
    assert step.shape == (2, 1, 11)
    assert cache.keys[0].device.type == "meta"
    # Lists are put where the parameters are.
    assert forward(params, IDS, mask=MASK).device.type == "meta"


def test_on_another_default_device(config: Config) -> None:
    """A default device that is not the parameters': creation must follow the parameters."""
    params = filled(config).to(torch)
    with torch.device("meta"):
        logits = forward(params, torch.tensor(IDS, device="cpu"), mask=torch.tensor(MASK, device="cpu"))
        step, _ = extend(params, torch.tensor(IDS, device="cpu"), new_cache(params, 1, 8))
    assert distance(step, forward(filled(config), IDS)) <= 1e-12
    assert logits.device.type == "cpu"


def test_with_another_default_dtype() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        params = filled(LLAMA_CONFIG).to(torch, dtype="float32")
        assert {x.dtype for x in tinyxp.trace(params, IDS).values()} == {torch.float32}
    finally:
        torch.set_default_dtype(torch.float32)


def test_generation_leaves_no_graph() -> None:
    leaves = {name: torch.tensor(x, requires_grad=True) for name, x in filled(LLAMA_CONFIG).items()}
    ids = generate(Params(leaves, LLAMA_CONFIG), IDS, 3)
    assert not ids.requires_grad
    forward(Params(leaves, LLAMA_CONFIG), ids)  # not an inference tensor that autograd refuses
