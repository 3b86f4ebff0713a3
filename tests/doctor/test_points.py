"""The names of trace points: those of a run, in its order, and nothing else."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

import tinyxp
from tests.reference import drawn
from tinyxp.doctor.points import BLOCK_POINTS, axes, block_of, form, kind, point_order, points_of, sort_points

from .models import CONFIGS, IDS, traced


@pytest.mark.parametrize("family", CONFIGS)
def test_points_are_those_of_a_run_in_its_order(family: str) -> None:
    config = replace(CONFIGS[family], n_layers=11)
    names = list(tinyxp.trace(drawn(config), [[1, 2]]))
    assert points_of(config) == names
    shuffled = random.Random(0).sample(names, len(names))
    assert sort_points(shuffled) == names


@pytest.mark.parametrize("family", CONFIGS)
def test_axes_and_forms_are_those_of_the_arrays(family: str) -> None:
    config = CONFIGS[family]
    sizes = {"b": 2, "t": 12, "d": config.d_model, "f": config.d_ff, "n": config.vocab_size}
    sizes |= {"h": config.n_heads, "g": config.n_kv_heads, "hd": config.head_dim}
    sizes |= {f"{x}*hd": sizes[x] * sizes["hd"] for x in "hg"}
    for name, x in traced(drawn(config), IDS).items():
        assert x.shape == tuple(sizes[letter] for letter in form(name)[1:-1].split(", ")), name
        assert len(axes(name)) == x.ndim
        assert [n for axis, n in zip(axes(name), x.shape, strict=True) if axis == "position"] == [12]


def test_the_block_and_the_kind_of_a_point() -> None:
    assert (block_of("blocks.12.attn.q"), kind("blocks.12.attn.q")) == (12, "attn.q")
    assert (block_of("embed"), kind("embed")) == (None, "embed")
    assert point_order("embed") < point_order("blocks.0.attn_norm") < point_order("blocks.0.residual")
    assert point_order("blocks.9.residual") < point_order("blocks.10.attn_norm") < point_order("final_norm")
    assert point_order("final_norm") < point_order("logits")


@pytest.mark.parametrize(
    "name", ["", "attn.q", "blocks.00.attn.q", "blocks.0.qq", "blocks.1e6.attn.q", "x", 3]
)
def test_an_unknown_name_is_rejected_with_the_known_ones(name: object) -> None:
    known = re.escape(f"trace point is {name!r}; known are embed, blocks.0.({BLOCK_POINTS[0]}, ")
    with pytest.raises(ValueError, match=known):
        sort_points([name])  # type: ignore[list-item]
