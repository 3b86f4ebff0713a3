"""llama2.c's tokenizer files."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyxp.errors import CheckpointError
from tinyxp.text.tokenizer import load_tokenizer

Write = Callable[..., Path]
HEAD = [(0.0, b"<unk>"), (0.0, b"\n<s>\n"), (0.0, b"\n</s>\n")]


def test_small_file(write_llama2c: Write, round_trip_texts: list[str]) -> None:
    byte_tokens = [(0.0, f"<0x{byte:02X}>".encode()) for byte in range(256)]
    pieces = [(-1.0, b" h"), (-2.0, b"el"), (-3.0, b" hel"), *((-9.0, bytes([b])) for b in b" helo")]
    tokenizer = load_tokenizer(write_llama2c([*HEAD, *byte_tokens, *pieces]))
    assert tokenizer.encode("hello") == [1, 261, 265, 266]
    assert tokenizer.encode("") == [1]
    assert tokenizer.encode("<s>hello</s>", specials=True) == [1, 261, 265, 266, 2]
    assert 2 not in tokenizer.encode("</s>")
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.adds_bos) == (267, 1, True)
    assert tokenizer.eos_ids == (2, 1)
    assert tokenizer.decode([259, 265]) == " hl"
    assert tokenizer.decode([1, 261, 2]) == "hel</s>"
    for text in round_trip_texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\x07\x00", "is too short"),
        (struct.pack("<i", 7), "has 0 tokens"),
        (struct.pack("<ifi", 7, 0.0, 2**31 - 1), "length 2147483647, but the longest is 7 by the header"),
        (struct.pack("<ifi", 2**31 - 1, 0.0, 2**31 - 1), "length 2147483647, but 0 bytes are left"),
        (struct.pack("<ifi", 7, 0.0, -1), "token 0 has length -1"),
        (struct.pack("<ifi", 7, 0.0, 4) + b"abc", "length 4, but 3 bytes are left"),
        (struct.pack("<if", 7, 0.0), "inside the header of token 0"),
        (struct.pack("<i", 7) + (struct.pack("<fi", 0.0, 1) + b"a") * 2, "tokens 0 and 1 are both b'a'"),
        (struct.pack("<i", 7) + struct.pack("<fi", 0.0, 0) * 2, "tokens 0 and 1 are both b''"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "tok.bin"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"tok\.bin: .*{message}"):
        load_tokenizer(path)


def test_bad_tokens(write_llama2c: Write) -> None:
    with pytest.raises(CheckpointError, match="score of token 3"):
        load_tokenizer(write_llama2c([*HEAD, (float("nan"), b"a")]))
    with pytest.raises(CheckpointError, match=r"special token 2, b'\\xff', is not UTF-8"):
        load_tokenizer(write_llama2c([*HEAD[:2], (0.0, b"\xff")]))


@given(position=st.integers(0, 5000), change=st.binary(max_size=4))
def test_damaged_files_are_rejected_or_read(
    tmp_path_factory: pytest.TempPathFactory, test_data: Path, position: int, change: bytes
) -> None:
    content = (test_data / "stories260k" / "tok512.bin").read_bytes()
    damaged = content[:position] + change + (content[position + len(change) :] if change else b"")
    path = tmp_path_factory.getbasetemp() / "damaged.bin"
    path.write_bytes(damaged)
    try:
        tokenizer = load_tokenizer(path)
    except CheckpointError:
        return  # anything else is a failure
    assert tokenizer.decode(tokenizer.encode("")) == ""


def test_stories260k(test_data: Path, round_trip_texts: list[str]) -> None:
    reference = json.loads((test_data / "stories260k" / "reference.json").read_text())
    tokenizer = load_tokenizer(test_data / "stories260k" / "tok512.bin")
    assert tokenizer.vocab_size == reference["tok512"]["n"]
    for text, ids in reference["encode_ref"]:
        assert tokenizer.encode(text) == ids
        assert tokenizer.encode("<s>" + text, specials=True) == ids
        assert tokenizer.decode(ids) == text
    assert tokenizer.decode(reference["greedy_ids_from_bos"]) == reference["greedy_text"]
    for text in round_trip_texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@given(data=st.data())
def test_stories260k_round_trips(
    test_data: Path, mixed_texts: st.SearchStrategy[str], data: st.DataObject
) -> None:
    tokenizer = load_tokenizer(test_data / "stories260k" / "tok512.bin")
    text = data.draw(mixed_texts | st.text())
    ids = tokenizer.encode(text)
    assert ids.count(1) == 1
    assert tokenizer.decode(ids) == text
    stream = tokenizer.stream()
    assert "".join(map(stream.push, ids)) + stream.flush() == text
