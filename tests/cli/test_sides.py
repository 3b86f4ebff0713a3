"""The arguments that ``tinyxp diff`` and ``tinyxp diagnose`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.doctor.models import IDS, llama, traced
from tinyxp.cli.sides import open_sides
from tinyxp.doctor import write_trace

NOTHING: dict[str, Any] = {"prompt": None, "ids": None, "pad": 0, "tokenizer": None, "threads": None}


def test_ids_are_parsed_row_by_row() -> None:
    inputs = open_sides("holmes", "holmes", **NOTHING | {"ids": "1, 2;3,4"})
    assert inputs.ids == [[1, 2], [3, 4]]
    assert inputs.mask is None
    assert (inputs.a.name, inputs.b.name) == ("holmes", "holmes")


def test_padding_is_put_before_the_ids_and_masked() -> None:
    inputs = open_sides("holmes", "holmes", **NOTHING | {"ids": "1,2", "pad": 2})
    assert inputs.ids.tolist() == [[0, 0, 1, 2]]
    assert inputs.mask.tolist() == [[False, False, True, True]]


def test_a_prompt_is_encoded_by_the_first_models_tokenizer(tmp_path: Path) -> None:
    write_trace(tmp_path / "port.npz", traced(llama(), IDS), ids=IDS)
    inputs = open_sides(str(tmp_path / "port.npz"), "holmes", **NOTHING | {"prompt": "Holmes looked"})
    tokenizer = tinyxp.load_tokenizer("holmes")
    assert inputs.ids == [tokenizer.encode("Holmes looked")]
    decode = inputs.decode()
    assert decode is not None
    assert decode(inputs.ids[0][0]) == tokenizer.decode(inputs.ids[0][:1])
    assert decode(10**6) == "#1000000"


def test_without_a_tokenizer_ids_have_no_text(tmp_path: Path) -> None:
    tinyxp.save(llama(), tmp_path)
    inputs = open_sides(str(tmp_path), str(tmp_path), **NOTHING)
    assert inputs.ids is None
    assert inputs.decode() is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prompt": "a", "ids": "1"}, "--prompt and --ids are both given"),
        ({"ids": "1,x"}, "--ids is '1,x'; it must be integers"),
        ({"ids": "1,2;3"}, "--ids has rows of 2, 1 ids"),
        ({"pad": 1}, "--pad needs --prompt or --ids"),
        ({"prompt": ""}, "--prompt is empty"),
    ],
)
def test_what_does_not_fit_together(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        open_sides("holmes", "holmes", **NOTHING | options)


def test_a_prompt_needs_a_tokenizer(tmp_path: Path) -> None:
    np.savez(tmp_path / "port.npz", ids=IDS, logits=traced(llama(), IDS)["logits"])
    port = str(tmp_path / "port.npz")
    with pytest.raises(ValueError, match="neither side is a model: name one with --tokenizer"):
        open_sides(port, port, **NOTHING | {"prompt": "a"})
    assert open_sides(port, port, **NOTHING | {"prompt": "a", "tokenizer": "holmes"}).ids
