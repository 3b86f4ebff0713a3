"""GGUF: small files of the gguf package's own writer, transformers' reader of them, and SmolLM2."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

import tinyxp
from tinyxp import CheckpointError, Config, Params, UnsupportedModelError
from tinyxp.checkpoints import describe, load_config
from tinyxp.checkpoints.files import map_file
from tinyxp.checkpoints.gguf_header import read_header
from tinyxp.config import GPT2, RopeScaling
from tinyxp.model import rope_frequencies

CLASSES = {
    "llama": transformers.LlamaConfig,
    "qwen2": transformers.Qwen2Config,
    "gpt2": transformers.GPT2Config,
}
Write = Callable[..., Path]

NAMES = {
    "embed": "token_embd",
    "pos_embed": "position_embd",
    "final_norm": "output_norm",
    "head": "output",
    "attn_norm": "attn_norm",
    "attn.q": "attn_q",
    "attn.k": "attn_k",
    "attn.v": "attn_v",
    "attn.o": "attn_output",
    "mlp_norm": "ffn_norm",
    "mlp.gate": "ffn_gate",
    "mlp.up": "ffn_up",
    "mlp.down": "ffn_down",
}
ARCHITECTURES = {
    "llama": {},
    "llama tied": {"tie_embeddings": True},
    "llama biases": {"attn_bias": True, "attn_out_bias": True, "mlp_bias": True},
    "qwen2": {"attn_bias": True, "norm_eps": 1e-6, "rope_theta": 1e6},
    "gpt2": GPT2 | {"n_kv_heads": 4},
    "gpt2 untied": GPT2 | {"n_kv_heads": 4, "tie_embeddings": False},
}


def interleaved(x: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows of each head as llama.cpp's converter orders them: 0, hd/2, 1, hd/2 + 1, ..."""
    order = [i // 2 + (i % 2) * head_dim // 2 for i in range(head_dim)]
    rows = [head * head_dim + i for head in range(len(x) // head_dim) for i in order]
    return x[rows]


def to_gguf(params: Params, architecture: str) -> dict[str, np.ndarray]:
    config, tensors = params.config, {}
    for name, x in params.items():
        ours, end = name.rsplit(".", 1)
        part = ours.split(".", 2)[-1] if ours.startswith("blocks.") else ours
        if architecture == "llama" and part in ("attn.q", "attn.k"):
            x = interleaved(x, config.head_dim)
        prefix = f"blk.{ours.split('.')[1]}." if ours.startswith("blocks.") else ""
        tensors[f"{prefix}{NAMES[part]}.{end}"] = np.ascontiguousarray(x)
    if architecture == "gpt2":
        for i in range(config.n_layers):
            for end in ("weight", "bias"):
                parts = [tensors.pop(f"blk.{i}.attn_{x}.{end}") for x in "qkv"]
                tensors[f"blk.{i}.attn_qkv.{end}"] = np.concatenate(parts)
    return tensors


def metadata_of(config: Config, architecture: str) -> dict[str, Any]:
    found = {
        "embedding_length": config.d_model,
        "block_count": config.n_layers,
        "context_length": config.max_seq_len,
        "feed_forward_length": config.d_ff,
        "attention.head_count": config.n_heads,
        "vocab_size": config.vocab_size,
    }
    if architecture == "gpt2":
        return found | {"attention.layer_norm_epsilon": config.norm_eps}
    return found | {
        "attention.head_count_kv": config.n_kv_heads,
        "attention.layer_norm_rms_epsilon": config.norm_eps,
        "rope.freq_base": config.rope_theta,
    }


@pytest.fixture(scope="session")
def llama(draw: Callable[..., Params], sizes: dict[str, Any]) -> Params:
    return draw(Config(**sizes))


def equal(a: Params, b: Params) -> bool:
    return a.config == b.config and all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures(
    name: str, write_gguf: Write, draw: Callable[..., Params], sizes: dict[str, Any], tmp_path: Path
) -> None:
    architecture = name.split()[0]
    params = draw(Config(**(sizes | ARCHITECTURES[name])))
    metadata = metadata_of(params.config, architecture)
    path = write_gguf(tmp_path / "m.gguf", architecture, metadata, to_gguf(params, architecture))
    loaded = tinyxp.load(path)
    assert loaded.config == params.config
    assert equal(loaded, params)
    assert load_config(path) == params.config


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2"])
def test_transformers_reads_the_same_model(
    name: str, write_gguf: Write, draw: Callable[..., Params], sizes: dict[str, Any], tmp_path: Path
) -> None:
    params = draw(Config(**(sizes | ARCHITECTURES[name])))
    path = write_gguf(tmp_path / "m.gguf", name, metadata_of(params.config, name), to_gguf(params, name))
    values = params.config.to_hf()
    theirs = transformers.AutoModelForCausalLM.from_config(CLASSES[name](**values))
    tensors = load_gguf_checkpoint(path, return_tensors=True, model_to_load=theirs)["tensors"]
    if name == "gpt2":
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"]
    theirs.load_state_dict(tensors)
    theirs.eval()
    ids = np.arange(20)[None] % params.config.vocab_size
    with torch.no_grad():
        expected = theirs(torch.tensor(ids)).logits.numpy()
    assert np.abs(tinyxp.forward(tinyxp.load(path), ids) - expected).max() < 1e-4


def test_row_order_by_hand() -> None:
    assert interleaved(np.arange(8), 8).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]


def test_quantised_weights_and_what_is_said_of_them(
    write_gguf: Write, draw: Callable[..., Params], tmp_path: Path
) -> None:
    config = Config(vocab_size=5, n_layers=1, d_model=32, d_ff=64, n_heads=4, n_kv_heads=2)
    params = draw(config)
    tensors: dict[str, Any] = to_gguf(params, "llama")
    kinds = {
        "blk.0.ffn_up.weight": gguf.GGMLQuantizationType.Q4_1,
        "blk.0.attn_k.weight": gguf.GGMLQuantizationType.Q8_0,
        "output.weight": gguf.GGMLQuantizationType.BF16,
    }
    exact = dict(tensors)
    for name, kind in kinds.items():
        blocks = gguf.quants.quantize(tensors[name], kind)
        tensors[name], exact[name] = (blocks, kind), gguf.quants.dequantize(blocks, kind)
    tensors["token_embd.weight"] = tensors["token_embd.weight"].astype(np.float16)
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata_of(config, "llama"), tensors)
    loaded = tinyxp.load(path)
    assert {x.dtype for x in loaded.values()} == {np.dtype(np.float32)}
    # The k rows were permuted before they were quantised, block by block along the row.
    assert np.array_equal(interleaved(loaded["blocks.0.attn.k.weight"], 8), exact["blk.0.attn_k.weight"])
    assert np.array_equal(loaded["blocks.0.mlp.up.weight"], exact["blk.0.ffn_up.weight"])
    assert np.array_equal(loaded["head.weight"], exact["output.weight"])
    assert 0 < np.abs(loaded["blocks.0.mlp.up.weight"] - params["blocks.0.mlp.up.weight"]).max() < 0.1

    info = {i.name: i for i in describe(path)}
    assert info["blk.0.attn_k.weight"].steps == ("dequantised", "rows un-permuted, 2 heads")
    assert info["blk.0.attn_k.weight"].shape == (16, 32)
    assert info["blk.0.attn_k.weight"].nbytes == 16 * 34
    assert info["blk.0.attn_q.weight"].steps == ("rows un-permuted, 4 heads",)
    assert info["blk.0.ffn_up.weight"].dtype == "Q4_1"
    assert info["output.weight"].ours == ("head.weight",)


def test_plain_files_keep_their_dtypes(write_gguf: Write, llama: Params, tmp_path: Path) -> None:
    tensors: dict[str, Any] = to_gguf(llama, "llama")
    for name, x in tensors.items():
        if x.ndim == 2:
            tensors[name] = x.astype(np.float16)
    bits = gguf.quants.quantize(to_gguf(llama, "llama")["output.weight"], gguf.GGMLQuantizationType.BF16)
    tensors["output.weight"] = (bits, gguf.GGMLQuantizationType.BF16)
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata_of(llama.config, "llama"), tensors)
    loaded = tinyxp.load(path, xp=torch)
    assert loaded["embed.weight"].dtype == torch.float16
    assert loaded["final_norm.weight"].dtype == torch.float32
    assert loaded["head.weight"].dtype == torch.bfloat16
    assert tinyxp.load(path)["head.weight"].dtype == np.float32


def factors_of(config: Config) -> np.ndarray:
    plain = np.array(rope_frequencies(replace(config, rope_scaling=None)))
    return (plain / np.array(rope_frequencies(config))).astype(np.float32)


@pytest.mark.parametrize(
    "scaling, head_dim, theta",
    [
        ({"rope_type": "llama3", "factor": 32.0}, 64, 5e5),  # Llama 3.2
        ({"rope_type": "llama3", "factor": 8.0}, 128, 5e5),  # Llama 3.1
        ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0, "high_freq_factor": 16.0}, 128, 5e5),
        ({"rope_type": "llama3", "factor": 3.3, "low_freq_factor": 0.7, "high_freq_factor": 9.1}, 64, 1e5),
        ({"rope_type": "linear", "factor": 4.0}, 8, 1e4),
    ],
)
def test_scaling_is_derived_from_rope_freqs(
    scaling: dict[str, Any],
    head_dim: int,
    theta: float,
    write_gguf: Write,
    draw: Callable[..., Params],
    sizes: dict[str, Any],
    tmp_path: Path,
) -> None:
    config = Config(**sizes, head_dim=head_dim, rope_theta=theta, rope_scaling=RopeScaling(**scaling))
    params = draw(config)
    tensors = to_gguf(params, "llama") | {"rope_freqs.weight": factors_of(config)}
    metadata = metadata_of(config, "llama") | {
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
    }
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata, tensors)
    assert tinyxp.load(path).config == config
    assert {i.name: i.steps for i in describe(path)}["rope_freqs.weight"] == ("skipped: became rope_scaling",)


def test_scaling_of_another_form_is_refused(
    write_gguf: Write, llama: Params, draw: Callable[..., Params], sizes: dict[str, Any], tmp_path: Path
) -> None:
    config = Config(**sizes, head_dim=64)
    params = draw(config)
    metadata = metadata_of(config, "llama") | {"attention.key_length": 64, "attention.value_length": 64}
    good = factors_of(replace(config, rope_scaling=RopeScaling(rope_type="llama3", factor=8.0)))
    bent = good.copy()
    bent[np.flatnonzero((good > 1) & (good < 8))[0]] *= 1.001
    for bad in (bent, good[:-1], good * np.float32(0.5), np.full(32, np.nan, np.float32), good[::-1].copy()):
        path = write_gguf(
            tmp_path / "m.gguf", "llama", metadata, to_gguf(params, "llama") | {"rope_freqs.weight": bad}
        )
        with pytest.raises(UnsupportedModelError, match=r"rope_freqs\.weight"):
            tinyxp.load(path)


def test_scaling_of_a_bad_length(write_gguf: Write, llama: Params, tmp_path: Path) -> None:
    tensors = to_gguf(llama, "llama") | {"rope_freqs.weight": np.array([1, 2, 4], np.float32)}
    metadata = metadata_of(llama.config, "llama") | {"rope.scaling.original_context_length": "many"}
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata, tensors)
    with pytest.raises(
        CheckpointError, match=r"m\.gguf: llama\.rope\.scaling\.original_context_length is 'many'"
    ):
        tinyxp.load(path)


def test_scaling_must_be_float32(write_gguf: Write, llama: Params, tmp_path: Path) -> None:
    tensors = to_gguf(llama, "llama") | {"rope_freqs.weight": np.ones(3, np.float16)}
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata_of(llama.config, "llama"), tensors)
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight has dtype F16"):
        tinyxp.load(path)


@pytest.mark.parametrize(
    "extra, scaling",
    [
        (
            {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
            RopeScaling(rope_type="linear", factor=4.0),
        ),
        ({"rope.scale_linear": 2.0}, RopeScaling(rope_type="linear", factor=2.0)),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, None),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 1.0}, None),
        ({"rope.dimension_count": 6, "attention.key_length": 6, "attention.value_length": 6}, None),
        ({"expert_count": 0, "expert_used_count": 0, "attention.sliding_window": 32}, None),
        ({"attention.head_count": [4, 4], "feed_forward_length": [20, 20]}, None),
        ({"attention.scale": 6**-0.5, "attention.causal": True, "logit_scale": 1.0}, None),
        ({"tokenizer.ggml.tokens": ["a", "b"], "general.quantization_version": 2}, None),
    ],
)
def test_metadata_that_is_taken(
    extra: dict[str, Any], scaling: RopeScaling | None, write_gguf: Write, llama: Params, tmp_path: Path
) -> None:
    metadata = metadata_of(llama.config, "llama") | extra
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata, to_gguf(llama, "llama"))
    assert tinyxp.load(path).config == replace(llama.config, rope_scaling=scaling)


@pytest.mark.parametrize(
    "key, value",
    [
        ("rope.scaling.type", "yarn"),
        ("rope.scaling.type", "longrope"),
        ("rope.dimension_count", 4),
        ("attention.value_length", 4),
        ("attention.sliding_window", 8),
        ("attention.scale", 1.0),
        ("attention.causal", False),
        ("expert_count", 8),
        ("expert_used_count", 2),
        ("attn_logit_softcapping", 50.0),
        ("final_logit_softcapping", 30.0),
        ("logit_scale", 0.5),
        ("embedding_scale", 12.0),
        ("residual_scale", 0.22),
        ("attention.clamp_kqv", 8.0),
        ("attention.max_alibi_bias", 8.0),
        ("rope.scaling.attn_factor", 1.2),
        ("rope.dimension_sections", [2, 2, 2]),
        ("feed_forward_length", [20, 24]),
        ("attention.head_count_kv", [2, 1]),
    ],
)
def test_metadata_that_is_refused(
    key: str, value: Any, write_gguf: Write, llama: Params, tmp_path: Path
) -> None:
    metadata = metadata_of(llama.config, "llama") | {key: value}
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata, to_gguf(llama, "llama"))
    with pytest.raises(UnsupportedModelError, match=f"llama.{key} is "):
        tinyxp.load(path)


@pytest.mark.parametrize("architecture", ["gemma2", "qwen3", "phi3"])
def test_other_architectures(architecture: str, write_gguf: Write, llama: Params, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", architecture, {}, to_gguf(llama, "llama"))
    with pytest.raises(UnsupportedModelError, match=rf"m\.gguf: general\.architecture is '{architecture}'"):
        tinyxp.load(path)


@pytest.mark.parametrize("key", ["block_count", "embedding_length", "attention.head_count", "context_length"])
@pytest.mark.parametrize("value", [None, 0, "many", 1.5])
def test_bad_metadata(key: str, value: Any, write_gguf: Write, llama: Params, tmp_path: Path) -> None:
    metadata = {k: v for k, v in metadata_of(llama.config, "llama").items() if k != key}
    metadata |= {} if value is None else {key: value}
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata, to_gguf(llama, "llama"))
    with pytest.raises(CheckpointError, match=rf"m\.gguf: llama\.{key} is"):
        tinyxp.load(path)


def test_missing_unknown_and_misshapen_tensors(write_gguf: Write, llama: Params, tmp_path: Path) -> None:
    metadata = metadata_of(llama.config, "llama")
    tensors = to_gguf(llama, "llama")
    for change, says in (
        ({"blk.0.attn_q.weight": None}, r"missing blk\.0\.attn_q\.weight"),
        ({"blk.0.attn_q_norm.weight": np.ones(6, np.float32)}, r"unknown blk\.0\.attn_q_norm\.weight"),
        ({"blk.0.attn_k.weight": np.ones((24, 12), np.float32)}, r"attn_k\.weight has shape \(24, 12\)"),
        ({"output_norm.weight": np.ones(24, np.int32)}, r"output_norm\.weight has dtype I32"),
        ({"token_embd.weight": None}, r"token_embd\.weight is missing"),
    ):
        changed = {name: x for name, x in (tensors | change).items() if x is not None}
        path = write_gguf(tmp_path / "m.gguf", "llama", metadata, changed)
        with pytest.raises(CheckpointError, match=says):
            tinyxp.load(path)
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata | {"block_count": 2**31}, tensors)
    with pytest.raises(CheckpointError, match="2,147,483,648 layers"):
        tinyxp.load(path)


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


HEAD = b"GGUF" + struct.pack("<I", 3)
ONE_PAIR = HEAD + struct.pack("<QQ", 0, 1)
ONE_TENSOR = HEAD + struct.pack("<QQ", 1, 0)


@pytest.mark.parametrize(
    "data, says",
    [
        (b"GGML" + bytes(60), "not a GGUF file"),
        (b"GGUF", "claims 4 bytes"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(60), "version 1"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(60), "big-endian"),
        (HEAD + struct.pack("<QQ", 2**60, 0) + bytes(60), "twice|claims"),
        (HEAD + struct.pack("<QQ", 0, 2**63) + bytes(60), "twice|claims"),
        (ONE_PAIR + struct.pack("<Q", 2**62), "claims"),
        # An array of 2**61 numbers keeps GGUFReader busy for ever.
        (ONE_PAIR + string("a") + struct.pack("<IIQ", 9, 4, 2**61), "claims a list"),
        (ONE_PAIR + string("a") + struct.pack("<IIQ", 9, 8, 2**61), "claims a list"),
        (ONE_PAIR + string("a") + struct.pack("<IIQ", 9, 4, 2**20), "claims 4,194,304"),
        (ONE_PAIR + string("a") + struct.pack("<IIQ", 9, 8, 2**20), "claims 8 bytes"),
        (ONE_PAIR + string("a") + struct.pack("<IIQ", 9, 9, 1), "type 9"),
        (ONE_PAIR + string("a") + struct.pack("<I", 99), "key 'a' has a value of type 99"),
        (ONE_PAIR + string("a\n") + struct.pack("<I", 99), r"'a\\n'"),
        (ONE_TENSOR + string("t") + struct.pack("<I", 2**31), "dimensions"),
        (ONE_TENSOR + string("t") + struct.pack("<I4QIQ", 4, *[2**40] * 4, 0, 0), "shape"),
        (ONE_TENSOR + string("t") + struct.pack("<IQIQ", 1, 2**50, 0, 0), "truncated"),
        (ONE_TENSOR + string("t") + struct.pack("<IQIQ", 1, 4, 77, 0), "ggml type 77"),
        (ONE_TENSOR + string("t") + struct.pack("<IQIQ", 1, 4, 2, 0), "blocks of 32"),
        (ONE_PAIR + string("general.alignment") + struct.pack("<II", 4, 0), "alignment"),
        (ONE_PAIR + struct.pack("<Q", 1) + b"\xff" + struct.pack("<II", 4, 0), "UTF-8"),
    ],
)
def test_hostile_headers(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=says) as caught:
        tinyxp.load(path)
    assert str(path) in str(caught.value)


def test_lists_of_strings_are_read_when_asked_for(write_gguf: Write, tmp_path: Path) -> None:
    values = {"b": True, "i": 7, "f": 0.5, "s": "é", "l": ["x", ""], "n": [1, -2], "g": [0.5]}
    path = write_gguf(tmp_path / "m.gguf", "llama", values, {"a": np.ones((2, 3), np.float32)})
    expected = {"general.architecture": "llama", **{f"llama.{key}": value for key, value in values.items()}}
    header = read_header(map_file(path), string_lists=True)
    assert header.metadata == expected
    assert [type(value) for value in header.metadata.values()] == [type(value) for value in expected.values()]
    assert header.tensors["a"].shape == (2, 3)
    del expected["llama.l"]
    assert read_header(map_file(path)) == (expected, header.tensors)


def test_tensors_that_overlap(tmp_path: Path) -> None:
    tensors = b"".join(string(name) + struct.pack("<IQIQ", 1, 8, 0, at) for name, at in (("a", 0), ("b", 16)))
    (tmp_path / "m.gguf").write_bytes(HEAD + struct.pack("<QQ", 2, 0) + tensors + bytes(256))
    with pytest.raises(CheckpointError, match=r"tensor b starts at byte .* inside a"):
        tinyxp.load(tmp_path / "m.gguf")


def test_smollm2(smollm2_gguf: Path, test_data: Path) -> None:
    params = tinyxp.load(smollm2_gguf)
    assert params.config == Config.preset("smollm2-135m")
    assert sum(x.size for x in params.values()) == 134_515_008
    reference = json.loads((test_data / "smollm2" / "reference.json").read_text())
    for case in reference if isinstance(reference, list) else reference["prompts"]:
        logits = tinyxp.forward(params, [case["ids"]])[0, -1]
        for token, logit, _ in case["top5"]:
            assert abs(logits[token] - logit) < 1e-3
        assert int(np.argmax(logits)) == case["top5"][0][0]
