"""Laws of tokenizers: byte-level BPE over vocabularies that are made on the spot from the drawn text."""

from __future__ import annotations

from importlib import import_module

from hypothesis import strategies as st

from tinyxp.testing.law import Draw, law
from tinyxp.testing.laws.drawing import refuses
from tinyxp.testing.strategies import texts
from tinyxp.testing.subject import Subject
from tinyxp.testing.vocabularies import (
    GPT2_PATTERN,
    PATTERNS,
    SPECIAL,
    SPECIALS,
    loaded,
    settled,
    theirs,
    vocabulary,
)

SENNRICH = "Sennrich et al., 2016, over bytes as in Radford et al., 2019"
OWN = "tinyxp's own contract: load_tokenizer"


def same(found: list[int], expected: list[int], text: str) -> None:
    """Raises AssertionError naming the text where ids differ."""
    if found != expected:
        raise AssertionError(f"{text!r} is {found}, expected {expected}")


@law(
    "Byte-level BPE cuts a text as GPT-2's pattern says and joins, in each piece, the pair of the lowest "
    "rank first, the leftmost of equals.",
    of="text",
    region="text",
    source=SENNRICH,
    needs="files",
)
def lowest_rank_first(subject: Subject, draw: Draw) -> None:
    text = draw("text", texts().map(settled))
    kind = draw("kind", st.sampled_from(["vocab.json", "any"]))
    made = vocabulary(draw, text, ranked=kind == "any")
    pieces = import_module("regex").findall(GPT2_PATTERN, text)
    with loaded(made, kind) as ours:
        same(ours.encode(text), made.encode(pieces), text)


@law(
    "Any text comes back from its ids, exactly.",
    of="text",
    region="text",
    source=OWN,
    needs="files",
)
def any_text_round_trips(subject: Subject, draw: Draw) -> None:
    text = draw("text", texts())
    kinds = ["vocab.json", *PATTERNS] + ["tokenizer.json"] * ("tokenizers" in subject.abilities)
    kind = draw("kind", st.sampled_from(kinds))
    asked = draw("specials", st.booleans())
    with loaded(vocabulary(draw, text, ranked=kind in PATTERNS), kind) as ours:
        ids = ours.encode(text, specials=asked)
        found = ours.decode(ids)
        if found != text:
            raise AssertionError(f"{text!r} comes back from {ids} as {found!r}")
        if not all(0 <= i < ours.vocab_size for i in ids):
            raise AssertionError(f"{text!r} is {ids}, but the vocab_size is {ours.vocab_size}")


@law(
    "The package tokenizers gives the same ids for the same vocabulary and merges.",
    of="text",
    region="text",
    source="Hugging Face's tokenizers, models.BPE behind pre_tokenizers.ByteLevel",
    needs="files tokenizers",
    is_reference=True,
)
def tokenizers_agrees(subject: Subject, draw: Draw) -> None:
    text = draw("text", texts().map(settled))
    made = vocabulary(draw, text)
    reference = theirs(made)
    reference.encode_special_tokens = True
    with loaded(made, "vocab.json") as ours:
        same(ours.encode(text), reference.encode(text).ids, text)


@law(
    "The package tiktoken gives the same ids for the same ranks, with each of its patterns.",
    of="text",
    region="text",
    source="tiktoken.Encoding, and the patterns of tiktoken_ext.openai_public",
    needs="files tiktoken",
    is_reference=True,
)
def tiktoken_agrees(subject: Subject, draw: Draw) -> None:
    name = draw("name", st.sampled_from(sorted(PATTERNS)))
    spellings = st.sampled_from(["", *SPECIALS[name], "<|end"])
    text = draw("text", texts().map(settled)) + draw("special", spellings) + draw("after", spellings)
    asked = draw("specials", st.booleans())
    made = vocabulary(draw, text, ranked=True)
    encoding = import_module("tiktoken").Encoding(
        name, pat_str=PATTERNS[name], mergeable_ranks=made.ids, special_tokens=SPECIALS[name]
    )
    expected = encoding.encode(text, allowed_special="all" if asked else set(), disallowed_special=())
    with loaded(made, name) as ours:
        same(ours.encode(text, specials=asked), expected, text)
        same(list(ours.eos_ids), list(SPECIALS[name].values())[:1], "the EOS")


@law(
    "Ids pushed one by one give whole characters as soon as they are whole, and all of them give the text of "
    "their bytes, with U+FFFD for what is no UTF-8.",
    of="text",
    region="text",
    source="The Unicode Standard, section 3.9, U+FFFD Substitution of Maximal Subparts",
    needs="files",
)
def streams_are_the_whole(subject: Subject, draw: Draw) -> None:
    text = draw("text", texts())
    kind = draw("kind", st.sampled_from(["vocab.json", "any"]))
    made = vocabulary(draw, text, ranked=kind == "any")
    with loaded(made, kind) as ours:
        likely = ours.encode(text + "é🙂日")
        known = st.sampled_from(likely) | st.sampled_from(sorted(made.ids.values()))
        ids = draw("ids", st.lists(known, max_size=12)) + ours.encode(text)
        bytes_of = {i: token for token, i in made.ids.items()}
        stream, data, said = ours.stream(), b"", ""
        for i in ids:
            data, said = data + bytes_of[i], said + stream.push(i)
            whole = data[: len(data) - unfinished(data)].decode(errors="replace")
            if said != whole:
                raise AssertionError(f"{data!r} is {said!r} so far, expected {whole!r}")
        whole = data.decode(errors="replace")
        for found in (said + stream.flush(), ours.decode(ids)):
            if found != whole:
                raise AssertionError(f"{ids} is {found!r}, expected {whole!r}")


def unfinished(data: bytes) -> int:
    """How many bytes at the end begin a character that they do not end."""
    for count in range(1, min(3, len(data)) + 1):
        try:
            data[-count:].decode()
        except UnicodeDecodeError as error:
            if (error.start, error.reason) == (0, "unexpected end of data"):
                return count
    return 0


@law(
    "Text that spells a special token is plain text; where specials are asked for, it is that token's id.",
    of="text",
    region="text",
    source=OWN,
    needs="files",
)
def spelled_specials_are_plain_unless_asked_for(subject: Subject, draw: Draw) -> None:
    before, after = draw("before", texts(max_size=6)), draw("after", texts(max_size=6))
    text = before + SPECIAL + after
    made = vocabulary(draw, text)
    kinds = ["vocab.json"] + ["tokenizer.json"] * ("tokenizers" in subject.abilities)
    with loaded(made, draw("kind", st.sampled_from(kinds))) as ours:
        special = len(made.ids)
        plain = ours.encode(text)
        if special in plain or ours.decode(plain) != text:
            raise AssertionError(f"{text!r} is {plain}, where {special} is {SPECIAL}")
        asked = [*ours.encode(before, specials=True), special, *ours.encode(after, specials=True)]
        same(ours.encode(text, specials=True), asked, text)
        same([ord(c) for c in ours.decode(asked)], [ord(c) for c in text], text)


@law(
    "One BOS stands before a text where the tokenizer adds one, never two; decoding takes it away.",
    of="text",
    region="text",
    source=OWN,
    needs="files",
)
def one_bos_never_two(subject: Subject, draw: Draw) -> None:
    text = draw("text", texts(max_size=8))
    made = vocabulary(draw, text)
    adds = draw("adds", st.booleans())
    config = {"bos_token": SPECIAL, "eos_token": {"content": SPECIAL}, "add_bos_token": adds}
    with loaded(made, "vocab.json") as bare, loaded(made, "vocab.json", config) as ours:
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
            refuses(f"id {wrong} is not in the vocabulary", ours.decode, [wrong])
