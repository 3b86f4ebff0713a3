"""BOS and EOS from the files beside a vocabulary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tinyxp.errors import CheckpointError
from tinyxp.text.specials import SpecialIds, read_special_ids

VOCAB = {"<s>": 1, "</s>": 2, "<|eot|>": 3}


def test_nothing_is_said(tmp_path: Path) -> None:
    assert read_special_ids(tmp_path, VOCAB) == SpecialIds(None, ())
    assert read_special_ids(tmp_path, VOCAB | {"<|endoftext|>": 7}) == SpecialIds(7, (7,))


def test_the_config_decides(tmp_path: Path) -> None:
    write(tmp_path, "tokenizer_config", {"bos_token": None, "eos_token": {"content": "</s>"}})
    assert read_special_ids(tmp_path, VOCAB | {"<|endoftext|>": 7}) == SpecialIds(None, (2,))
    write(tmp_path, "tokenizer_config", {"bos_token": "<s>", "add_bos_token": False})
    assert read_special_ids(tmp_path, VOCAB) == SpecialIds(1, (), False)


@pytest.mark.parametrize(("ending", "ids"), [(3, (2, 3)), ([2, 3], (2, 2, 3)), (None, (2,))])
def test_generation_config_adds_ends(tmp_path: Path, ending: Any, ids: tuple[int, ...]) -> None:
    write(tmp_path, "tokenizer_config", {"eos_token": "</s>"})
    write(tmp_path, "generation_config", {"eos_token_id": ending})
    assert read_special_ids(tmp_path, VOCAB).eos_ids == ids


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer_config", {"bos_token": "<x>"}, "bos_token '<x>' is not in the vocabulary"),
        ("tokenizer_config", {"eos_token": 2}, "eos_token 2 is not in the vocabulary"),
        ("tokenizer_config", {"add_bos_token": "yes"}, "add_bos_token is 'yes'; it must be true or false"),
        ("tokenizer_config", [], "holds a JSON list"),
        ("generation_config", {"eos_token_id": [9]}, "eos_token_id 9 is not in the vocabulary"),
        ("generation_config", {"eos_token_id": True}, "eos_token_id True"),
        ("generation_config", {"eos_token_id": {}}, "eos_token_id {}"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: Any, message: str) -> None:
    write(tmp_path, name, content)
    with pytest.raises(CheckpointError, match=f"{name}.json: {message}"):
        read_special_ids(tmp_path, VOCAB)


def write(folder: Path, name: str, content: Any) -> None:
    (folder / f"{name}.json").write_text(json.dumps(content))
