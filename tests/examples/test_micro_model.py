"""micro_model: 92 parameters, and attention with its mask, without it, and with it in the wrong place."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxp
from tinyxp import ops


@pytest.fixture
def shown(example):
    return example("micro_model")


@pytest.fixture
def micro(shown):
    """(weights, logits) by the name of the attention."""
    found = shown.globals
    params = found["micro_params"]()
    return {name: found["run"](params, found["IDS"], each) for name, each in found["ATTENTIONS"].items()}


def printed(lines: list[str]) -> dict[str, list[float]]:
    """The numbers under each label, such as "embed.weight (4, 2)"."""
    found: dict[str, list[float]] = {}
    for line in lines:
        label, numbers = line[:36].strip(), line[36:].replace("|", " ").split()
        if label.endswith(")"):
            found[label] = [float(number) for number in numbers]
        elif line.startswith(" " * 36):
            found[next(reversed(found))].extend(map(float, numbers))
    return found


def test_every_value_is_printed(shown, is_png) -> None:
    assert shown.lines[0] == "Parameters: 92, the tied head counted once"
    params = shown.globals["micro_params"]()
    assert sum(x.size for x in params.values()) == 92
    values = {**params, **tinyxp.trace(params, shown.globals["IDS"])}
    numbers = printed(shown.lines)
    assert list(numbers) == [f"{name} {x.shape}" for name, x in values.items()]
    for found, x in zip(numbers.values(), values.values(), strict=True):
        assert np.abs(np.array(found) - x.reshape(-1)).max() <= 0.0005 + 1e-12
    assert is_png(shown.picture)


def test_parameters_have_one_decimal(shown) -> None:
    for name, x in shown.globals["micro_params"]().items():
        assert np.array_equal(x, np.round(x, 1)), name


def test_mask_keeps_the_future_out(micro) -> None:
    weights, _ = micro["with the mask"]
    assert np.array_equal(weights, np.tril(weights))
    assert np.abs(weights.sum(axis=1) - 1.0).max() < 1e-15
    assert weights[0].tolist() == [1.0, 0.0, 0.0]
    assert weights[1:].round(4).tolist() == [[0.7836, 0.2164, 0.0], [0.2254, 0.5492, 0.2254]]


def test_mask_after_the_softmax_leaves_rows_short(micro) -> None:
    without, late = micro["without the mask"][0], micro["masked after the softmax"][0]
    assert (without > 0.1).all()
    assert np.abs(without.sum(axis=1) - 1.0).max() < 1e-15
    assert np.array_equal(late, np.tril(without))
    assert late.sum(axis=1).round(4).tolist() == [0.2254, 0.5607, 1.0]


def test_leaks_are_printed_and_real(shown, micro) -> None:
    found = shown.globals
    told = [line.rsplit(" ", 1)[1] for line in shown.lines if line.startswith("another last token")]
    assert told == ["0.0000", "2.4000", "2.4000"]
    for name, attention in found["ATTENTIONS"].items():
        _, other = found["run"](found["micro_params"](), found["OTHER_END"], attention)
        moved = np.abs(other - micro[name][1])[:2].max()
        assert (moved == 0.0) == (attention is ops.attention)
