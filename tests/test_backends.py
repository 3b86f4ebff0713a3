"""What each library brings: jit, gradients, vmap, devices, kernels; and the libraries beyond our four."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp import Config, Params, extend, forward, generate, init, loss, new_cache, ops

from .reference import GPT2_CONFIG, IDS, LLAMA_CONFIG, array, distance, drawn, filled, float64_on, host

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

CONFIGS = {"gpt2": GPT2_CONFIG, "llama": LLAMA_CONFIG}
TARGETS = [[1, 4, 1, 5, -100]]
MASK = [[False, True, True, True, True]]


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> Config:
    return CONFIGS[request.param]


def numeric_gradient(f: Callable[[Params], Any], params: Params, name: str, index: tuple[int, ...]) -> float:
    """The central difference in float64 on NumPy."""

    def at(step: float) -> float:
        x = params[name].copy()
        x[index] += step
        return float(f(Params({**params, name: x}, params.config)))

    return (at(1e-6) - at(-1e-6)) / 2e-6


def check_gradient(grads: Params, config: Config, tolerance: float) -> None:
    """A gradient is a Params; it is compared with central differences at two numbers of each parameter."""
    assert isinstance(grads, Params)
    assert grads.config == config
    rng = np.random.default_rng(0)
    for name, x in filled(config).items():
        for _ in range(2):
            index = tuple(int(rng.integers(n)) for n in x.shape)
            numeric = numeric_gradient(
                lambda p: loss(p, IDS, TARGETS, mask=MASK), filled(config), name, index
            )
            assert abs(float(host(grads[name])[index]) - numeric) <= tolerance, (name, index)


# JAX


def test_jax_jit(config: Config) -> None:
    expected = forward(filled(config), IDS)
    there = filled(config).to(jax.numpy, dtype="float32")
    ids = np.asarray(IDS)
    for params in (there, filled(config).to(dtype="float32")):  # leaves of NumPy are taken too
        logits = jax.jit(forward)(params, ids)
        assert isinstance(logits, jax.Array)
        assert distance(logits, expected) <= 1e-5


def test_jax_jit_with_xp_bound_and_everything_traced() -> None:
    params = filled(LLAMA_CONFIG).to(jax.numpy, dtype="float32")

    @jax.jit
    def run(params: Params, ids: Any, positions: Any, mask: Any) -> Any:
        return forward(params, ids, positions=positions, mask=mask, xp=jax.numpy)

    positions = np.asarray([[0, 0, 1, 2, 5]])
    found = run(params, np.asarray(IDS), positions, np.asarray(MASK))
    expected = forward(filled(LLAMA_CONFIG), IDS, positions=positions, mask=MASK)
    assert distance(np.asarray(found)[:, 1:], expected[:, 1:]) <= 1e-5


def test_jax_grad(config: Config) -> None:
    params = filled(config).to(jax.numpy, dtype="float32")
    value, grads = jax.jit(jax.value_and_grad(loss))(
        params, np.asarray(IDS), np.asarray(TARGETS), mask=np.asarray(MASK)
    )
    assert float(value) == pytest.approx(float(loss(filled(config), IDS, TARGETS, mask=MASK)), abs=2e-6)
    check_gradient(grads, config, 1e-5)


def test_jax_vmap() -> None:
    params = filled(LLAMA_CONFIG).to(jax.numpy, dtype="float32")
    ids = np.asarray([[IDS[0]], [[9, 2, 6, 5, 3]]])
    found = jax.jit(jax.vmap(forward, in_axes=(None, 0)))(params, ids)
    for one, row in zip(np.asarray(found), ids, strict=True):
        assert distance(one, forward(filled(LLAMA_CONFIG), row)) <= 1e-5


def test_jax_vmap_over_models() -> None:
    """Two models of one config, stacked leaf by leaf."""
    models = [filled(LLAMA_CONFIG).to(jax.numpy, dtype="float32"), drawn(LLAMA_CONFIG).to(jax.numpy)]
    stacked = jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), *models)
    found = jax.jit(jax.vmap(forward, in_axes=(0, None)))(stacked, np.asarray(IDS))
    for one, params in zip(np.asarray(found), models, strict=True):
        assert distance(one, forward(params.to(np), IDS)) <= 1e-5


def test_jax_extend_under_jit(config: Config) -> None:
    params = filled(config).to(jax.numpy, dtype="float32")
    step = jax.jit(extend)
    logits, cache = step(
        params, np.asarray([IDS[0][:3]]), new_cache(params, 1, 8), mask=np.asarray([MASK[0][:3]])
    )
    more, _ = step(params, np.asarray([IDS[0][3:]]), cache)
    expected = forward(filled(config), IDS, mask=MASK)
    assert distance(np.concatenate([logits, more], axis=1)[:, 1:], expected[:, 1:]) <= 1e-5


def test_jax_eval_shape() -> None:
    params = drawn(LLAMA_CONFIG).to(jax.numpy)
    spec = jax.eval_shape(forward, params, jax.ShapeDtypeStruct((2, 7), jax.numpy.int32))
    assert spec.shape == (2, 7, 11)
    assert spec.dtype == jax.numpy.float32


# PyTorch


def test_torch_func_grad(config: Config) -> None:
    params = filled(config).to(torch)
    grads = torch.func.grad(loss)(params, IDS, TARGETS, mask=MASK)
    check_gradient(grads, config, 1e-7)


def test_torch_autograd(config: Config) -> None:
    leaves = {name: torch.tensor(x, requires_grad=True) for name, x in filled(config).items()}
    loss(Params(leaves, config), IDS, TARGETS, mask=MASK).backward()
    functional = torch.func.grad(loss)(filled(config).to(torch), IDS, TARGETS, mask=MASK)
    for name, x in leaves.items():
        assert distance(x.grad, functional[name]) <= 1e-12


def test_torch_parameters_of_a_module() -> None:
    """torch.nn.Parameter is as good as a tensor."""
    leaves = {name: torch.nn.Parameter(torch.tensor(x)) for name, x in filled(LLAMA_CONFIG).items()}
    params = Params(leaves, LLAMA_CONFIG)
    assert distance(forward(params, IDS), forward(filled(LLAMA_CONFIG), IDS)) <= 1e-12
    assert host(generate(params, IDS, 6)).tolist() == [[2, 8, 4, 2, 8, 6]]


def test_torch_vmap() -> None:
    params = filled(LLAMA_CONFIG).to(torch)
    ids = torch.tensor([[IDS[0]], [[9, 2, 6, 5, 3]]])
    found = torch.func.vmap(forward, in_dims=(None, 0))(params, ids)
    for one, row in zip(found, ids, strict=True):
        assert distance(one, forward(filled(LLAMA_CONFIG), row.tolist())) <= 1e-12


def test_torch_per_example_gradients() -> None:
    params = filled(LLAMA_CONFIG).to(torch)
    ids = torch.tensor([[IDS[0]], [[9, 2, 6, 5, 3]]])
    grads = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(params, ids, ids)
    for r, row in enumerate(ids):
        alone = torch.func.grad(loss)(params, row, row)
        assert distance(grads["embed.weight"][r], alone["embed.weight"]) <= 1e-12


def compiled(f: Callable[..., Any], backend: str = "aot_eager") -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(f, fullgraph=True, backend=backend)


def test_torch_compile(config: Config) -> None:
    params = filled(config).to(torch)
    run = compiled(forward)
    ids, mask = torch.tensor(IDS), torch.tensor(MASK)
    assert distance(run(params, ids), forward(filled(config), IDS)) <= 1e-12
    expected = forward(filled(config), IDS, mask=MASK)
    assert distance(run(params, ids, mask=mask)[:, 1:], expected[:, 1:]) <= 1e-12


def test_torch_compile_of_a_gradient() -> None:
    params = filled(LLAMA_CONFIG).to(torch)
    ids, targets = torch.tensor(IDS), torch.tensor(TARGETS)
    grads = compiled(torch.func.grad(loss))(params, ids, targets)
    expected = torch.func.grad(loss)(params, ids, targets)
    assert all(distance(grads[name], expected[name]) <= 1e-12 for name in params)


def test_torch_compile_of_extend() -> None:
    params = filled(LLAMA_CONFIG).to(torch)
    logits, cache = compiled(extend)(params, torch.tensor(IDS), new_cache(params, 1, 8))
    assert distance(logits, forward(filled(LLAMA_CONFIG), IDS)) <= 1e-12
    assert int(cache.used) == 5


def test_torch_inductor() -> None:
    params = filled(LLAMA_CONFIG).to(torch, dtype="float32")
    logits = compiled(forward, backend="inductor")(params, torch.tensor(IDS))
    assert distance(logits, forward(filled(LLAMA_CONFIG), IDS)) <= 1e-5


def test_torch_meta(config: Config) -> None:
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


def test_torch_on_another_default_device(config: Config) -> None:
    """A default device that is not the parameters': creation must follow the parameters."""
    params = filled(config).to(torch)
    with torch.device("meta"):
        logits = forward(params, torch.tensor(IDS, device="cpu"), mask=torch.tensor(MASK, device="cpu"))
        step, _ = extend(params, torch.tensor(IDS, device="cpu"), new_cache(params, 1, 8))
    assert distance(step, forward(filled(config), IDS)) <= 1e-12
    assert logits.device.type == "cpu"


def test_torch_with_another_default_dtype() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        params = filled(LLAMA_CONFIG).to(torch, dtype="float32")
        assert {x.dtype for x in tinyxp.trace(params, IDS).values()} == {torch.float32}
    finally:
        torch.set_default_dtype(torch.float32)


def test_torch_generation_leaves_no_graph() -> None:
    leaves = {name: torch.tensor(x, requires_grad=True) for name, x in filled(LLAMA_CONFIG).items()}
    ids = generate(Params(leaves, LLAMA_CONFIG), IDS, 3)
    assert not ids.requires_grad
    forward(Params(leaves, LLAMA_CONFIG), ids)  # not an inference tensor that autograd refuses


# array_api_strict


def test_strict_has_its_optional_features_off() -> None:
    tinyxp.backend("strict")
    flags = pytest.importorskip("array_api_strict").get_array_api_strict_flags()
    assert flags["api_version"] == "2024.12"
    assert flags["boolean_indexing"] is False
    assert flags["data_dependent_shapes"] is False
    assert tuple(flags["enabled_extensions"]) == ()


def test_strict_on_another_device(config: Config) -> None:
    xp = tinyxp.backend("strict").xp
    params = filled(config).to(xp, device="device1")
    device = xp.Device("device1")
    points = tinyxp.trace(params, IDS, mask=MASK)
    assert {x.device for x in points.values()} == {device}
    expected = forward(filled(config), IDS, mask=MASK)
    assert distance(host(points["logits"])[:, 1:], expected[:, 1:]) <= 1e-12
    assert loss(params, IDS, TARGETS, mask=MASK, positions=[[0, 0, 1, 2, 3]]).device == device
    logits, cache = extend(params, IDS, new_cache(params, 1, 8), mask=MASK, last=True)
    assert {x.device for x in (logits, *cache.keys, *cache.values, cache.real, cache.used)} == {device}
    ids = generate(params, IDS, 6, temperature=1.0, seed=0)
    assert ids.device == device
    assert np.array_equal(host(ids), generate(filled(config), IDS, 6, temperature=1.0, seed=0))


def test_sampling_on_another_device() -> None:
    xp = tinyxp.backend("strict").xp
    logits = tinyxp.backend("strict").from_numpy(np.array([[1.5, 0.5, 0.0, -1.0]]), device="device1")
    from tinyxp.sampling import draw, greedy, probabilities

    p = probabilities(logits, top_k=3, top_p=0.9, xp=xp)
    u = tinyxp.backend("strict").from_numpy(np.array([0.5]), device="device1")
    assert {x.device for x in (p, greedy(logits, xp=xp), draw(p, u, xp=xp))} == {xp.Device("device1")}


# Kernels


def kernel_inputs(name: str, rng: np.random.Generator) -> list[tuple[list[np.ndarray], dict[str, Any]]]:
    """Arguments for the functions of ``ops``, the awkward ones too."""
    x, w, b = rng.normal(size=(2, 5, 8)), rng.normal(size=(12, 8)), rng.normal(size=12)
    angles = rng.normal(size=(1, 1, 5, 4))
    q, k, v = (rng.normal(size=(2, heads, 5, 8)) for heads in (4, 2, 2))
    causal = np.tril(np.ones((5, 5), dtype=bool))
    padded = causal & (
        np.arange(5) >= np.array([[[[3]]], [[[0]]]])
    )  # the first row's first three see nothing
    return {
        "linear": [([x, w], {}), ([x, w, b], {})],
        "layer_norm": [([x, b[:8], b[4:]], {"eps": 1e-5}), ([0.0 * x, b[:8], b[4:]], {"eps": 1e-5})],
        "rms_norm": [([x, b[:8]], {"eps": 1e-5}), ([0.0 * x, b[:8]], {"eps": 1e-5})],
        "silu": [([100.0 * x], {})],
        "gelu": [([x], {})],
        "gelu_tanh": [([x], {})],
        "rotary": [([q, np.cos(angles), np.sin(angles)], {})],
        "attention": [
            ([q, k, v, causal[None, None]], {}),
            ([q, k, v, padded], {}),
            ([q, q, q, padded], {}),
            ([q, k[:, :1], v[:, :1], padded], {}),
        ],
        "write_cache": [([k, v[:, :, :2], np.asarray(2), np.arange(5)], {})],
    }[name]


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_kernels_obey_the_laws_of_the_functions_they_replace(library: str) -> None:
    backend = tinyxp.backend(library)
    assert set(backend.kernels) <= set(ops.Kernels._fields)
    for name, kernel in backend.kernels.items():
        for arguments, settings in kernel_inputs(name, np.random.default_rng(0)):
            there = [
                array(backend, x, "float32") if x.dtype == float else array(backend, x) for x in arguments
            ]
            expected = getattr(ops, name)(*arguments, **settings, xp=np)
            found = kernel(*there, **settings, xp=backend.xp)
            assert distance(found, expected) <= 1e-5, name


@pytest.mark.parametrize("name", ["linear", "layer_norm", "rms_norm", "attention"])
def test_kernels_keep_half_precision(name: str) -> None:
    backend = tinyxp.backend("torch")
    if name not in backend.kernels:
        pytest.skip(f"torch brings no {name}")
    for dtype in ("bfloat16", "float16"):
        for arguments, settings in kernel_inputs(name, np.random.default_rng(0)):
            first = array(backend, arguments[0], dtype)
            rest = [
                array(backend, x, "float32") if x.dtype == float else array(backend, x) for x in arguments[1:]
            ]
            if name == "attention":
                rest = [x if x.dtype == torch.bool else x.to(first.dtype) for x in rest]
            found = backend.kernels[name](first, *rest, **settings, xp=backend.xp)
            assert found.dtype == first.dtype
            assert distance(found, getattr(ops, name)(*arguments, **settings, xp=np)) <= 0.15


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_decoding_with_kernels_is_forward(library: str, config: Config) -> None:
    """The decoder that generation drives gives the logits of forward, padded rows too."""
    params = filled(config).to(tinyxp.backend(library).xp, dtype="float32")
    ids = np.array([[8, 8, *IDS[0]], [9, 2, 6, 5, 3, 5, 8]])
    mask = np.array([[False] * 2 + [True] * 5, [True] * 7])
    decoder = params.backend.decoder(params, 2, 9)
    found = [decoder(ids, mask), decoder(np.array([[4], [1]])), decoder(np.array([[0], [10]]))]
    rows = [[*IDS[0], 4, 0], [*ids[1].tolist(), 1, 10]]
    for back, logits in zip((2, 1, 0), found, strict=True):
        for r, row in enumerate(rows):
            expected = forward(filled(config), [row[: len(row) - back]])[0, -1]
            assert distance(np.asarray(logits)[r], expected) <= 1e-5


# Jit and gradients through the adapter


def test_the_adapter_s_jit(backend: tinyxp.Backend) -> None:
    if backend.name == "torch":
        pytest.skip("torch.compile is tested above")
    params = filled(LLAMA_CONFIG).to(backend.xp, dtype="float32")
    ids = array(backend, np.asarray(IDS))
    assert distance(backend.jit(forward)(params, ids), forward(filled(LLAMA_CONFIG), IDS)) <= 1e-5


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_the_adapter_s_value_and_grad(library: str) -> None:
    backend = tinyxp.backend(library)
    params = filled(LLAMA_CONFIG).to(backend.xp, dtype="float32")
    value, grads = backend.value_and_grad(loss)(params, IDS, TARGETS, mask=MASK)
    assert float(host(value)) == pytest.approx(
        float(loss(filled(LLAMA_CONFIG), IDS, TARGETS, mask=MASK)), abs=2e-6
    )
    check_gradient(grads, LLAMA_CONFIG, 1e-5)


def test_synchronize_returns_what_it_waits_for(backend: tinyxp.Backend) -> None:
    x = array(backend, [1.0, 2.0], "float32")
    assert host(backend.synchronize(x)).tolist() == [1.0, 2.0]


def test_arrays_come_and_go(backend: tinyxp.Backend) -> None:
    with float64_on(backend):
        for dtype in backend.dtypes():
            x = backend.from_numpy(np.array([[1.0, -2.5], [0.0, 1024.0]]), dtype=dtype)
            assert str(x.dtype).endswith(dtype)
            assert backend.is_array(x)
            assert host(x).tolist() == [[1.0, -2.5], [0.0, 1024.0]]
        assert host(backend.from_numpy(np.array([True, False]))).tolist() == [True, False]


# The other libraries


# mlx has no float64 on every device, and onnxruntime's cosine is float32.
OTHERS = {"mlx": "float32", "dask": "float64", "ndonnx": "float32", "mparray": "float64"}
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}


@pytest.fixture(params=OTHERS)
def other(request: pytest.FixtureRequest) -> tinyxp.Backend:
    if tinyxp.available_backends()[request.param] is None:
        pytest.skip(f"{request.param} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, at import
        return tinyxp.backend(request.param)


def one_block(config: Config) -> Params:
    shallow = replace(config, n_layers=1)
    return Params({name: x for name, x in filled(config).items() if "blocks.1." not in name}, shallow)


def test_forward_on_other_libraries(other: tinyxp.Backend, config: Config) -> None:
    params, dtype = one_block(config), OTHERS[other.name]
    there = params.to(other.xp, dtype=dtype)
    logits = forward(there, [[3, 1, 4]])
    assert other.is_array(logits)
    assert distance(logits, forward(params, [[3, 1, 4]])) <= TOLERANCE[dtype]
    found = forward(there, [[3, 1, 4]], mask=[[False, True, True]])
    expected = forward(params, [[1, 4]])
    assert distance(host(found)[:, 1:], expected) <= TOLERANCE[dtype]


def test_loss_on_other_libraries(other: tinyxp.Backend) -> None:
    params = one_block(LLAMA_CONFIG)
    value = loss(params.to(other.xp, dtype=OTHERS[other.name]), [[3, 1, 4]], [[1, 4, -100]])
    assert float(host(value)) == pytest.approx(float(loss(params, [[3, 1, 4]], [[1, 4, -100]])), abs=2e-6)


def test_generation_on_other_libraries(other: tinyxp.Backend) -> None:
    params = one_block(LLAMA_CONFIG)
    ids = generate(params.to(other.xp, dtype=OTHERS[other.name]), [[3, 1, 4]], 3)
    assert host(ids).tolist() == generate(params, [[3, 1, 4]], 3).tolist()
