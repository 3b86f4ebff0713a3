"""The size of the page: all code that one forward pass, one extension and one loss execute."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import tinyxp
from tests.reference import GPT2_CONFIG, LLAMA_CONFIG, drawn
from tinyxp import Config, Params
from tinyxp.config import MLPS, NORMS, POSITIONS

LIMIT = 420
ROOT = Path(tinyxp.__file__).parent
UNCOUNTED = {"config.py", "params.py", "inputs.py", "checks.py"}
"""What the edge of the model needs: checks and containers."""
SCALINGS = [
    {"rope_type": "linear", "factor": 2.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
]
CONFIGS = [
    *(replace(GPT2_CONFIG, mlp=mlp) for mlp in MLPS),
    *(replace(LLAMA_CONFIG, rope_scaling=scaling, head_bias=True) for scaling in SCALINGS),
    *(replace(LLAMA_CONFIG, norm=norm, position=position) for norm in NORMS for position in POSITIONS),
]
"""Every choice of the block at least once."""


def run(config: Config) -> None:
    """Everything that the three public calls compute: masks, positions, taps, a cache, the last column."""
    params, ids = drawn(config), np.asarray([[3, 1, 4], [1, 5, 9]])
    mask = np.asarray([[False, True, True], [True, True, True]])
    tinyxp.forward(params, ids, mask=mask, tap=lambda name, x: x)
    tinyxp.forward(params, ids, positions=[[0, 1, 2]])
    tinyxp.loss(params, ids, [[1, -100, 2], [5, 9, 2]])
    _, cache = tinyxp.extend(params, ids, tinyxp.new_cache(params, 2, 6), mask=mask, last=True)
    tinyxp.extend(params, ids[:, :1], cache)


def executed() -> set[CodeType]:
    """The code of every function in tinyxp that those calls enter."""
    seen: set[CodeType] = set()

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and Path(frame.f_code.co_filename).is_relative_to(ROOT):
            seen.add(frame.f_code)

    for config in CONFIGS:
        drawn(config)  # what fills it is no part of the model
    sys.setprofile(profile)
    try:
        for config in CONFIGS:
            run(config)
    finally:
        sys.setprofile(None)
    return seen


def lines_of(codes: set[CodeType]) -> dict[tuple[str, int], str]:
    """(file, line) -> text of the functions' lines: no blank ones, no comments, no docstrings."""
    lines: dict[tuple[str, int], str] = {}
    for path in {Path(code.co_filename) for code in codes}:
        name = str(path.relative_to(ROOT))
        if name in UNCOUNTED:
            continue
        source = path.read_text(encoding="utf-8")
        entered = {(code.co_name, code.co_firstlineno) for code in codes if Path(code.co_filename) == path}
        text = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.FunctionDef):
                continue
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if (node.name, first) not in entered:
                continue
            docstring = node.body[0] if ast.get_docstring(node) is not None else None
            for number in range(first, (node.end_lineno or first) + 1):
                stripped = text[number - 1].strip()
                inside = docstring is not None and docstring.lineno <= number <= (docstring.end_lineno or 0)
                if stripped and not stripped.startswith("#") and not inside:
                    lines[name, number] = stripped
    return lines


def test_the_page_is_short() -> None:
    lines = lines_of(executed())
    files = {name for name, _ in lines}
    assert {"model.py", "ops.py", "cache.py", "rope.py"} <= files
    assert not {name for name in files if name in ("joint.py", "engine.py", "decoding.py", "generation.py")}
    assert len(lines) <= LIMIT, {name: sum(f == name for f, _ in lines) for name in sorted(files)}


def test_a_trace_sees_every_choice() -> None:
    names = {code.co_name for code in executed()}
    activations = {kind.activation for kind in MLPS.values()}
    norms = {norm.kernel for norm in NORMS.values()}
    assert activations | norms | {"scale_linear", "scale_llama3", "last_real", "rotary"} <= names
    assert isinstance(drawn(CONFIGS[0]), Params)
