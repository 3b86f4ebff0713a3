"""docs/recording.md: its programs are run and what they write agrees; its table is the code's."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.doctor.planted.planted import BASES, IDS
from tests.reference import drawn
from tinyxp import Params, ops
from tinyxp.doctor import compare, read_trace
from tinyxp.doctor.points import form, points_of
from tinyxp.model import join_heads, split_heads
from tinyxp.rope import rope_frequencies

LLAMA = BASES["llama"]
PAGE = (Path(__file__).parents[2] / "docs" / "recording.md").read_text(encoding="utf-8")
PROGRAMS = dict(
    zip(("torch", "jax", "numpy"), re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL), strict=True)
)


def test_the_table_is_that_of_a_run() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (\([^|]+\)) \|", PAGE, re.MULTILINE)
    assert [name for name, _ in rows] == points_of(replace(LLAMA, n_layers=1))
    assert all(form(name) == shape for name, shape in rows)


def written(program: str, names: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a program of the page writes."""
    monkeypatch.chdir(folder)
    exec(PROGRAMS[program], names)
    return folder / "port.npz"


def test_the_page_on_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tinyxp.backends.transformers import model

    params = drawn(LLAMA)
    port = written("torch", {"model": model(params), "ids": IDS.tolist()}, tmp_path, monkeypatch)
    assert len(read_trace(port).points) == 3 + 10 * LLAMA.n_layers
    assert compare(params, port).agrees


def parts(params: Params, xp: Any) -> dict[str, Any]:
    """A decoder in functions as the page takes them for given."""
    config = params.config

    def norm(weight: Any, x: Any) -> Any:
        return ops.rms_norm(x, weight, config.norm_eps, xp=xp)

    def attention(w: Any, x: Any) -> Any:
        t = x.shape[1]
        angles = xp.asarray(
            np.arange(t)[None, None, :, None] * np.array(rope_frequencies(config)), dtype=x.dtype
        )
        q, k, v = (
            split_heads(x @ w[part].T, n, xp=xp)
            for part, n in (("q", config.n_heads), ("k", config.n_kv_heads), ("v", config.n_kv_heads))
        )
        q, k = (ops.rotary(part, xp.cos(angles), xp.sin(angles), xp=xp) for part in (q, k))
        visible = xp.asarray(np.tri(t, dtype=bool)[None, None])
        return join_heads(ops.attention(q, k, v, visible, xp=xp), xp=xp) @ w["o"].T

    def mlp(w: Any, x: Any) -> Any:
        return (ops.silu(x @ w["gate"].T, xp=xp) * (x @ w["up"].T)) @ w["down"].T

    names = {f"attn.{x}": x for x in "qkvo"} | {f"mlp.{x}": x for x in ("gate", "up", "down")}
    names |= {"attn_norm": "attn_norm", "mlp_norm": "mlp_norm"}
    blocks = [
        {theirs: params[f"blocks.{i}.{ours}.weight"] for ours, theirs in names.items()}
        for i in range(config.n_layers)
    ]
    weights = {
        "embed": params["embed.weight"],
        "blocks": blocks,
        "final_norm": params["final_norm.weight"],
        "head": params["head.weight"],
    }
    return {"norm": norm, "attention": attention, "mlp": mlp, "weights": weights}


def test_the_page_on_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jnp = pytest.importorskip("jax").numpy
    params = drawn(LLAMA)
    names = parts(params.to(jnp), jnp) | {"ids": jnp.asarray(IDS)}
    found = compare(params, written("jax", names, tmp_path, monkeypatch))
    assert found.agrees
    assert len(found.rows) == 2 + 4 * LLAMA.n_layers


def test_the_page_on_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(BASES["gpt2"], attn_bias=False, attn_out_bias=False)
    params = drawn(config)
    names: dict[str, Any] = {"heads": config.n_heads, "ids": IDS}

    def forward(ids: np.ndarray) -> np.ndarray:
        def norm(name: str, x: np.ndarray) -> np.ndarray:
            return ops.layer_norm(x, params[f"{name}.weight"], params[f"{name}.bias"], config.norm_eps, xp=np)

        def linear(name: str, x: np.ndarray) -> np.ndarray:
            return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]

        x = params["embed.weight"][ids] + params["pos_embed.weight"][: ids.shape[1]]
        for i in range(config.n_layers):
            w = {part: params[f"blocks.{i}.attn.{part}.weight"] for part in "qkvo"}
            x = x + names["attention"](w, norm(f"blocks.{i}.attn_norm", x), i)
            up = linear(f"blocks.{i}.mlp.up", norm(f"blocks.{i}.mlp_norm", x))
            x = x + linear(f"blocks.{i}.mlp.down", ops.gelu_tanh(up, xp=np))
        return norm("final_norm", x) @ params["embed.weight"].T

    names["forward"] = forward
    found = compare(params, written("numpy", names, tmp_path, monkeypatch))
    assert found.agrees
    assert len(found.rows) == 1 + 7 * config.n_layers
