"""Saved vocabularies, read by tokenizers and by this library."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tinyxp.text import bpe, saving
from tinyxp.text.saving import save_tokenizer
from tinyxp.text.tiktoken import ENCODINGS
from tinyxp.text.tokenizer import load_tokenizer

BYTES = {bytes([byte]): byte for byte in range(256)}
SING = "sing sing sings song sang"
TEXTS = st.text("ab", min_size=1, max_size=60) | st.text("abc '1é\n", min_size=1, max_size=60)


@pytest.fixture
def ranks() -> dict[bytes, int]:
    return bpe.train(SING, 260).ranks


@pytest.fixture
def no_tokenizers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json", "merges.txt", "."])
def test_every_file_gives_the_ids_of_encode(
    name: str, ranks: dict[bytes, int], tmp_path: Path, round_trip_texts: list[str]
) -> None:
    if name in ("tokenizer.json", "."):
        pytest.importorskip("tokenizers")
    save_tokenizer(ranks, tmp_path / "new" / "folder")
    tokenizer = load_tokenizer(tmp_path / "new" / "folder" / name)
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_ids) == (260, None, ())
    for text in [SING, *round_trip_texts]:
        assert tokenizer.encode(text) == bpe.encode(text, ranks)
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_what_is_written(ranks: dict[bytes, int], tmp_path: Path) -> None:
    save_tokenizer(ranks, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"}
    merges = "#version: 0.2\nn g\nĠ s\ni ng\nĠs ing\n"
    assert (tmp_path / "merges.txt").read_text("utf-8") == merges
    config = json.loads((tmp_path / "tokenizer_config.json").read_text("utf-8"))
    assert config == {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for name in ("vocab.json", "tokenizer.json"):
        assert '"Ġ"' in (tmp_path / name).read_text("utf-8")  # letters, not escapes
    vocab = json.loads((tmp_path / "vocab.json").read_text("utf-8"))
    assert vocab == {bpe.spell_bytes(token): rank for token, rank in ranks.items()}


@settings(max_examples=20)
@given(text=TEXTS, other=TEXTS, size=st.integers(256, 300))
@pytest.mark.parametrize("pattern", [bpe.GPT2_PATTERN, bpe.O200K_PATTERN])
def test_a_training_is_the_same_to_tokenizers(
    pattern: str, text: str, other: str, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    ranks, merges = bpe.train(text, size, pattern=pattern)
    assert saving._find_merges(ranks) == [(left, right) for left, right, _ in merges]
    folder = tmp_path_factory.mktemp("saved")
    save_tokenizer(ranks, folder, pattern=pattern)
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for each in (text, other):
        ids = bpe.encode(each, ranks, pattern=pattern)
        assert theirs.encode(each).ids == ids
        assert theirs.decode(ids) == each


@given(
    tokens=st.lists(st.text("ab", min_size=2, max_size=5), unique=True, max_size=12),
    text=st.text("ab", max_size=30),
)
def test_one_merge_for_each_token_is_enough(tokens: list[str], text: str) -> None:
    """Whatever the order of the ranks, and however many ways there are to cut a token in two."""
    ranks = BYTES | {token.encode(): 256 + index for index, token in enumerate(tokens)}
    try:
        merges = {pair: rank for rank, pair in enumerate(saving._find_merges(ranks))}
    except ValueError:
        assume(False)
    assert bpe.encode_merges(text, ranks, merges) == bpe.encode(text, ranks)


@pytest.mark.parametrize(
    ("name", "sentence", "ids"),
    [
        ("gpt2", "Hello, it's  a\n", [15496, 11, 340, 338, 220, 257, 198]),
        ("cl100k_base", "Hello, it's  a\n", [9906, 11, 433, 596, 220, 264, 198]),
        ("o200k_base", "Hello, it's  a\n", [13225, 11, 4275, 220, 261, 198]),
    ],
)
def test_tiktokens_ranks_are_the_same_to_tokenizers(
    name: str,
    sentence: str,
    ids: list[int],
    test_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mixed_texts: st.SearchStrategy[str],
) -> None:
    tiktoken, tokenizers = pytest.importorskip("tiktoken"), pytest.importorskip("tokenizers")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(test_data / "gpt2-bpe" / "tiktoken-cache"))
    encoding = tiktoken.get_encoding(name)
    if name != "gpt2":  # the first ranks are a vocabulary of their own: all of them take seconds
        ranks = {token: rank for token, rank in encoding._mergeable_ranks.items() if rank < 40_000}
        encoding = tiktoken.Encoding(
            name, pat_str=encoding._pat_str, mergeable_ranks=ranks, special_tokens={}
        )
    save_tokenizer(encoding._mergeable_ranks, tmp_path, pattern=ENCODINGS[name].pattern)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert theirs.encode(sentence).ids == ids

    @given(mixed_texts)
    def agree(text: str) -> None:
        assert theirs.encode(text).ids == encoding.encode_ordinary(text)

    agree()
    for run in (" ", "\n", "a", "0", "=", "-", " \t"):  # where a token can be cut in two in many ways
        for length in range(1, 200, 11):
            assert theirs.encode(run * length).ids == encoding.encode_ordinary(run * length)
    assert (tmp_path / "merges.txt").exists() == (name == "gpt2")
    if name == "gpt2":  # the merges that the ranks were made with are found again
        original = (test_data / "gpt2-bpe" / "vocab.bpe").read_text("utf-8")
        assert (tmp_path / "merges.txt").read_text("utf-8") == original


@pytest.mark.usefixtures("no_tokenizers")
def test_the_pair_is_read_without_tokenizers(ranks: dict[bytes, int], tmp_path: Path) -> None:
    save_tokenizer(ranks, tmp_path)
    assert load_tokenizer(tmp_path).encode(SING) == bpe.encode(SING, ranks)
    with pytest.raises(ImportError, match=r"tokenizer\.json needs tokenizers"):
        load_tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.usefixtures("no_tokenizers")
def test_gpt2s_own_files_are_read_without_tokenizers(test_data: Path) -> None:
    tokenizer = load_tokenizer(test_data / "gpt2-bpe")
    assert tokenizer.encode("a<|endoftext|>", specials=True) == [64, 50256]


@pytest.mark.usefixtures("no_tokenizers")
@pytest.mark.parametrize(
    ("section", "changed"),
    [
        ("normalizer", {"type": "NFC"}),
        ("pre_tokenizer", None),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": []}),
        ("pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": True}),
        ("pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}),
        ("post_processor", {"type": "TemplateProcessing"}),
        ("model", {"vocab": {}, "ignore_merges": True}),
        ("model", None),
        ("added_tokens", [{"content": "<|im_start|>"}]),
    ],
)
def test_a_pair_that_says_less_is_not_read_instead(
    section: str, changed: Any, ranks: dict[bytes, int], tmp_path: Path
) -> None:
    save_tokenizer(ranks, tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {section: changed}), "utf-8")
    with pytest.raises(ImportError, match=r"tokenizer\.json needs tokenizers"):
        load_tokenizer(tmp_path)


def test_nothing_stays_of_an_earlier_vocabulary(ranks: dict[bytes, int], tmp_path: Path) -> None:
    save_tokenizer(ranks, tmp_path)
    (tmp_path / "compact.json").write_text('{"ids": [1]}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    save_tokenizer(ranks, tmp_path, pattern=bpe.CL100K_PATTERN)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"tokenizer.json", "tokenizer_config.json", "model.safetensors"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({b"abc": 256}, r"token b'abc' of rank 256 is not merged from two; .* \[b'a', b'b', b'c'\]"),
        ({b"ab": 257, b"abc": 256}, "token b'abc' of rank 256 is not merged from two"),
        ({b"": 256}, r"token b'' of rank 256 is not merged from two; .* \[\]"),
        ({b"ab": 7}, r"the id 7 to both b'\\x07' and b'ab'"),
        ({b"ab": -1}, "the rank of b'ab' is -1; it must be an integer of 0 or more"),
        ({b"ab": 2.5}, r"the rank of b'ab' is 2\.5; it must be an integer"),
    ],
)
def test_ranks_that_cannot_be_saved(changed: dict[bytes, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        save_tokenizer(BYTES | changed, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_byte_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ranks lacks the byte 0x41; every byte must have an id"):
        save_tokenizer({token: rank for token, rank in BYTES.items() if token != b"A"}, tmp_path)


def test_a_file_is_whole_or_not_there(
    ranks: dict[bytes, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no space"):
        save_tokenizer(ranks, tmp_path / "new")
    assert not (tmp_path / "new").exists()
