"""Sides and files that want to be taken for what they are not."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tinyxp
from tests.reference import GPT2_CONFIG, IDS, LLAMA_CONFIG, drawn
from tinyxp.cli.commands import cli
from tinyxp.doctor import compare, diagnose, parse
from tinyxp.doctor.faults import list_faults
from tinyxp.files import replacing


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tinyxp.save(drawn(LLAMA_CONFIG), tmp_path / "model")
    return tmp_path / "model"


def port(folder: Path, name: str, body: str) -> str:
    (folder / f"{name}.py").write_text(f"import numpy as np\nimport tinyxp\n{body}\n")
    return f"{folder / name}.py:f"


def test_a_mask_without_a_real_token_compares_nothing() -> None:
    params = drawn(LLAMA_CONFIG)
    with pytest.raises(ValueError, match="mask has no real token"):
        compare(params, params, IDS, mask=np.zeros((1, 5), bool))


def test_two_ports_have_each_their_own_helper(tmp_path: Path) -> None:
    found = []
    for name, value in (("a", 1.0), ("b", 2.0)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "helper_of_both.py").write_text(f"VALUE = {value}\n")
        body = "from helper_of_both import VALUE\ndef f(ids):\n    return np.full((*ids.shape, 11), VALUE)"
        found.append(port(folder, "port", body))
    a, b = (parse(text).trace(compare_batch()).points["logits"] for text in found)
    assert (a.max(), b.max()) == (1.0, 2.0)


def compare_batch() -> Any:
    from tinyxp.doctor import Batch

    return Batch(np.array(IDS))


def test_the_truth_is_as_exact_as_the_file(tmp_path: Path) -> None:
    """The trusted side runs in fewer digits than its file has; the other does not."""
    tinyxp.save(drawn(LLAMA_CONFIG).to(dtype="float64"), tmp_path / "wide")
    found = compare(f"{tmp_path}/wide@:float32", f"{tmp_path}/wide@:float64", IDS)
    assert found.agrees
    row = found.row("logits")
    assert row is not None
    assert row.error_b is not None
    assert row.error_b.worst == 0.0


@pytest.mark.parametrize("body", ["raise SystemExit(0)", "1 / 0", "assert False", "{}['x']"])
@pytest.mark.parametrize("where", ["call", "import"])
def test_whatever_a_port_raises_is_one_line(model: Path, tmp_path: Path, body: str, where: str) -> None:
    text = f"def f(ids):\n    {body}" if where == "call" else f"{body}\ndef f(ids): pass"
    side = port(tmp_path, f"port_{where}", text)
    with pytest.raises(
        ValueError, match=rf"{where if where == 'import' else 'raised'}.*\(port_{where}.py:\d+\)"
    ):
        compare(str(model), side, IDS)
    assert isinstance(CliRunner().invoke(cli, ["diff", str(model), side]).exception, ValueError)


def test_a_port_that_prints_does_not_spoil_json(model: Path, tmp_path: Path) -> None:
    body = "print('loading')\ndef f(ids):\n    print('called')\n    return np.full((*ids.shape, 11), np.nan)"
    found = CliRunner().invoke(cli, ["diff", str(model), port(tmp_path, "prints", body), "--json"])
    record = json.loads(found.stdout, parse_constant=pytest.fail)  # NaN is no JSON
    assert record["agrees"] is False
    assert record["token"]["margin_b"] is None
    assert "loading" in found.stderr


def test_a_port_that_asks_for_its_mask_gets_one(model: Path) -> None:
    params = drawn(LLAMA_CONFIG)

    def asks(ids: np.ndarray, mask: np.ndarray) -> Any:
        assert mask.all()
        return tinyxp.forward(params, ids, mask=mask)

    assert compare(params, asks, IDS).agrees


def test_both_sides_may_be_at_fault_each_at_its_own_place() -> None:
    right = drawn(LLAMA_CONFIG)

    def wrong(point: str) -> Any:
        def trace(ids: np.ndarray) -> dict[str, Any]:
            points: dict[str, Any] = {}

            def tap(name: str, x: Any) -> Any:
                points[name] = 1.5 * x if name == point else x
                return points[name]

            tinyxp.forward(right, ids, tap=tap)
            return points

        return trace

    found = compare(right, wrong("blocks.1.mlp.out"), IDS)
    assert found.first is not None
    assert found.first.point == "blocks.1.mlp.out"
    turned = compare(wrong("blocks.0.attn.q"), right, IDS)
    assert turned.judged == "A"
    assert turned.first is not None
    assert (turned.first.point, turned.first.at_fault) == ("blocks.0.attn.q", "A")


def test_a_shape_of_a_is_a_fault_of_a() -> None:
    right = drawn(LLAMA_CONFIG)
    found = diagnose(lambda ids: np.zeros((*ids.shape, 7), np.float32), right, IDS)
    assert found.comparison.first is not None
    assert found.comparison.first.at_fault == "A"
    assert found.causes[0].sentence == "logits has shape (1, 5, 7); the right shape is (1, 5, 11)"


def test_a_model_of_another_width_is_called_another_model() -> None:
    wide = drawn(replace(LLAMA_CONFIG, d_model=12, head_dim=6))
    found = diagnose(drawn(LLAMA_CONFIG), wide, IDS)
    (cause,) = found.causes
    assert cause.sentence == "B is another model: its residual stream has width 12, this model's 8"
    assert cause.point == "embed"


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "5", None, True])
def test_seconds_are_a_number(seconds: Any) -> None:
    with pytest.raises(ValueError, match="seconds is .*; it must be a finite number of 0 or more"):
        diagnose(drawn(LLAMA_CONFIG), drawn(LLAMA_CONFIG), IDS, seconds=seconds)


def test_only_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path()):
        with pytest.raises(ValueError, match="is not a regular file"), replacing(path) as file:
            file.write(b"new")
    assert (tmp_path / "pipe").is_fifo()


def test_the_target_of_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    with replacing(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


@pytest.mark.parametrize("config", [GPT2_CONFIG, LLAMA_CONFIG], ids=["gpt2", "llama"])
def test_every_known_fault_has_a_key_of_its_own(config: tinyxp.Config) -> None:
    keys = [fault.key for fault in list_faults(config)]
    assert sorted({key for key in keys if keys.count(key) > 1}) == []
