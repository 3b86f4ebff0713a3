"""tokenizer.json through the tokenizers library: decoders, BOS, added tokens, bad files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyxp.errors import CheckpointError
from tinyxp.text.tokenizer import load_tokenizer

pytest.importorskip("tokenizers")
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

Write = Callable[..., Path]


@pytest.fixture
def byte_level(byte_vocab: dict[str, int]) -> Tokenizer:
    made = Tokenizer(models.BPE(vocab=byte_vocab, merges=[("h", "e"), ("he", "l")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|e|>"])
    return made


@pytest.fixture
def llama(llama_pieces: list[str]) -> Tokenizer:
    """As Llama 2: the space before the text, and bytes for what is no piece."""
    vocab = {piece: index for index, piece in enumerate(llama_pieces)}
    merges = [("▁", "h"), ("e", "l"), ("▁h", "el")]
    made = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return made


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(made: Tokenizer, config: dict[str, Any] | None = None, **replaced: Any) -> Path:
        content = json.loads(made.to_str()) | replaced
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        if config is not None:
            (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        return tmp_path / "tokenizer.json"

    return write


def test_byte_level(byte_level: Tokenizer, write: Write, round_trip_texts: list[str]) -> None:
    tokenizer = load_tokenizer(write(byte_level))
    assert tokenizer.encode("hello") == [258, *b"lo"]
    assert tokenizer.encode("a<|e|>b") == [97, 60, 124, 101, 124, 62, 98]
    assert tokenizer.encode("a<|e|>b", specials=True) == [97, 256, 98]
    assert tokenizer.encode("a<|e|>b") == [97, 60, 124, 101, 124, 62, 98]  # the setting does not stay
    assert tokenizer.decode([97, 256, 98]) == "a<|e|>b"
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_ids) == (259, None, ())
    for text in round_trip_texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.decode(tokenizer.encode(text, specials=True)) == text


def test_without_decoder_the_pre_tokenizer_tells(byte_level: Tokenizer, write: Write) -> None:
    assert load_tokenizer(write(byte_level, decoder=None)).decode([*b"a ", 258]) == "a hel"


@pytest.mark.parametrize(
    ("config", "adds_bos"),
    [
        (None, True),
        ({"bos_token": "<|e|>"}, True),
        ({"bos_token": "<|e|>", "add_bos_token": True}, True),
        ({"bos_token": "<|e|>", "add_bos_token": False}, False),
    ],
)
def test_bos_of_the_post_processor(
    byte_level: Tokenizer, write: Write, config: dict[str, Any] | None, adds_bos: bool
) -> None:
    byte_level.post_processor = processors.Sequence(
        [
            processors.ByteLevel(),
            processors.TemplateProcessing(single="<|e|> $A <|e|>", special_tokens=[("<|e|>", 256)]),
        ]
    )
    tokenizer = load_tokenizer(write(byte_level, config))
    assert (tokenizer.bos_id, tokenizer.adds_bos) == (256, adds_bos)
    assert tokenizer.encode("a") == ([256, 97] if adds_bos else [97])
    assert tokenizer.encode("<|e|>a", specials=True) == [256, 97]
    assert tokenizer.decode([256, 97]) == ("a" if adds_bos else "<|e|>a")


def test_bos_of_the_config(byte_level: Tokenizer, write: Write) -> None:
    config = {"bos_token": "<|e|>", "eos_token": "<|e|>", "add_bos_token": True}
    tokenizer = load_tokenizer(write(byte_level, config))
    assert tokenizer.encode("a") == [256, 97]
    assert tokenizer.eos_ids == (256,)
    config = {"bos_token": "<|e|>"}
    assert load_tokenizer(write(byte_level, config)).encode("a") == [97]


def test_bos_of_roberta(byte_level: Tokenizer, write: Write) -> None:
    byte_level.post_processor = processors.RobertaProcessing(("</s>", 7), ("<|e|>", 256))
    assert load_tokenizer(write(byte_level)).encode("a") == [256, 97]


def test_an_end_alone_is_no_bos(byte_level: Tokenizer, write: Write) -> None:
    template = processors.TemplateProcessing(single="$A <|e|>", special_tokens=[("<|e|>", 256)])
    byte_level.post_processor = template
    tokenizer = load_tokenizer(write(byte_level))
    assert (tokenizer.bos_id, tokenizer.adds_bos, tokenizer.encode("a")) == (None, False, [97])


def test_truncation_and_padding_do_not_reach_the_ids(byte_level: Tokenizer, write: Write) -> None:
    byte_level.enable_truncation(2)
    byte_level.enable_padding(length=9)
    assert load_tokenizer(write(byte_level)).encode("abcd") == [97, 98, 99, 100]


def test_added_tokens_that_are_not_special_are_always_found(byte_level: Tokenizer, write: Write) -> None:
    byte_level.add_tokens([AddedToken("Ġtool", normalized=False)])
    tokenizer = load_tokenizer(write(byte_level))
    assert tokenizer.encode("aĠtool") == [97, 259]
    assert tokenizer.decode([259]) == "Ġtool"  # as it is, not in GPT-2's spelling


def test_llama(llama: Tokenizer, write: Write) -> None:
    tokenizer = load_tokenizer(write(llama))
    assert tokenizer.encode("hello") == [1, 267, 262, 263]
    assert tokenizer.encode("<s>hello", specials=True) == [1, 267, 262, 263]
    assert 2 not in tokenizer.encode("</s>")
    assert tokenizer.decode([267, 2]) == " hel</s>"
    for text in ["hello", " hello", "  hello", "hello !", "", " \n x", "🙂 é", "<s>"]:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_metaspace(llama: Tokenizer, write: Write) -> None:
    llama.normalizer = None
    llama.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    llama.decoder = decoders.Metaspace(prepend_scheme="never", split=False)
    tokenizer = load_tokenizer(write(llama))
    assert tokenizer.encode(" hel") == [1, 267]
    assert tokenizer.decode([1, 267]) == " hel"
    llama.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    llama.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    tokenizer = load_tokenizer(write(llama))
    assert tokenizer.encode("hel") == [1, 267]
    assert tokenizer.decode([1, 267]) == "hel"


def test_bytes_without_token_are_not_lost(byte_level: Tokenizer, write: Write) -> None:
    vocab = {"a": 0, "b": 1}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer, made.decoder = byte_level.pre_tokenizer, byte_level.decoder
    tokenizer = load_tokenizer(write(made))
    assert tokenizer.encode("ab") == [0, 1]
    with pytest.raises(ValueError, match="byte 0x63 of 'abc' has no token"):
        tokenizer.encode("abc")


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"model": None}, "has no model"),
        ({"model": {}}, "tokenizers rejects it"),
        ({"model": {"type": "BPE", "vocab": {}, "merges": []}}, "no vocabulary"),
        (
            {"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}},
            "id 0 belongs to both 'a' and 'b'",
        ),
        ({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}, "'a' has the id -1"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}, "tokenizers rejects it"),
        ({"version": "9.9"}, "tokenizers rejects it"),
        ({"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}, "its decoder is WordPiece"),
        ({"decoder": None, "pre_tokenizer": None}, "its decoder is none"),
        (
            {
                "post_processor": {
                    "type": "TemplateProcessing",
                    "single": [{"SpecialToken": {"id": "<|x|>", "type_id": 0}}],
                    "pair": [],
                    "special_tokens": {},
                }
            },
            "does not define '<|x|>'",
        ),
        (
            {
                "post_processor": {
                    "type": "TemplateProcessing",
                    "single": [{"SpecialToken": {"id": "<|e|>", "type_id": 0}}] * 2,
                    "pair": [],
                    "special_tokens": {"<|e|>": {"id": "<|e|>", "ids": [256], "tokens": ["<|e|>"]}},
                }
            },
            r"puts \[256, 256\] before a text",
        ),
        (
            {
                "added_tokens": [
                    {
                        "id": 900,
                        "content": "<|y|>",
                        "single_word": False,
                        "lstrip": False,
                        "rstrip": False,
                        "normalized": False,
                        "special": True,
                    }
                ]
            },
            r"added token '<\|y\|>' cannot have the id 900",
        ),
    ],
)
def test_bad_content(byte_level: Tokenizer, write: Write, replaced: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=rf"tokenizer\.json: .*{message}"):
        load_tokenizer(write(byte_level, **replaced))


def test_a_panic_of_the_library_is_an_error_too(
    byte_level: Tokenizer, write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    model = {
        "type": "BPE",
        "continuing_subword_prefix": "#" * 9,
        "vocab": {"a": 0, "b": 1},
        "merges": ["a b"],
    }
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: tokenizers rejects it"):
        load_tokenizer(write(byte_level, model=model))
    capfd.readouterr()  # the panic's trace


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"{}", "is not a tokenizer.json: it has no model"),
        (b"[]", "holds a JSON list"),
        (b'{"model": ', "is not JSON"),
        (b'{"a": 1, "a": 2}', "has the key 'a' twice"),
        (b"\xff", "is not JSON: .*can't decode byte 0xff in position 0"),
        ("{}".encode("utf-16"), "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"cos\nsystem\n(S'true'\ntR.", "is not JSON"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"tokenizer\.json: {message}"):
        load_tokenizer(path)


def test_a_bad_config_is_named(byte_level: Tokenizer, write: Write) -> None:
    with pytest.raises(CheckpointError, match=r"^[^:]*tokenizer_config\.json: bos_token '<x>'"):
        load_tokenizer(write(byte_level, {"bos_token": "<x>"}))


def test_without_tokenizers(byte_level: Tokenizer, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(byte_level)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install 'tinyxp\[hf\]'"):
        load_tokenizer(path)


def test_smollm2(test_data: Path) -> None:
    reference = json.loads((test_data / "smollm2" / "reference.json").read_text())
    tokenizer = load_tokenizer(test_data / "smollm2" / "tokenizer.json")
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_ids) == (49152, 1, (2,))
    for case in reference["prompts"]:
        assert tokenizer.encode(case["prompt"]) == case["ids"]
        assert tokenizer.decode(case["greedy30_ids"]) == case["greedy30_text"]
        stream = tokenizer.stream()
        pieces = [stream.push(index) for index in case["greedy30_ids"]]
        assert "".join(pieces) + stream.flush() == case["greedy30_text"]


def test_smollm2_round_trips(test_data: Path, mixed_texts: st.SearchStrategy[str]) -> None:
    tokenizer = load_tokenizer(test_data / "smollm2")

    @given(mixed_texts, st.booleans())
    def round_trip(text: str, specials: bool) -> None:
        assert tokenizer.decode(tokenizer.encode(text, specials=specials)) == text

    round_trip()
    with pytest.raises(ValueError, match=r"the byte 0x16 of 'a\\x16b' has no token"):
        tokenizer.encode("a\x16b")  # one of the six control characters that SmolLM2 has no token for
