"""tiktoken's encodings, by name, and its rank files."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tinyxp.errors import CheckpointError
from tinyxp.files import name_in_errors, read_bytes
from tinyxp.text import bpe
from tinyxp.text.base import Tokenizer, add_specials
from tinyxp.text.specials import END_OF_TEXT


class _Encoding(NamedTuple):
    """What a rank file does not say: the pattern and the special tokens."""

    pattern: str
    specials: dict[str, int]


_R50K = _Encoding(bpe.GPT2_PATTERN, {END_OF_TEXT: 50256})
_FIM = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
ENCODINGS = {
    "gpt2": _R50K,
    "r50k_base": _R50K,
    "cl100k_base": _Encoding(
        bpe.CL100K_PATTERN,
        {
            END_OF_TEXT: 100257,
            **dict(zip(_FIM, range(100258, 100261), strict=True)),
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k_base": _Encoding(bpe.O200K_PATTERN, {END_OF_TEXT: 199999, "<|endofprompt|>": 200018}),
}


def load_encoding(name: str) -> Tokenizer:
    """Load tiktoken's encoding ``name``; BOS and EOS are its <|endoftext|>, and no BOS is added.

    Raises ValueError for a name that tiktoken lacks, CheckpointError if its ranks are neither in
    TIKTOKEN_CACHE_DIR nor can be downloaded, ImportError without tiktoken.
    """
    try:
        import tiktoken
    except ImportError:
        raise ImportError(f"the encoding {name} needs tiktoken: pip install 'tinyxp[hf]'") from None
    if name not in tiktoken.list_encoding_names():
        raise ValueError(
            f"tiktoken has no encoding {name!r}; it has {', '.join(tiktoken.list_encoding_names())}"
        )
    try:
        encoding = tiktoken.get_encoding(name)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"the ranks of tiktoken's {name} cannot be read: {error}") from None
    specials = {token: encoding.encode_single_token(token) for token in encoding.special_tokens_set}
    tokens = {index: token.encode() for token, index in specials.items()}
    for index in range(encoding.n_vocab):
        try:
            tokens.setdefault(index, encoding.decode_single_token_bytes(index))
        except KeyError:
            continue  # a hole between the ranks and the specials

    def encode(text: str, find_specials: bool) -> list[int]:
        allowed = encoding.special_tokens_set if find_specials else set()
        return encoding.encode(text, allowed_special=allowed, disallowed_special=())

    end = specials.get(END_OF_TEXT)
    return Tokenizer(encode, tokens, bos_id=end, eos_ids=() if end is None else (end,))


def load_rank_file(path: Path) -> Tokenizer:
    """Load the tokenizer of a ``.tiktoken`` file: each line has a token in base64, a space, and its rank.

    The file holds no pattern and no special tokens. Its name says them (gpt2, r50k_base, cl100k_base,
    o200k_base); under any other name it has GPT-2's pattern and no special tokens. Raises CheckpointError for
    bad files.
    """
    encoding = ENCODINGS.get(path.stem, _Encoding(bpe.GPT2_PATTERN, {}))
    with name_in_errors(path):
        ranks = _parse_ranks(read_bytes(path), {index: token for token, index in encoding.specials.items()})
    tokens = {index: token for token, index in ranks.items()}
    tokens.update({index: token.encode() for token, index in encoding.specials.items()})
    end = encoding.specials.get(END_OF_TEXT)
    plain = bpe.rank_encoder(ranks, encoding.pattern)
    return Tokenizer(
        add_specials(plain, encoding.specials, {}),
        tokens,
        bos_id=end,
        eos_ids=() if end is None else (end,),
    )


def _parse_ranks(data: bytes, specials: Mapping[int, str]) -> dict[bytes, int]:
    """Read the rank of every token; CheckpointError naming the line of a bad one."""
    ranks: dict[bytes, int] = {}
    line_of: dict[int, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line:
            continue
        try:
            spelled, rank = line.split(b" ")
            token, index = base64.b64decode(spelled, validate=True), int(rank)
        except ValueError:
            raise CheckpointError(f"line {number} is not a token and a rank: {line[:80]!r}") from None
        if not token or index < 0:
            raise CheckpointError(f"line {number}: token {token!r} of rank {index}")
        if token in ranks or index in line_of:
            earlier = line_of[index] if index in line_of else line_of[ranks[token]]
            raise CheckpointError(f"line {number} repeats the token or the rank of line {earlier}")
        ranks[token] = index
        line_of[index] = number
    if not ranks:
        raise CheckpointError("has no ranks")
    for index, special in specials.items():
        if index in line_of:
            raise CheckpointError(f"line {line_of[index]} has the rank {index}, which is {special}'s")
    return ranks
