"""Rules and layouts: shapes in the file, splitting and joining, and which tensors a config has."""

from __future__ import annotations

import numpy as np
import pytest

from tinyxp import Config
from tinyxp.formats.names import Module, Names, name_modules
from tinyxp.formats.rules import Rule, lay_out
from tinyxp.formats.steps import Step, Transpose, Unpermute, transpose, unpermute_queries
from tinyxp.shapes import parameter_shapes

SHAPES = {"a": (4, 6), "b": (2, 6), "c": (2, 6)}

NAMES = Names(
    top=name_modules({"table": "embed"}),
    block=(Module("mix", ("attn.q", "attn.k"), (unpermute_queries, transpose)), Module("up", ("mlp.up",))),
    block_prefix="layer{}/",
    last=name_modules({"out": "head"}),
)


@pytest.mark.parametrize(
    "steps, shape", [((), (8, 6)), ((Transpose(),), (6, 8)), ((Transpose(), Unpermute(4)), (6, 8))]
)
def test_split_inverts_join(steps: tuple[Step, ...], shape: tuple[int, int]) -> None:
    rule = Rule("t", ("a", "b", "c"), steps)
    parts = [np.arange(n * 6).reshape(n, 6) + 100 * i for i, n in enumerate((4, 2, 2))]
    assert rule.shape(SHAPES) == shape
    joined = rule.join(parts)
    assert joined.shape == shape
    split = rule.split(joined, SHAPES)
    assert len(split) == 3
    assert all(np.array_equal(x, y) for x, y in zip(split, parts, strict=True))


def test_steps_run_in_the_file_order() -> None:
    stored = np.arange(24).reshape(6, 4)
    [loaded] = Rule("t", ("a",), (Transpose(), Unpermute(2))).split(stored, SHAPES)
    assert np.array_equal(loaded, Unpermute(2).load(stored.T))


def test_descriptions() -> None:
    assert Rule("t", ("a",)).describe() == []
    fused = Rule("t", ("a", "b"), (Transpose(), Unpermute(2)))
    assert fused.describe() == ["transposed", "rows un-permuted, 2 heads", "split in 2"]
    assert Rule("t", skipped="buffer").describe() == ["skipped: buffer"]


def test_a_layout_has_the_tensors_that_the_config_has() -> None:
    config = Config(n_layers=2, attn_bias=True)
    assert {target for rule in lay_out(NAMES, config) for target in rule.targets} <= set(
        parameter_shapes(config)
    )
    rules = {rule.name: rule for rule in lay_out(NAMES, config, "m.")}
    block = ["m.layer0/mix.weight", "m.layer0/mix.bias", "m.layer0/up.weight"]
    names = ["m.table.weight", *block, *(name.replace("0", "1") for name in block), "out.weight"]
    assert list(rules) == names
    assert rules["m.layer1/mix.bias"].targets == ("blocks.1.attn.q.bias", "blocks.1.attn.k.bias")
    # A matrix takes every step, a bias those that move rows.
    assert rules["m.layer1/mix.weight"].steps == (Unpermute(4), Transpose())
    assert rules["m.layer1/mix.bias"].steps == (Unpermute(4),)
    tied = [rule.name for rule in lay_out(NAMES, Config(tie_embeddings=True))]
    assert "out.weight" not in tied
    assert "layer0/mix.bias" not in tied
