"""The loss: nothing is shifted, -100 is left out, micro-batches add up."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference import FLOAT32, IDS, alone, distance, filled, host, padded
from tinyxp import Config, Params, forward, loss, ops


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


def test_a_tap_sees_and_replaces_every_value_but_the_logits(params: Params) -> None:
    names: list[str] = []
    loss(params, IDS, IDS, tap=lambda name, x: names.append(name) or x)
    forward(params, IDS, tap=lambda name, x: names.remove(name) or x if name != "logits" else x)
    assert names == []  # each name once in both

    def silence(name: str, x: object) -> object:
        return 0.0 * x if name == "final_norm" else x  # type: ignore[operator]

    uniform = float(host(loss(params, IDS, IDS, tap=silence)))
    assert uniform == pytest.approx(np.log(params.config.vocab_size), abs=1e-6)


def test_the_head_multiplies_with_the_caller_s_linear(params: Params) -> None:
    heads: list[int] = []

    def linear(x: object, weight: object, bias: object = None, *, xp: object) -> object:
        heads.append(weight.shape[0] == params.config.vocab_size)  # type: ignore[attr-defined]
        return ops.linear(x, weight, bias, xp=xp)  # type: ignore[arg-type]

    loss(params, IDS, IDS, kernels={"linear": linear})
    assert heads[-1]
    assert sum(heads) == 1
