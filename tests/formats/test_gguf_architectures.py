"""The table of architectures: every parameter has a tensor, and only llama's rows are permuted."""

from __future__ import annotations

from typing import Any

import pytest

from tinyxp import Config
from tinyxp.config import GPT2
from tinyxp.formats.gguf_architectures import ARCHITECTURES
from tinyxp.formats.rules import lay_out
from tinyxp.formats.steps import Unpermute
from tinyxp.shapes import parameter_shapes

BIASES = {"attn_bias": True, "attn_out_bias": True, "mlp_bias": True}
CONFIGS: dict[str, dict[str, Any]] = {"llama": BIASES, "gpt2": GPT2 | {"n_kv_heads": 4}, "qwen2": BIASES}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_parameter_is_in_one_tensor(name: str) -> None:
    config = Config(**CONFIGS[name])
    rules = list(lay_out(ARCHITECTURES[name].names, config))
    assert sorted(target for rule in rules for target in rule.targets) == sorted(parameter_shapes(config))
    assert all(
        rule.name.startswith(("blk.0.", "blk.1.", "token_embd", "position_embd", "output")) for rule in rules
    )


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_permuted_rows(name: str) -> None:
    config = Config(**CONFIGS[name])
    steps = {rule.name: rule.steps for rule in lay_out(ARCHITECTURES[name].names, config) if rule.steps}
    heads = {"attn_q": 4, "attn_k": 2} if name == "llama" else {}
    assert steps == {
        f"blk.{i}.{module}.{kind}": (Unpermute(n),)
        for i in range(2)
        for module, n in heads.items()
        for kind in ("weight", "bias")
    }
