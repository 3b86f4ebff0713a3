"""llama2.c's .bin: the story model bit for bit as its Hugging Face folder, and files made here."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

import tinyxp
from tinyxp import CheckpointError, Config, Params
from tinyxp.formats import describe

from .files import SIZES, draw

ORDER = ("attn_norm", "attn.q", "attn.k", "attn.v", "attn.o", "mlp_norm", "mlp.gate", "mlp.down", "mlp.up")


def to_bin(params: Params) -> bytes:
    c = params.config
    vocab = c.vocab_size if c.tie_embeddings else -c.vocab_size
    parts = [params["embed.weight"]]
    for name in ORDER:
        for i in range(c.n_layers):
            x = params[f"blocks.{i}.{name}.weight"]
            if name in ("attn.q", "attn.k"):  # head, half, row -> head, row, half
                x = x.reshape(-1, 2, c.head_dim // 2, c.d_model).swapaxes(1, 2)
            parts.append(x)
    parts += [params["final_norm.weight"], np.zeros((2, c.max_seq_len, c.head_dim // 2))]
    if not c.tie_embeddings:
        parts.append(params["head.weight"])
    head = struct.pack("<7i", c.d_model, c.d_ff, c.n_layers, c.n_heads, c.n_kv_heads, vocab, c.max_seq_len)
    return head + b"".join(np.asarray(x, "<f4").tobytes() for x in parts)


@pytest.mark.parametrize("tied", [True, False])
def test_reads(tied: bool, tmp_path: Path) -> None:
    params = draw(Config(**SIZES, tie_embeddings=tied))
    (tmp_path / "m.bin").write_bytes(to_bin(params))
    loaded = tinyxp.load(tmp_path / "m.bin")
    assert loaded.config == params.config
    assert all(np.array_equal(loaded[name], params[name]) for name in params)
    info = {i.name: i for i in describe(tmp_path / "m.bin")}
    assert info["wk[1]"].steps == ("rows un-permuted, 2 heads",)
    assert info["wk[1]"].ours == ("blocks.1.attn.k.weight",)
    assert info["freqs_cos"].steps == ("skipped: rotary table",)
    assert ("wcls" in info) is not tied


def test_the_story_model_is_the_same_bit_for_bit(test_data: Path) -> None:
    folder = tinyxp.load(test_data / "stories260k")
    binary = tinyxp.load(test_data / "stories260k" / "stories260K.bin")
    assert binary.config == folder.config
    assert all(np.array_equal(binary[name], folder[name]) for name in folder)


def test_the_size_must_be_exact(tmp_path: Path) -> None:
    data = to_bin(draw(Config(**SIZES)))
    for bad in (data[:-1], data + b"\0", data[:-4], data[:100], data[:28]):
        (tmp_path / "m.bin").write_bytes(bad)
        with pytest.raises(CheckpointError, match=f"m.bin: is {len(bad):,} bytes long; its llama2.c header"):
            tinyxp.load(tmp_path / "m.bin")


@pytest.mark.parametrize(
    "head, says",
    [
        ((64, 172, 5, 8, 4, 512, 0), "seq_len is 0"),
        ((-64, 172, 5, 8, 4, 512, 512), "dim is -64"),
        ((64, 172, 5, 7, 7, 512, 512), "n_heads, 7"),
        ((64, 172, 5, 8, 3, 512, 512), "n_kv_heads is 3"),
        ((2**31 - 1, 2**31 - 1, 2**31 - 1, 1, 1, 2**31 - 1, 2**31 - 1), "head_dim"),
        ((2**30, 2**31 - 1, 2**31 - 1, 1, 1, 2**31 - 1, 2**31 - 1), "its llama2.c header says"),
        ((0x616B3432, 1, 1, 1, 1, 1, 1), "version 1 or 2"),
    ],
)
def test_bad_headers(head: tuple[int, ...], says: str, tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(struct.pack("<7i", *head) + bytes(100))
    with pytest.raises(CheckpointError, match=says):
        tinyxp.load(tmp_path / "m.bin")


def test_short_files(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(b"short")
    with pytest.raises(CheckpointError, match="5 bytes long"):
        tinyxp.load(tmp_path / "m.bin")


@pytest.mark.parametrize("width", [640, 896, 1152, 1408])
def test_a_width_whose_first_bytes_are_those_of_a_pickle(width: int, tmp_path: Path) -> None:
    config = Config(vocab_size=5, n_layers=1, d_model=width, n_heads=8, n_kv_heads=8, d_ff=4, max_seq_len=4)
    params = tinyxp.init(config)
    (tmp_path / "m.bin").write_bytes(to_bin(params))
    assert np.array_equal(tinyxp.load(tmp_path / "m.bin")["embed.weight"], params["embed.weight"])


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_are_rejected_whatever_their_protocol(protocol: int, tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(pickle.dumps({"model": [1.0] * 99}, protocol=protocol))
    with pytest.raises(CheckpointError, match="pickles are not read.*weights_only=True"):
        tinyxp.load(tmp_path / "m.bin")
