"""Tokenizers from the metadata of GGUF files."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyxp.errors import CheckpointError
from tinyxp.text.tokenizer import load_tokenizer

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a GGUF of metadata alone; keys without a dot are the tokenizer's, None leaves a key out."""

    def write(values: dict[str, Any], endianess: Any = gguf.GGUFEndian.LITTLE) -> Path:
        path = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(path, "llama", endianess=endianess)
        adders = {
            bool: writer.add_bool,
            int: writer.add_uint32,
            str: writer.add_string,
            list: writer.add_array,
            float: writer.add_float32,
        }
        for key, value in values.items():
            if value is not None:
                adders[type(value)](key if "." in key else f"tokenizer.ggml.{key}", value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return path

    return write


@pytest.fixture
def gpt2_values(byte_vocab: dict[str, int]) -> dict[str, Any]:
    return {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": sorted(byte_vocab, key=byte_vocab.__getitem__),
        "token_type": [1] * 256 + [3, 1, 1],
        "merges": ["h e", "he l"],
        "eos_token_id": 256,
    }


@pytest.fixture
def llama_values(llama_pieces: list[str], llama_scores: list[float]) -> dict[str, Any]:
    return {
        "model": "llama",
        "tokens": llama_pieces,
        "scores": llama_scores,
        "token_type": [2, 3, 3] + [6] * 256 + [1] * (len(llama_pieces) - 259),
    }


def test_byte_level(write: Write, gpt2_values: dict[str, Any], round_trip_texts: list[str]) -> None:
    tokenizer = load_tokenizer(write(gpt2_values))
    assert tokenizer.encode("hello") == [258, *b"lo"]
    assert tokenizer.encode("a<|e|>b") == [97, 60, 124, 101, 124, 62, 98]
    assert tokenizer.encode("a<|e|>b", specials=True) == [97, 256, 98]
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_ids) == (259, None, (256,))
    assert not tokenizer.adds_bos
    for text in round_trip_texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_without_types_unreachable_tokens_are_special(write: Write, gpt2_values: dict[str, Any]) -> None:
    tokenizer = load_tokenizer(write(gpt2_values | {"token_type": None}))
    assert tokenizer.encode("a<|e|>b", specials=True) == [97, 256, 98]
    assert tokenizer.encode("hello", specials=True) == [258, *b"lo"]


def test_user_defined_tokens_are_always_found(write: Write, gpt2_values: dict[str, Any]) -> None:
    types = [1] * 256 + [4, 1, 1]
    assert load_tokenizer(write(gpt2_values | {"token_type": types})).encode("a<|e|>") == [97, 256]


def test_special_tokens_are_spelled_as_they_are(write: Write, gpt2_values: dict[str, Any]) -> None:
    values = gpt2_values | {
        "pre": "llama-bpe",
        "add_bos_token": False,
        "tokens": [*gpt2_values["tokens"], "Ġtool", "!!"],
        "token_type": [*gpt2_values["token_type"], 4, 3],
    }
    tokenizer = load_tokenizer(write(values))
    assert tokenizer.encode("aĠtool") == [97, 259]
    assert tokenizer.decode([259]) == "Ġtool"
    assert tokenizer.encode("!!") == [33, 33]
    assert tokenizer.encode("!!", specials=True) == [260]


@pytest.mark.parametrize(("said", "adds_bos"), [(None, None), (True, True), (False, False)])
@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_bos(
    write: Write, gpt2_values: dict[str, Any], pre: str, said: bool | None, adds_bos: bool | None
) -> None:
    values = gpt2_values | {"pre": pre, "bos_token_id": 256, "add_bos_token": said}
    tokenizer = load_tokenizer(write(values))
    assert tokenizer.adds_bos is (pre == "llama-bpe" if adds_bos is None else adds_bos)
    assert tokenizer.encode("a") == ([256, 97] if tokenizer.adds_bos else [97])
    assert tokenizer.encode("<|e|>a", specials=True) == [256, 97]


@pytest.mark.parametrize(
    ("pre", "ids"),
    [
        ("gpt-2", [259, 260]),  # " 12" and "!\n" split from it
        ("smollm", [32, 49, 50, 260]),
        ("llama-bpe", [32, 261, 262]),
        ("qwen2", [32, 49, 50, 262]),
    ],
)
def test_pre_tokenizers(write: Write, gpt2_values: dict[str, Any], pre: str, ids: list[int]) -> None:
    made = ["\u01201", "\u012012", "12", "!\u010a", "\u010a\u010a", "!\u010a\u010a"]
    order = {
        "\u012012": 259,
        "\u010a\u010a": 260,
        "12": 261,
        "!\u010a\u010a": 262,
        "\u01201": 263,
        "!\u010a": 264,
    }
    assert sorted(made) == sorted(order)
    values = gpt2_values | {
        "pre": pre,
        "add_bos_token": False,
        "tokens": gpt2_values["tokens"] + list(order),
        "token_type": gpt2_values["token_type"] + [1] * 6,
        "merges": ["\u0120 1", "\u01201 2", "1 2", "! \u010a", "!\u010a \u010a", "\u010a \u010a"],
    }
    # GPT-2 and SmolLM keep "!" from the newlines, the others do not.
    expected = [*ids[:-1], 33, 260] if ids[-1] == 260 else ids
    assert load_tokenizer(write(values)).encode(" 12!\n\n") == expected


def test_llama_bpe_ignores_merges(write: Write, gpt2_values: dict[str, Any]) -> None:
    values = gpt2_values | {
        "tokens": [*gpt2_values["tokens"], "abc"],
        "token_type": [*gpt2_values["token_type"], 1],
        "add_bos_token": False,
    }
    assert load_tokenizer(write(values | {"pre": "llama-bpe", "bos_token_id": 256})).encode("abc") == [259]
    assert load_tokenizer(write(values)).encode("abc") == [97, 98, 99]


def test_every_end_is_an_eos(write: Write, gpt2_values: dict[str, Any]) -> None:
    tokenizer = load_tokenizer(write(gpt2_values | {"eot_token_id": 255, "eom_token_id": 256}))
    assert tokenizer.eos_ids == (256, 255)


@pytest.mark.parametrize("with_types", [True, False])
def test_sentencepiece(
    write: Write, llama_values: dict[str, Any], with_types: bool, round_trip_texts: list[str]
) -> None:
    if not with_types:
        del llama_values["token_type"]
    tokenizer = load_tokenizer(write(llama_values))
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.adds_bos) == (1, (2,), True)
    assert tokenizer.encode("hello") == [1, 268]
    assert tokenizer.encode("hell") == [1, 267, 262]
    assert tokenizer.encode("<s>hello</s>", specials=True) == [1, 268, 2]
    assert tokenizer.encode("</s>") == [1, 259, 3 + 0x3C, 3 + 0x2F, 3 + 0x73, 3 + 0x3E]
    for text in round_trip_texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_sentencepiece_without_prefix_and_bos(write: Write, llama_values: dict[str, Any]) -> None:
    values = llama_values | {"add_space_prefix": False, "add_bos_token": False}
    tokenizer = load_tokenizer(write(values))
    assert tokenizer.encode("el") == [265]
    assert tokenizer.decode([259, 265]) == " el"
    tokenizer = load_tokenizer(write(llama_values | {"add_bos_token": False}))
    assert tokenizer.encode("el") == [259, 265]
    assert tokenizer.decode([259, 265]) == "el"


def test_unused_tokens_are_never_made(write: Write, llama_values: dict[str, Any]) -> None:
    types = list(llama_values["token_type"])
    types[267] = 5  # "▁hel"
    tokenizer = load_tokenizer(write(llama_values | {"token_type": types}))
    assert 267 not in tokenizer.encode("hell")
    assert tokenizer.decode([267]) == " hel"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": None}, "has no tokenizer.ggml.model"),
        ({"model": 3}, "model is of type int, not str"),
        ({"model": "bert"}, "model 'bert' is not known; gpt2 and llama are"),
        ({"tokens": None}, "has no tokenizer.ggml.tokens"),
        ({"tokens": [1, 2]}, "tokens is not a list of str"),
        ({"tokens": ["a", "b", "a"]}, "tokens 0 and 2 are both 'a'"),
        ({"pre": None}, "has no tokenizer.ggml.pre"),
        ({"pre": "deepseek-llm"}, "pre 'deepseek-llm' is not known; gpt-2, smollm, llama-bpe, qwen2 are"),
        ({"merges": None}, "has no tokenizer.ggml.merges"),
        ({"merges": ["h e", "h e"]}, "repeats merge 0"),
        ({"merges": ["hel"]}, "merge 0 is not two tokens"),
        ({"merges": ["h x"]}, "b'hx' is not in the vocabulary"),
        ({"token_type": [1]}, "has 1 token types for 259 tokens"),
        ({"token_type": "1"}, "token_type is of type str, not list"),
        ({"eos_token_id": 259}, "EOS id 259 is outside the vocabulary of 259"),
        ({"bos_token_id": "x"}, "bos_token_id is of type str, not int"),
        ({"add_bos_token": True}, "names none"),
        ({"add_bos_token": 1}, "add_bos_token is of type int, not bool"),
    ],
)
def test_bad_byte_level_metadata(
    write: Write, gpt2_values: dict[str, Any], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=rf"model\.gguf: .*{message}"):
        load_tokenizer(write(gpt2_values | values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"scores": None}, "has no tokenizer.ggml.scores"),
        ({"scores": [0.0]}, "has 1 scores for 269 tokens"),
        ({"scores": ["x"] * 269}, "scores is not a list of float"),
        ({"scores": [float("nan")] * 269}, "score of token 0 is not a number"),
        ({"token_type": [6] * 269}, "token 0, '<unk>', is of the byte type"),
    ],
)
def test_bad_sentencepiece_metadata(
    write: Write, llama_values: dict[str, Any], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=rf"model\.gguf: .*{message}"):
        load_tokenizer(write(llama_values | values))


def test_big_endian_files_are_rejected(write: Write, gpt2_values: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"model\.gguf: is of GGUF version .*big-endian"):
        load_tokenizer(write(gpt2_values, gguf.GGUFEndian.BIG))


def head(pairs: int, body: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, 0, pairs) + body


def key(name: bytes, kind: int, *rest: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + b"".join(rest)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"GGML" + bytes(40), "is not a GGUF file"),
        (b"GGUF", "claims 4 bytes at byte 4, but 0 are left"),
        (head(0, version=1), "is of GGUF version 1"),
        (head(2**63), "claims 8 bytes"),
        (head(1, struct.pack("<Q", 2**40)), "claims 1,099,511,627,776 bytes"),
        (head(1, key(b"k", 99)), "key 'k' has a value of type 99, which is not known"),
        (
            head(1, key(b"k", 9, struct.pack("<IQ", 0, 2**62))),
            "key 'k' claims a list of 4,611,686,018,427,387,904 values",
        ),
        (head(1, key(b"k", 9, struct.pack("<IQ", 8, 2**20))), "key 'k' claims 8 bytes"),
        (head(1, key(b"k", 9, struct.pack("<IQ", 10, 2**20))), "key 'k' claims 8,388,608 bytes"),
        (head(1, key(b"k", 9, struct.pack("<IQ", 9, 1))), "key 'k' has a value of type 9"),
        (
            head(1, key(b"k", 8, struct.pack("<Q", 2), b"\xff\xff")),
            "key 'k' has a string at byte 45 that is not UTF-8",
        ),
        (
            head(1, key(b"k", 9, struct.pack("<IQQ", 8, 1, 1), b"\xff")),
            "key 'k' has a string at byte 57 that is not UTF-8",
        ),
        (head(2, key(b"k", 0, b"a") * 2), "has the key 'k' twice"),
        (head(0), "has no tokenizer.ggml.model"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"bad\.gguf: .*{message}"):
        load_tokenizer(path)


def test_every_truncation_is_rejected(write: Write, gpt2_values: dict[str, Any]) -> None:
    path = write(gpt2_values)
    content = path.read_bytes()
    for size in range(0, len(content), 37):
        path.write_bytes(content[:size])
        with pytest.raises(CheckpointError, match=r"model\.gguf"):
            load_tokenizer(path)


def test_smollm2(smollm2_gguf: Path, test_data: Path, round_trip_texts: list[str]) -> None:
    reference = json.loads((test_data / "smollm2" / "reference.json").read_text())
    tokenizer = load_tokenizer(smollm2_gguf)
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_ids) == (49152, 1, (2,))
    assert not tokenizer.adds_bos
    for case in reference["prompts"]:
        assert tokenizer.encode(case["prompt"]) == case["ids"]
        assert tokenizer.decode(case["greedy30_ids"]) == case["greedy30_text"]
    for text in round_trip_texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_smollm2_is_its_tokenizer_json(
    smollm2_gguf: Path, test_data: Path, mixed_texts: st.SearchStrategy[str]
) -> None:
    pytest.importorskip("tokenizers")
    ours, theirs = load_tokenizer(smollm2_gguf), load_tokenizer(test_data / "smollm2" / "tokenizer.json")

    @given(mixed_texts, st.booleans())
    def agree(text: str, specials: bool) -> None:
        ids = ours.encode(text, specials=specials)
        assert ids == theirs.encode(text, specials=specials)
        assert ours.decode(ids) == theirs.decode(ids) == text

    agree()
    assert [ours.token_bytes(i) for i in range(49152)] == [theirs.token_bytes(i) for i in range(49152)]
    with pytest.raises(ValueError, match=r"b'\\x16' of '\\x16' has no token"):
        ours.encode("a\x16b")
    assert ours.encode("<|im_start|>user", specials=True)[0] == 1
    assert 1 not in ours.encode("<|im_start|>user")
