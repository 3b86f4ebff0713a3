"""Parity with Hugging Face's transformers, judged by the float64 referee: this forward on NumPy in float64.

A float32 result is right where it is no farther from the referee than three times transformers' own float32.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import tinyxp
from tests.reference import distance, drawn, float64_on, host, is_gpt2, libraries, their_model
from tinyxp import Config, Params
from tinyxp.config import GPT2

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

GPT2_BASE = Config(**GPT2, vocab_size=61, d_model=32, n_layers=3, n_heads=4, n_kv_heads=4, d_ff=128)
LLAMA_BASE = Config(vocab_size=61, n_layers=3)
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
CONFIGS = {
    "gpt2": GPT2_BASE,
    "gpt2-untied-erf": replace(GPT2_BASE, tie_embeddings=False, mlp="gelu"),
    "gpt2-narrow-mlp": replace(GPT2_BASE, d_ff=40, norm_eps=1e-3),
    "llama-gqa": LLAMA_BASE,
    "llama-mqa-tied": replace(LLAMA_BASE, n_kv_heads=1, tie_embeddings=True),
    "llama-mha-eps": replace(LLAMA_BASE, n_kv_heads=4, norm_eps=1e-6),
    "llama-biases": replace(LLAMA_BASE, attn_bias=True, attn_out_bias=True, mlp_bias=True),
    "qwen2": replace(LLAMA_BASE, attn_bias=True, rope_theta=1e6, norm_eps=1e-6, tie_embeddings=True),
    "llama-wide-heads": replace(LLAMA_BASE, head_dim=20),
    "llama-llama3": replace(LLAMA_BASE, rope_scaling=LLAMA3, rope_theta=500.0),
    "llama-linear": replace(LLAMA_BASE, rope_scaling={"rope_type": "linear", "factor": 4.0}),
}
"""Both families, every option; some of the frequencies fall into each of LLAMA3's three cases."""


def independent_frequencies(config: Config) -> np.ndarray:
    """Inverse frequencies in float64, from the papers' formulas."""
    hd = config.head_dim
    frequencies = 1.0 / config.rope_theta ** (np.arange(0, hd, 2) / hd)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.rope_type == "linear":
        return frequencies / scaling.factor
    wavelengths = 2.0 * np.pi / frequencies
    context = scaling.original_max_seq_len
    smooth = (context / wavelengths - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended = (1.0 - smooth) * frequencies / scaling.factor + smooth * frequencies
    is_long = wavelengths > context / scaling.low_freq_factor
    is_short = wavelengths < context / scaling.high_freq_factor
    return np.where(is_long, frequencies / scaling.factor, np.where(is_short, frequencies, blended))


class Float64Rotary(torch.nn.Module):
    """transformers computes these tables in float32 whatever the model's dtype; here they are float64."""

    def __init__(self, config: Config, inverse_frequencies: Any) -> None:
        super().__init__()
        self.frequencies = torch.tensor(independent_frequencies(config))
        np.testing.assert_allclose(self.frequencies.numpy(), inverse_frequencies.numpy(), rtol=1e-6)

    def forward(self, x: Any, position_ids: Any) -> tuple[Any, Any]:
        angles = position_ids[:, :, None] * self.frequencies
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos(), angles.sin()


class Float64RMSNorm(torch.nn.Module):
    """transformers normalises in float32 whatever the model's dtype; torch's own function does not."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight, norm.variance_epsilon

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


def widen_theirs(model: Any, config: Config) -> None:
    """Makes the Llama family of transformers compute in float64 throughout."""
    model.set_attn_implementation("sdpa")  # the eager one takes its softmax in float32
    model.model.rotary_emb = Float64Rotary(config, model.model.rotary_emb.inv_freq)
    for name, module in list(model.named_modules()):
        if hasattr(module, "variance_epsilon"):
            model.set_submodule(name, Float64RMSNorm(module))


def run_theirs(params: Params, ids: np.ndarray, dtype: str = "float32") -> dict[str, np.ndarray]:
    """The hidden states after every block and the logits of transformers, under our names."""
    model = their_model(params, dtype)
    if dtype == "float64" and not is_gpt2(params.config):
        widen_theirs(model, params.config)
    return collect_theirs(model, params.config, ids)


def collect_theirs(model: Any, config: Config, ids: np.ndarray) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    layers = model.transformer.h if is_gpt2(config) else model.model.layers
    hooks = []
    for i, layer in enumerate(layers):

        def keep(module: Any, inputs: Any, output: Any, name: str = f"blocks.{i}.residual") -> None:
            found[name] = host((output if torch.is_tensor(output) else output[0]).clone())

        hooks.append(layer.register_forward_hook(keep))
    with torch.no_grad():
        found["logits"] = host(model(torch.tensor(ids), use_cache=False).logits)
    for hook in hooks:
        hook.remove()
    return found


def run_ours(params: Params, ids: np.ndarray, names: Any) -> dict[str, np.ndarray]:
    found = tinyxp.trace(params, ids)
    return {name: host(found[name]) for name in names}


def some_ids(config: Config) -> np.ndarray:
    return np.random.default_rng(3).integers(0, config.vocab_size, (2, 12))


class Case(NamedTuple):
    params: Params  # float32
    ids: np.ndarray
    theirs: dict[str, np.ndarray]  # of transformers in float32
    wide: dict[str, np.ndarray]  # of transformers in float64
    referee: dict[str, np.ndarray]


@pytest.fixture(scope="module", params=[0.02, 0.2, 0.5], ids="std{}".format)
def std(request: pytest.FixtureRequest) -> float:
    return request.param


@pytest.fixture(scope="module", params=CONFIGS)
def case(request: pytest.FixtureRequest, std: float) -> Case:
    params = drawn(CONFIGS[request.param], std)
    ids = some_ids(params.config)
    theirs, wide = run_theirs(params, ids), run_theirs(params, ids, "float64")
    referee = run_ours(params.to(dtype="float64"), ids, theirs)
    return Case(params, ids, theirs, wide, referee)


@pytest.mark.parametrize("library", libraries("numpy", "torch", "jax"))
def test_float64_is_transformers_in_float64(case: Case, library: str) -> None:
    """On NumPy this is the referee itself."""
    backend = tinyxp.backend(library)
    with float64_on(backend):
        ours = run_ours(case.params.to(backend.xp, dtype="float64"), case.ids, case.wide)
    for name, x in case.wide.items():
        assert ours[name].dtype == np.float64
        # Some hundred roundings of 1.1e-16, each of which grows with the hidden state.
        assert distance(ours[name], x) <= 1e-13 * max(1.0, np.max(np.abs(x))), name


@pytest.mark.parametrize("library", libraries("numpy", "torch", "jax"))
def test_float32_is_as_right_as_transformers(case: Case, library: str) -> None:
    ours = run_ours(case.params.to(tinyxp.backend(library).xp), case.ids, case.referee)
    for name, truth in case.referee.items():
        cost = distance(case.theirs[name], truth)
        assert 0.0 < cost < math.inf
        assert distance(ours[name], truth) <= 3.0 * cost, name
