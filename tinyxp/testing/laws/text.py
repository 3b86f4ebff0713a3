"""Laws of tokenizers: byte-level BPE over vocabularies built from the drawn text."""

from __future__ import annotations

from importlib import import_module

from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.drawing import check_rejects
from tinyxp.testing.strategies import texts
from tinyxp.testing.subjects.base import Subject
from tinyxp.testing.vocabularies import (
    GPT2_PATTERN,
    PATTERNS,
    SPECIAL,
    SPECIALS,
    as_package_tokenizer,
    draw_vocabulary,
    load_from_files,
    without_unstable,
)

SENNRICH = "Sennrich et al., 2016, over bytes as in Radford et al., 2019"
OWN = "tinyxp's own contract: load_tokenizer"

law = laws_of("text", "text", OWN, "files")


def same(found: list[int], expected: list[int], text: str) -> None:
    """Raise AssertionError naming the text if ids differ."""
    if found != expected:
        raise AssertionError(f"{text!r} is {found}, expected {expected}")


@law(
    "Byte-level BPE splits a text by GPT-2's pattern and merges, in each piece, the pair of the lowest rank "
    "first, the leftmost of equals.",
    source=SENNRICH,
)
def lowest_rank_first(subject: Subject, draw: Draw) -> None:
    text = draw("text", texts().map(without_unstable))
    kind = draw("kind", st.sampled_from(["vocab.json", "any"]))
    made = draw_vocabulary(draw, text, ranked=kind == "any")
    pieces = import_module("regex").findall(GPT2_PATTERN, text)
    with load_from_files(made, kind) as ours:
        same(ours.encode(text), made.encode(pieces), text)


@law("Decoding the ids of any text gives the text back exactly.")
def any_text_round_trips(subject: Subject, draw: Draw) -> None:
    text = draw("text", texts())
    kinds = ["vocab.json", *PATTERNS] + ["tokenizer.json"] * ("tokenizers" in subject.abilities)
    kind = draw("kind", st.sampled_from(kinds))
    asked = draw("specials", st.booleans())
    with load_from_files(draw_vocabulary(draw, text, ranked=kind in PATTERNS), kind) as ours:
        ids = ours.encode(text, specials=asked)
        found = ours.decode(ids)
        if found != text:
            raise AssertionError(f"{text!r} comes back from {ids} as {found!r}")
        if not all(0 <= i < ours.vocab_size for i in ids):
            raise AssertionError(f"{text!r} is {ids}, but the vocab_size is {ours.vocab_size}")


@law(
    "The package tokenizers gives the same ids for the same vocabulary and merges.",
    source="Hugging Face's tokenizers, models.BPE behind pre_tokenizers.ByteLevel",
    needs="files tokenizers",
    is_reference=True,
)
def tokenizers_agrees(subject: Subject, draw: Draw) -> None:
    text = draw("text", texts().map(without_unstable))
    made = draw_vocabulary(draw, text)
    reference = as_package_tokenizer(made)
    reference.encode_special_tokens = True
    with load_from_files(made, "vocab.json") as ours:
        same(ours.encode(text), reference.encode(text).ids, text)


@law(
    "The package tiktoken gives the same ids for the same ranks, with each of its patterns.",
    source="tiktoken.Encoding, and the patterns of tiktoken_ext.openai_public",
    needs="files tiktoken",
    is_reference=True,
)
def tiktoken_agrees(subject: Subject, draw: Draw) -> None:
    name = draw("name", st.sampled_from(sorted(PATTERNS)))
    spellings = st.sampled_from(["", *SPECIALS[name], "<|end"])
    text = draw("text", texts().map(without_unstable)) + draw("special", spellings) + draw("after", spellings)
    asked = draw("specials", st.booleans())
    made = draw_vocabulary(draw, text, ranked=True)
    encoding = import_module("tiktoken").Encoding(
        name, pat_str=PATTERNS[name], mergeable_ranks=made.ids, special_tokens=SPECIALS[name]
    )
    expected = encoding.encode(text, allowed_special="all" if asked else set(), disallowed_special=())
    with load_from_files(made, name) as ours:
        same(ours.encode(text, specials=asked), expected, text)
        same(list(ours.eos_ids), list(SPECIALS[name].values())[:1], "the EOS")


@law(
    "Ids pushed one by one yield each character as soon as it is complete; together they yield the text of "
    "their bytes, with U+FFFD for invalid UTF-8.",
    source="The Unicode Standard, section 3.9, U+FFFD Substitution of Maximal Subparts",
)
def streams_are_the_whole(subject: Subject, draw: Draw) -> None:
    text = draw("text", texts())
    kind = draw("kind", st.sampled_from(["vocab.json", "any"]))
    made = draw_vocabulary(draw, text, ranked=kind == "any")
    with load_from_files(made, kind) as ours:
        likely = ours.encode(text + "é🙂日")
        known = st.sampled_from(likely) | st.sampled_from(sorted(made.ids.values()))
        ids = draw("ids", st.lists(known, max_size=12)) + ours.encode(text)
        bytes_of = {i: token for token, i in made.ids.items()}
        stream, data, said = ours.stream(), b"", ""
        for i in ids:
            data, said = data + bytes_of[i], said + stream.push(i)
            whole = data[: len(data) - incomplete_bytes(data)].decode(errors="replace")
            if said != whole:
                raise AssertionError(f"{data!r} is {said!r} so far, expected {whole!r}")
        whole = data.decode(errors="replace")
        for found in (said + stream.flush(), ours.decode(ids)):
            if found != whole:
                raise AssertionError(f"{ids} is {found!r}, expected {whole!r}")


def incomplete_bytes(data: bytes) -> int:
    """Return how many bytes at the end begin a character without completing it."""
    for count in range(1, min(3, len(data)) + 1):
        try:
            data[-count:].decode()
        except UnicodeDecodeError as error:
            if (error.start, error.reason) == (0, "unexpected end of data"):
                return count
    return 0


@law("Text that spells a special token is plain text; with specials=True it becomes that token's id.")
def spelled_specials_are_plain_unless_asked_for(subject: Subject, draw: Draw) -> None:
    before, after = draw("before", texts(max_size=6)), draw("after", texts(max_size=6))
    text = before + SPECIAL + after
    made = draw_vocabulary(draw, text)
    kinds = ["vocab.json"] + ["tokenizer.json"] * ("tokenizers" in subject.abilities)
    with load_from_files(made, draw("kind", st.sampled_from(kinds))) as ours:
        special = len(made.ids)
        plain = ours.encode(text)
        if special in plain or ours.decode(plain) != text:
            raise AssertionError(f"{text!r} is {plain}, where {special} is {SPECIAL}")
        asked = [*ours.encode(before, specials=True), special, *ours.encode(after, specials=True)]
        same(ours.encode(text, specials=True), asked, text)
        same([ord(c) for c in ours.decode(asked)], [ord(c) for c in text], text)


@law("A text gets one BOS if the tokenizer adds one, never two; decoding removes it.")
def one_bos_never_two(subject: Subject, draw: Draw) -> None:
    text = draw("text", texts(max_size=8))
    made = draw_vocabulary(draw, text)
    adds = draw("adds", st.booleans())
    config = {"bos_token": SPECIAL, "eos_token": {"content": SPECIAL}, "add_bos_token": adds}
    with load_from_files(made, "vocab.json") as bare, load_from_files(made, "vocab.json", config) as ours:
        bos = len(made.ids)
        first = [bos] * adds
        same([*ours.eos_ids, ours.bos_id or 0], [bos, bos], "the BOS and the EOS")
        same(ours.encode(text), first + bare.encode(text), text)
        same(
            ours.encode(SPECIAL + text, specials=True),
            [bos, *bare.encode(text, specials=True)],
            SPECIAL + text,
        )
        if ours.decode(ours.encode(text)) != text:
            raise AssertionError(f"{text!r} comes back as {ours.decode(ours.encode(text))!r}")
        for wrong in (-1, ours.vocab_size):
            check_rejects(f"id {wrong} is not in the vocabulary", ours.decode, [wrong])
