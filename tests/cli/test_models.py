"""``tinyxp info`` and ``tinyxp convert``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

import tinyxp
from tinyxp.cli.models import estimate_costs
from tinyxp.config import Config
from tinyxp.formats import TensorInfo

from .running import Call

CONFIG = Config(n_layers=1)
MATRICES = 128 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32


def test_operations_of_a_token() -> None:
    costs = estimate_costs(CONFIG, [])
    assert costs["flops_per_token"] == 2 * MATRICES
    assert costs["flops_per_token_and_position_seen"] == 4 * 4 * 8
    assert costs["cache_bytes_per_token_float32"] == 2 * 4 * 2 * 8
    assert costs["float32_bytes"] == 4 * costs["parameters"]["total"]
    assert (costs["file_bytes"], costs["file_dtypes"]) == (0, {})


def test_every_bias_is_added_once() -> None:
    biased = replace(CONFIG, attn_bias=True, attn_out_bias=True, mlp_bias=True, head_bias=True)
    biases = 32 + 2 * 16 + 32 + 64 + 64 + 32 + 128
    assert estimate_costs(biased, [])["flops_per_token"] == 2 * MATRICES + biases


def test_bytes_of_a_file() -> None:
    tensors = [TensorInfo("a", (), (2,), dtype, n, ()) for dtype, n in (("F32", 8), ("Q4_1", 20), ("F32", 4))]
    costs = estimate_costs(CONFIG, tensors)
    assert costs["file_bytes"] == 32
    assert costs["file_dtypes"] == {"F32": 2, "Q4_1": 1}


def test_info_counts_parameters_bytes_cache_and_arithmetic(call: Call, tiny: Path) -> None:
    record = json.loads(call("info", tiny, "--json").stdout)
    assert record["config"]["d_model"] == 32
    assert record["parameters"]["total"] == 26_784
    assert record["float32_bytes"] == record["file_bytes"] == 4 * 26_784
    assert record["cache_bytes_per_token_float32"] == 2 * 2 * 2 * 8 * 4
    assert record["flops_per_token"] == 2 * (6_144 + 12_288 + 4_096)
    assert record["flops_per_token_and_position_seen"] == 2 * 4 * 4 * 8
    shown = call("info", tiny).stdout
    assert "26,784" in shown
    assert "vocab_size       128" in shown


def test_info_takes_a_preset(call: Call, tmp_path: Path) -> None:
    record = json.loads(call("info", "gpt2", "--json").stdout)
    assert record["parameters"]["total"] == 124_439_808
    assert call("info", "gpt-7").returncode == 2
    assert "is a preset" in call("info", "gpt2", "--parameters").stderr


def test_info_of_a_config_without_weights(call: Call, test_data: Path) -> None:
    done = call("info", test_data / "smollm2", "--json")
    assert json.loads(done.stdout)["parameters"]["total"] == 134_515_008
    assert "only the config can be read" in done.stderr
    assert call("info", test_data / "smollm2", "--parameters").returncode == 2


def test_arithmetic_counts_a_bias_once(call: Call) -> None:
    record = json.loads(call("info", "book", "--json").stdout)
    matrices = 4 * 12 * 128 * 128 + 8981 * 128
    assert record["flops_per_token"] == 2 * matrices + 4 * (3 * 128 + 128 + 512 + 128)


def test_info_parameters_shows_what_is_done_to_each_tensor(
    call: Call, stories: Path, test_data: Path
) -> None:
    lines = call("info", stories / "stories260K.bin", "--parameters").stdout.splitlines()
    (q,) = [line for line in lines if "blocks.0.attn.q.weight" in line]
    (k,) = [line for line in lines if "blocks.0.attn.k.weight" in line]
    assert "wq" in q
    assert "rows un-permuted, 8 heads" in q
    assert "rows un-permuted, 4 heads" in k
    record = json.loads(call("info", test_data / "gpt-nano-sort", "--parameters", "--json").stdout)
    (fused,) = [t for t in record["tensors"] if t["name"].endswith("h.0.attn.c_attn.weight")]
    assert fused["shape"] == [48, 144]
    assert len(fused["ours"]) == 3
    assert fused["steps"] == ["transposed", "split in 3"]


def test_convert_there_and_back(call: Call, tiny: Path, tmp_path: Path) -> None:
    assert call("convert", tiny, tmp_path / "m.npz").returncode == 0
    assert call("convert", tmp_path / "m.npz", tmp_path / "folder").returncode == 0
    before, after = tinyxp.load(tiny), tinyxp.load(tmp_path / "folder")
    assert before.config == after.config
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_convert_refuses_formats_that_are_not_written(call: Call, tiny: Path, tmp_path: Path) -> None:
    done = call("convert", tiny, tmp_path / "m.gguf")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_convert_refuses_to_write_over_a_model(call: Call, tiny: Path, tmp_path: Path) -> None:
    before = (tiny / "model.safetensors").read_bytes()
    for destination in (tiny, ""):
        done = call("convert", tiny, destination)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
    assert call("convert", tiny, tmp_path / "m.npz").returncode == 0
    assert "holds a model already" in call("convert", tiny, tmp_path / "m.npz").stderr
    assert (tiny / "model.safetensors").read_bytes() == before
