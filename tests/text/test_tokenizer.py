"""load_tokenizer: folders, files, names, and paths without a tokenizer."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tinyxp.errors import CheckpointError
from tinyxp.text.tokenizer import load_tokenizer

BIRDS = "Birds sing at dawn, and the valley wakes up."
BIRDS_IDS = [33, 11049, 1702, 379, 17577, 11, 290, 262, 19272, 34267, 510, 13]

Write = Callable[..., Path]
TOKENS = [(0.0, b"<unk>"), (0.0, b"<s>"), (0.0, b"</s>"), (0.0, b"a"), (0.0, b" ")]


@pytest.mark.parametrize(
    "form", ["folder", "tokenizer.json", "encoder.json", "vocab.bpe", "pair", "gpt2", "r50k_base"]
)
def test_gpt2_from_every_form(
    form: str, test_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = test_data / "gpt2-bpe"
    if form in ("folder", "tokenizer.json"):
        pytest.importorskip("tokenizers")
    path: str | Path = folder if form == "folder" else folder / form
    if form in ("gpt2", "r50k_base"):
        pytest.importorskip("tiktoken")
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder / "tiktoken-cache"))
        monkeypatch.chdir(tmp_path)
        path = form
    if form == "pair":
        shutil.copy(folder / "encoder.json", tmp_path / "vocab.json")
        shutil.copy(folder / "vocab.bpe", tmp_path / "merges.txt")
        path = tmp_path
    tokenizer = load_tokenizer(path)
    assert tokenizer.encode(BIRDS) == BIRDS_IDS
    assert tokenizer.decode(BIRDS_IDS) == BIRDS
    assert tokenizer.encode("a<|endoftext|>", specials=True) == [64, 50256]
    assert 50256 not in tokenizer.encode("a<|endoftext|>")
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_ids) == (50257, 50256, (50256,))
    assert not tokenizer.adds_bos


def test_a_folder_prefers_tokenizer_json(tmp_path: Path, byte_vocab: dict[str, int]) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps(byte_vocab))
    (tmp_path / "merges.txt").write_text("h e\nhe l\n")
    assert load_tokenizer(str(tmp_path)).encode("he") == [257]
    (tmp_path / "tokenizer.json").write_text("{}")
    pytest.importorskip("tokenizers")
    with pytest.raises(CheckpointError, match="has no model"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.bin", "tok512.bin"])
def test_a_folder_of_llama2c(write_llama2c: Write, name: str) -> None:
    path = write_llama2c(TOKENS, name)
    assert load_tokenizer(path.parent).encode("a") == [1, 4, 3]
    (path.parent / "stories.bin").write_bytes(b"weights")
    assert load_tokenizer(path.parent).encode("a") == [1, 4, 3]


def test_a_folder_of_two_llama2c_files(write_llama2c: Write) -> None:
    write_llama2c(TOKENS, "tok512.bin")
    path = write_llama2c(TOKENS, "tok4096.bin")
    with pytest.raises(CheckpointError, match=r"has tok4096\.bin, tok512\.bin; name the one"):
        load_tokenizer(path.parent)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text("{}")
    looked_for = (
        r"looked for tokenizer\.json, vocab\.json or encoder\.json with merges\.txt or vocab\.bpe, "
        r"tokenizer\.bin, tok\*\.bin"
    )
    with pytest.raises(CheckpointError, match=looked_for):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vocab.json", r"needs merges\.txt or vocab\.bpe beside it"),
        ("vocab.bpe", r"needs vocab\.json or encoder\.json beside it"),
        ("tokenizer.model", r"\.model is not one of \.json, \.gguf, \.bin, \.tiktoken"),
        ("tokenizer", "no suffix is not one of"),
    ],
)
def test_files_that_are_not_enough(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(CheckpointError, match=message):
        load_tokenizer(tmp_path / name)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"nothing\.json: no such file or folder, and no encoding \(gpt2"
    ):
        load_tokenizer(tmp_path / "nothing.json")


def test_paths_that_cannot_be_looked_at(tmp_path: Path) -> None:
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    for path, message in ((loop, "symbolic links"), ("a\0b.gguf", "null"), ("x" * 5000, "too long")):
        with pytest.raises(CheckpointError, match=message) as caught:
            load_tokenizer(path)
        assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("name", ["vocab.json", "tok.bin", "m.tiktoken"])
def test_weights_named_by_mistake_are_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "merges.txt").write_text("a b")
    with (tmp_path / name).open("wb") as file:
        file.truncate(2**30 + 1)  # a hole, which takes no space
    with pytest.raises(CheckpointError, match=rf"{name}: is 1,073,741,825 bytes long"):
        load_tokenizer(tmp_path / name)


def test_a_suffix_may_be_capital(write_llama2c: Write) -> None:
    assert load_tokenizer(write_llama2c(TOKENS, "tok.BIN")).encode("a") == [1, 4, 3]


def test_a_path_comes_before_an_encoding(
    write_llama2c: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpt2").mkdir()
    write_llama2c(TOKENS, "gpt2/tok.bin")
    monkeypatch.chdir(tmp_path)
    assert load_tokenizer("gpt2").vocab_size == len(TOKENS)


def test_the_import_is_cheap() -> None:
    heavy = ["gguf", "tokenizers", "tiktoken", "regex", "torch", "jax"]
    code = (
        "import sys; before = set(sys.modules); import tinyxp.text.tokenizer; "
        f"print(sorted(set({heavy}) & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
