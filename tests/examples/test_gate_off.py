"""A trained model without its gates: what the taps do, and what it costs."""

import numpy as np

import tinyxp
from tinyxp import ops


def test_script(example, test_data, is_png):
    gate_off = example("gate_off", "--quick")
    assert gate_off.lines[0].startswith("stories260k on its own stories, 4,064 targets: loss 1.4")
    at = next(i for i, line in enumerate(gate_off.lines) if line.startswith("gate of"))
    rows = [line.removeprefix("block").split() for line in gate_off.lines[at + 1 : at + 7]]
    assert [row[0] for row in rows] == ["0", "1", "2", "3", "4", "all"]
    uniform = np.log(512)
    for where, silu, at_mean, opened, without in rows:
        assert 0 < float(silu) < 0.3  # nearly shut
        assert 1.9 < float(without) < float(opened)
        assert 1.9 < float(at_mean) < float(opened)
        assert (float(at_mean) > uniform) == (where == "all")
    assert is_png(gate_off.picture)


def test_gate_for_inverts_silu(found):
    values = np.array([-0.278, -0.1, 0.0, 0.2, 1.0, 8.0])
    assert np.allclose(ops.silu(found.gate_for(values), xp=np), values, atol=1e-6)


def test_an_open_gate_passes_up_unchanged(found):
    """silu(gate) 1 makes the hidden numbers those of W_up."""
    params = tinyxp.init(tinyxp.Config())
    points, values = {}, {"blocks.1.mlp.gate": found.gate_for(1.0)}
    held = found.holding(values)
    tinyxp.forward(params, [[1, 2, 3]], tap=lambda name, x: points.setdefault(name, held(name, x)))
    assert np.allclose(points["blocks.1.mlp.hidden"], points["blocks.1.mlp.up"], atol=1e-7)
    assert not np.allclose(points["blocks.0.mlp.hidden"], points["blocks.0.mlp.up"], atol=1e-4)
