"""Files of every format, corrupted, cut short or lying: they load, or raise one error that names them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import tinyxp
from tinyxp import CheckpointError, Config
from tinyxp.formats import describe

from .files import draw, write_gguf

EDITS = st.lists(
    st.tuples(
        st.sampled_from(["set", "flip", "cut", "put", "end"]),
        st.one_of(st.integers(0, 300), st.integers(0, 1 << 16)),
        st.binary(min_size=1, max_size=9),
    ),
    min_size=1,
    max_size=4,
)


def corrupt(data: bytes, edits: list[tuple[str, int, bytes]]) -> bytes:
    found = bytearray(data)
    for kind, at, new in edits:
        at %= len(found) or 1
        if kind == "end":  # an archive's directory lies at its end
            kind, at = "set", max(len(found) - at % 2000 - 1, 0)
        if kind == "set":
            found[at : at + len(new)] = new
        elif kind == "flip" and found:
            found[at] ^= new[0]
        elif kind == "cut":
            del found[at : at + 16 * len(new) ** 2]
        else:
            found[at:at] = new
    return bytes(found)


MOST_CALLS = 100_000
"""Of functions, Python's and C's: reading the whole files takes under 10,000."""


@contextmanager
def bounded_work() -> Iterator[None]:
    """Within it the functions that this thread calls are counted, so that a loop that a file has lengthened
    is a failure at once, on a busy machine as on a quiet one."""
    calls, before = 0, sys.getprofile()

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")
        if calls > MOST_CALLS:
            sys.setprofile(before)
            raise AssertionError(f"loading calls more than {MOST_CALLS:,} functions")

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)


GGUF_NAMES = [
    ("token_embd.weight", "embed.weight"),
    ("output_norm.weight", "final_norm.weight"),
    ("output.weight", "head.weight"),
    ("blk.0.attn_norm.weight", "blocks.0.attn_norm.weight"),
    ("blk.0.attn_q.weight", "blocks.0.attn.q.weight"),
    ("blk.0.attn_k.weight", "blocks.0.attn.k.weight"),
    ("blk.0.attn_v.weight", "blocks.0.attn.v.weight"),
    ("blk.0.attn_output.weight", "blocks.0.attn.o.weight"),
    ("blk.0.ffn_norm.weight", "blocks.0.mlp_norm.weight"),
    ("blk.0.ffn_gate.weight", "blocks.0.mlp.gate.weight"),
    ("blk.0.ffn_up.weight", "blocks.0.mlp.up.weight"),
    ("blk.0.ffn_down.weight", "blocks.0.mlp.down.weight"),
]


GGUF_METADATA = {
    "embedding_length": 8,
    "block_count": 1,
    "context_length": 4,
    "feed_forward_length": 4,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.tokens": list("abcdefg"),
}


@pytest.fixture(scope="session")
def victims(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path, Path]]:
    """Format -> what is loaded, the file that is corrupted, a whole copy of it."""
    home = tmp_path_factory.mktemp("victims")
    params = draw(Config(vocab_size=7, n_layers=1, d_model=8, d_ff=4, n_heads=2, n_kv_heads=1, max_seq_len=4))
    tinyxp.save(params, home / "config")
    tinyxp.save(params, home / "weights")
    tinyxp.save(params, home / "index")
    names = [info.name for info in describe(home / "index")]
    (home / "index" / "model.safetensors").rename(home / "index" / "one.safetensors")
    index = json.dumps({"weight_map": dict.fromkeys(names, "one.safetensors")})
    (home / "index" / "model.safetensors.index.json").write_text(index)
    tinyxp.save(params, home / "m.npz")
    head = np.array([8, 4, 1, 2, 1, 7, 4], "<i4").tobytes()
    (home / "m.bin").write_bytes(head + bytes(4 * (56 + 8 + 64 + 32 + 32 + 64 + 8 + 3 * 32 + 8 + 16)))
    tensors = {theirs: params[ours] for theirs, ours in GGUF_NAMES}
    write_gguf(home / "m.gguf", "llama", GGUF_METADATA, tensors)
    found = {
        "config": (home / "config", home / "config" / "config.json"),
        "weights": (home / "weights", home / "weights" / "model.safetensors"),
        "index": (home / "index", home / "index" / "model.safetensors.index.json"),
        **{suffix: (home / f"m.{suffix}", home / f"m.{suffix}") for suffix in ("npz", "bin", "gguf")},
    }
    for path, _ in found.values():
        assert tinyxp.load(path).config == params.config or path.suffix == ".bin"
    copies = {name: home / f"whole.{name}" for name in found}
    for name, (_, file) in found.items():
        copies[name].write_bytes(file.read_bytes())
    return {name: (path, file, copies[name]) for name, (path, file) in found.items()}


@pytest.mark.parametrize("name", ["config", "weights", "index", "npz", "bin", "gguf"])
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS)
def test_corrupt_files_load_or_raise_one_error(
    name: str, victims: dict[str, tuple[Path, Path, Path]], edits: list[tuple[str, int, bytes]]
) -> None:
    path, file, whole = victims[name]
    data = whole.read_bytes()
    file.write_bytes(corrupt(data, edits))
    try:
        with bounded_work():
            params = tinyxp.load(path)
        message = f"{file.parent} gave {params}"
        assert sum(x.nbytes for x in params.values()) <= 2 * len(data) + 10_000
    except ValueError as error:  # CheckpointError and UnsupportedModelError among them
        message = str(error)
    finally:
        file.write_bytes(data)
    assert str(file.parent) in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["weights", "npz", "bin", "gguf"])
def test_every_truncation_is_noticed(name: str, victims: dict[str, tuple[Path, Path, Path]]) -> None:
    path, file, whole = victims[name]
    data = whole.read_bytes()
    for length in range(0, len(data), max(len(data) // 200, 1)):
        file.write_bytes(data[:length])
        with pytest.raises(CheckpointError):
            tinyxp.load(path)
    file.write_bytes(data)
