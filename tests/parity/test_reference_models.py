"""The models without random numbers: their printed values on every backend, cached and uncached.

What wrong code costs on them: erf GELU 6.6e-5, eps 1e-6 1.4e-4 to 3.7e-4, GELU for SiLU 0.351, gate and up
swapped 0.246, interleaved q and k 0.168, an attention output matrix not transposed 1.472. The tolerances
here lie far below all of these.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import tinyxp
from tests.reference import (
    GPT2_CONFIG,
    IDS,
    LLAMA_CONFIG,
    LLAMA_TIED_CONFIG,
    compiled,
    filled,
    float64_on,
    host,
)
from tinyxp import Config, Params


class Printed(NamedTuple):
    config: Config
    logits: list[float]  # 0 to 4 at the last position
    argmax: int
    loss: float
    greedy: list[int]
    digits: float  # how far float64 may be from what is printed


MODELS = {
    "gpt2": Printed(
        GPT2_CONFIG,
        [0.784084, -0.354944, -1.334650, -1.715274, -1.325965],
        8,
        3.787285,
        [8, 8, 9, 8, 8, 7],
        6e-7,
    ),
    # These two were printed from float32: in float64 the last digit may move by one.
    "llama": Printed(
        LLAMA_CONFIG,
        [0.114623, 0.817703, 1.153742, 0.971903, 0.353808],
        2,
        2.280658,
        [2, 8, 4, 2, 8, 6],
        1e-6,
    ),
    "llama-tied": Printed(
        LLAMA_TIED_CONFIG,
        [0.763566, -0.375650, -1.346248, -1.712558, -1.310155],
        8,
        2.940109,
        [8, 1, 3, 5, 7, 9],
        1e-6,
    ),
}


@pytest.fixture(params=MODELS)
def printed(request: pytest.FixtureRequest) -> Printed:
    return MODELS[request.param]


def check(printed: Printed, params: Params, tolerance: float) -> None:
    backend = params.backend
    ids = np.asarray(IDS)
    logits = host(compiled(backend, tinyxp.forward)(params, ids))[0]
    assert np.max(np.abs(logits[-1, :5] - printed.logits)) <= tolerance
    assert logits[-1].argmax() == printed.argmax

    loss = host(compiled(backend, tinyxp.loss)(params, ids[:, :-1], ids[:, 1:]))
    assert abs(float(loss) - printed.loss) <= tolerance

    extend = compiled(backend, tinyxp.extend)
    cached, cache = [], tinyxp.new_cache(params, 1, len(IDS[0]))
    for token in IDS[0]:
        step, cache = extend(params, np.asarray([[token]]), cache)
        cached.append(host(step)[0, 0])
    assert np.max(np.abs(cached[-1][:5] - printed.logits)) <= tolerance
    assert np.max(np.abs(np.stack(cached) - logits)) <= tolerance

    for cache_is_used in (True, False):
        assert host(tinyxp.generate(params, IDS, 6, cache=cache_is_used)).tolist() == [printed.greedy]


def test_float32(backend: tinyxp.Backend, printed: Printed) -> None:
    check(printed, filled(printed.config).to(backend.xp, dtype="float32"), 2e-6)


def test_float64(backend: tinyxp.Backend, printed: Printed) -> None:
    with float64_on(backend):
        params = filled(printed.config).to(backend.xp)
        assert str(params["embed.weight"].dtype).endswith("float64")
        check(printed, params, printed.digits)
        logits = host(compiled(backend, tinyxp.forward)(params, np.asarray(IDS)))
        # Float64 rounding alone lies between two backends.
        assert np.max(np.abs(logits - tinyxp.forward(filled(printed.config), IDS))) <= 1e-14


def test_the_fill_rule() -> None:
    embed = filled(LLAMA_TIED_CONFIG)["embed.weight"]  # the first of its sorted names
    assert embed[0, 1] == pytest.approx(0.3 * np.sin(0.7), abs=1e-15)
    assert embed[1, 0] == pytest.approx(0.3 * np.sin(0.7 * 8), abs=1e-15)
    # Number 5 of 26: GPT-2's fused (in, out) matrix, whose first row holds the first column of our q.
    fused = 0.3 * np.sin(0.7 * np.arange(8 * 24) + 1.3 * 1).reshape(8, 24)
    np.testing.assert_allclose(filled(GPT2_CONFIG)["blocks.0.attn.k.weight"], fused[:, 8:16].T, atol=1e-15)
    assert filled(GPT2_CONFIG)["final_norm.weight"][0] == pytest.approx(1.0 + 0.3 * np.sin(1.3 * 25))


@pytest.mark.parametrize(
    "change, cost",
    [
        ({"mlp": "gelu"}, 6.6e-5),
        ({"norm_eps": 1e-6}, 1.4e-4),
    ],
)
def test_what_wrong_code_costs_on_gpt2(change: dict[str, object], cost: float) -> None:
    wrong = Params(dict(filled(GPT2_CONFIG)), Config(**{**vars(GPT2_CONFIG), **change}))
    difference = np.abs(tinyxp.forward(wrong, IDS) - tinyxp.forward(filled(GPT2_CONFIG), IDS)).max()
    assert difference == pytest.approx(cost, rel=0.02)


def gpt2_cost(wrong: np.ndarray) -> float:
    return float(np.abs(wrong - tinyxp.forward(filled(GPT2_CONFIG), IDS)).max())


def test_what_the_wrong_variance_costs_on_gpt2() -> None:
    """torch's default divides by d - 1."""

    def unbiased(x: Any, weight: Any, bias: Any, eps: float, *, xp: Any) -> Any:
        centred = x - x.mean(axis=-1, keepdims=True)
        return centred / np.sqrt(x.var(axis=-1, ddof=1, keepdims=True) + eps) * weight + bias

    wrong = tinyxp.forward(filled(GPT2_CONFIG), IDS, kernels={"layer_norm": unbiased})
    assert gpt2_cost(wrong) == pytest.approx(0.154, abs=5e-4)


def test_what_an_untransposed_output_matrix_costs_on_gpt2() -> None:
    """It is square, so no shape says so."""
    transposed = {
        name: x.T if name.endswith("attn.o.weight") else x for name, x in filled(GPT2_CONFIG).items()
    }
    wrong = tinyxp.forward(Params(transposed, GPT2_CONFIG), IDS)
    assert gpt2_cost(wrong) == pytest.approx(1.472, abs=5e-4)


def test_what_left_padding_without_its_positions_costs_on_gpt2() -> None:
    ids, mask = [[0, 0, *IDS[0]]], [[False, False, *[True] * 5]]
    params = filled(GPT2_CONFIG)
    wrong = tinyxp.forward(params, ids, mask=mask, positions=[[0, 1, 2, 3, 4, 5, 6]])
    assert gpt2_cost(wrong[:, 2:]) == pytest.approx(1.41, abs=5e-3)
    assert gpt2_cost(tinyxp.forward(params, ids, mask=mask)[:, 2:]) <= 1e-14


def test_what_wrong_code_costs_on_llama() -> None:
    right = filled(LLAMA_CONFIG)
    logits = tinyxp.forward(right, IDS)

    def cost(params: Params, **kernels: object) -> float:
        return float(np.abs(tinyxp.forward(params, IDS, kernels=kernels) - logits).max())

    swapped = Params.from_state_dict(right, LLAMA_CONFIG, rename=swap_gate_and_up)
    assert cost(swapped) == pytest.approx(0.246, abs=1e-3)
    eps = Params(dict(right), Config(**{**vars(LLAMA_CONFIG), "norm_eps": 1e-6}))
    assert cost(eps) == pytest.approx(3.7e-4, rel=0.02)
    interleaved = {
        name: interleave(x) if name.endswith(("attn.q.weight", "attn.k.weight")) else x
        for name, x in right.items()
    }
    assert cost(Params(interleaved, LLAMA_CONFIG)) == pytest.approx(0.168, abs=1e-3)
    assert cost(right, silu=tinyxp.ops.gelu) == pytest.approx(0.351, abs=1e-3)


def swap_gate_and_up(name: str) -> str:
    if ".gate." in name:
        return name.replace(".gate.", ".up.")
    return name.replace(".up.", ".gate.")


def interleave(rows: np.ndarray) -> np.ndarray:
    """Rows of head_dim 4 from half pairing to neighbour pairing: 0, 2, 1, 3."""
    heads = rows.reshape(-1, 2, 2, rows.shape[-1])
    return heads.swapaxes(1, 2).reshape(rows.shape)
