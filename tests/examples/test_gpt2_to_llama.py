"""docs/gpt2-to-llama.md: its program prints what it says, and its names and numbers are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tinyxp
from tinyxp import Config, model, ops, rope
from tinyxp import config as config_module
from tinyxp.config import GPT2
from tinyxp.formats.huggingface import list_rules
from tinyxp.shapes import block_shapes

PAGE = (Path(__file__).parents[2] / "docs" / "gpt2-to-llama.md").read_text(encoding="utf-8")
SMALL_GPT2 = Config(**GPT2, n_layers=1, n_kv_heads=4, d_ff=128)
SMALL_LLAMA = Config(n_layers=1)


def test_program_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    exec(program, {})
    assert capsys.readouterr().out == printed


def test_functions_exist() -> None:
    modules = {"config": config_module, "model": model, "ops": ops, "rope": rope}
    mentioned = set(re.findall(rf"(?:`|  )({'|'.join(modules)})\.(?!py\b)(\w+)", PAGE))
    assert len(mentioned) > 15
    for module, name in mentioned:
        assert hasattr(modules[module], name), f"{module}.{name}"


@pytest.mark.parametrize(
    "config, column, prefix",
    [(SMALL_GPT2, 1, "transformer."), (SMALL_LLAMA, 2, "model.")],
    ids=["gpt2", "llama"],
)
def test_names_are_those_of_the_files(config: Config, column: int, prefix: str) -> None:
    lines = PAGE.partition("## Names")[2].splitlines()
    rows = [
        [re.findall(r"`([\w.]+)`", cell) for cell in line.split("|")[1:4]] for line in lines if "|" in line
    ]
    page = {row[0][0]: row[column][0] for row in rows if row[0] and row[column]}
    files = {
        ours: rule.name.removeprefix(prefix)
        for rule in list_rules(config)
        for ours in rule.targets
        if ours.endswith(".weight")
    }
    assert page == files


def test_block_counts() -> None:
    for config, count in (
        (SMALL_GPT2, lambda d, c: 12 * d**2 + 13 * d),
        (Config.preset("gpt2"), lambda d, c: 12 * d**2 + 13 * d),
        (SMALL_LLAMA, lambda d, c: 2 * (c.n_heads + c.n_kv_heads) * c.head_dim * d + 3 * c.d_ff * d + 2 * d),
    ):
        assert sum(map(np.prod, block_shapes(config).values())) == count(config.d_model, config)
    assert 12 * 768**2 + 13 * 768 == 7_087_872


def test_activations_at_one() -> None:
    one = np.ones((1,))
    values = [f"{f(one, xp=np)[0]:.4f}" for f in (ops.gelu_tanh, ops.gelu, ops.silu)]
    assert values == ["0.8412", "0.8413", "0.7311"]
    assert "0.8412 (`ops.gelu_tanh`), 0.8413 (`ops.gelu`) and 0.7311 (`ops.silu`)" in PAGE
    u = np.linspace(-8.0, 8.0, 160_001)
    assert f"{np.abs(ops.gelu(u, xp=np) - ops.gelu_tanh(u, xp=np)).max():.1e}" == "4.7e-04"


def test_fields_are_those_of_the_config() -> None:
    fields = re.findall(r"^\| (`[\w`, ]+) \|", PAGE.partition("## Line by line")[0], re.MULTILINE)
    named = {name for cell in fields for name in re.findall(r"`(\w+)`", cell)}
    differ = {
        name
        for name in Config.__dataclass_fields__
        if getattr(Config.preset("gpt2"), name) != getattr(Config.preset("smollm2-135m"), name)
    }
    assert differ - named <= {"vocab_size", "n_layers", "d_model", "n_heads", "max_seq_len"}
    assert named <= set(Config.__dataclass_fields__)


def test_gpt2_has_a_last_position_and_llama_none() -> None:
    ids = np.zeros((1, 65), dtype=int)
    assert tinyxp.forward(tinyxp.init(SMALL_LLAMA), ids).shape == (1, 65, 128)
    with pytest.raises(ValueError, match="65 > 64"):
        tinyxp.forward(tinyxp.init(SMALL_GPT2), ids)
