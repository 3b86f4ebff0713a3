"""The catalogue as a whole: every row changes what it says, and every choice of a config has a row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.doctor.models import CONFIGS
from tests.doctor.variants import PADDED, Points, right_variant, run
from tinyxp import Config
from tinyxp.config import MLPS, NORMS, RopeScaling
from tinyxp.doctor.faults import Fault, NumberFault, list_faults, list_rows
from tinyxp.doctor.points import kind, sort_points

SCALED = RopeScaling(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=32
)
BIASES = {"attn_bias": True, "attn_out_bias": True, "mlp_bias": True, "head_bias": True}
MODELS = {
    **CONFIGS,
    "wide heads": replace(CONFIGS["llama"], head_dim=12, rope_scaling=SCALED, **BIASES),
    "relu2": replace(CONFIGS["gpt2"], mlp="relu2", tie_embeddings=False, n_layers=1),
}
SILENT = {"original length": "the scaling of so few positions is the same"}


def first_change(right: Points, wrong: Points) -> str | None:
    """The kind of the first point that differs in shape or value, but for rounding."""
    for name in sort_points(right.keys() & wrong.keys()):
        x, y = right[name], wrong[name]
        if x.shape != y.shape or not np.allclose(x, y, rtol=1e-9, atol=1e-12):
            return kind(name)
    return None


@pytest.mark.parametrize("name", MODELS)
def test_every_fault_changes_first_a_point_that_it_names(name: str) -> None:
    config = MODELS[name]
    v = right_variant(config, PADDED)
    right = run(v)
    for fault in list_faults(config):
        if fault.choice == "ids":
            continue
        seen = first_change(right, run(v.with_faults(fault)))
        if seen is None:
            assert fault.key.startswith(tuple(SILENT)), fault.key
        else:
            assert seen in fault.points, (fault.key, seen)


@pytest.mark.parametrize("name", MODELS)
def test_every_fault_has_a_key_of_its_own_and_says_what_to_do(name: str) -> None:
    faults = list_faults(MODELS[name])
    assert len({fault.key for fault in faults}) == len(faults)
    for fault in faults:
        assert fault.says.startswith(("{it} ", "{its} ")), fault.key
        assert fault.says.format(it="B", its="B's") != fault.says
        assert fault.fix
        assert fault.change is not None


@pytest.mark.parametrize("mlp", MLPS)
def test_every_activation_of_a_config_has_a_row(mlp: str) -> None:
    activation, _ = MLPS[mlp]
    for other, (right, _) in MLPS.items():
        keys = {fault.key for fault in list_faults(Config(mlp=other))}
        assert (f"{activation} for {right}" in keys) == (activation != right)


@pytest.mark.parametrize("norm", NORMS)
def test_every_norm_of_a_config_has_a_row(norm: str) -> None:
    v = right_variant(Config(norm=norm, vocab_size=61))
    others = [f for f in list_faults(v.weights.config) if f.choice == "norm" and f.change and f.change.config]
    kinds = {fault.change.config(v.weights.config).norm for fault in others if fault.change.config}  # type: ignore[union-attr]
    assert kinds == NORMS.keys() - {norm}


def test_every_bias_of_a_config_has_a_row() -> None:
    keys = {fault.key for fault in list_faults(MODELS["wide heads"])}
    flags = [name for name in Config.__dataclass_fields__ if name.endswith("_bias")]
    rows = {
        "attn_bias": "q, k and v biases dropped",
        "attn_out_bias": "attention output bias dropped",
        "mlp_bias": "mlp biases dropped",
        "head_bias": "head bias dropped",
    }
    assert {flag for flag in flags if rows[flag] in keys} == set(flags)


def test_a_number_is_a_row_with_its_range() -> None:
    rows = [row for row in list_rows(MODELS["llama"]) if isinstance(row, NumberFault)]
    assert {row.choice for row in rows} == {"eps", "theta", "scaling", "logits"}
    for row in rows:
        assert row.low < row.high
        assert all(fault.key == row.at(value).key for fault, value in common(row))


def common(row: NumberFault) -> list[tuple[Fault, float]]:
    """The faults of a row, with their values."""
    values = [value for value, _ in row.common if not np.isclose(value, row.right, rtol=1e-3, atol=0.0)]
    return list(zip(row.faults(), values, strict=True))
