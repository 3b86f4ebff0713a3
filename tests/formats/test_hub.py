"""Models of the Hugging Face hub, through a client that the tests replace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import tinyxp
from tinyxp import CheckpointError, Params
from tinyxp.formats import load_config

from .files import equal


def test_hub(folder: Path, llama: Params, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    asked: list[Any] = []

    def download(name: str, *, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(folder)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert equal(tinyxp.load("org/tiny-model"), llama)
    assert load_config("org/tiny-model") == llama.config
    assert [name for name, _ in asked] == ["org/tiny-model"] * 2
    assert "*.safetensors" in asked[0][1]
    assert "*.safetensors" not in asked[1][1]

    def offline(name: str, **options: object) -> str:
        raise huggingface_hub.errors.LocalEntryNotFoundError("Cannot reach the hub.\nMore lines.")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(CheckpointError, match=r"Cannot reach the hub.*pass its path") as caught:
        tinyxp.load("org/tiny-model")
    assert "\n" not in str(caught.value)
    # A path that exists is never looked up.
    tinyxp.save(llama, tmp_path / "org" / "tiny-model")
    assert equal(tinyxp.load("org/tiny-model"), llama)


def test_hub_without_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install 'tinyxp\[hf\]'"):
        tinyxp.load("org/tiny-model")
