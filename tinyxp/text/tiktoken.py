"""tiktoken's encodings, by name, and its rank files."""

import base64
from pathlib import Path
from typing import NamedTuple

from tinyxp.errors import CheckpointError
from tinyxp.files import name_in_errors, read_bytes
from tinyxp.text import bpe
from tinyxp.text.base import Tokenizer, with_specials
from tinyxp.text.specials import END_OF_TEXT


class _Encoding(NamedTuple):
    """What a rank file does not say."""

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
    """tiktoken's encoding `name`; BOS and EOS are its <|endoftext|>, and no BOS is added.

    ValueError for a name that tiktoken lacks, CheckpointError where its ranks can be neither found in
    TIKTOKEN_CACHE_DIR nor fetched, ImportError without tiktoken.
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
        raise CheckpointError(f"the ranks of tiktoken's {name} cannot be had: {error}") from None
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
    """The tokenizer of a `.tiktoken` file: on each line a token in base64, a space, and its rank.

    The file holds no pattern and no special tokens. They are known from its name (gpt2, r50k_base,
    cl100k_base, o200k_base); under any other it has GPT-2's pattern and no special tokens. CheckpointError
    for bad files.
    """
    with name_in_errors(path):
        ranks: dict[bytes, int] = {}
        owner: dict[int, int] = {}
        for number, line in enumerate(read_bytes(path).splitlines(), 1):
            if not line:
                continue
            try:
                token, rank = line.split(b" ")
                data, index = base64.b64decode(token, validate=True), int(rank)
            except ValueError:
                raise CheckpointError(f"line {number} is not a token and a rank: {line[:80]!r}") from None
            if not data or index < 0:
                raise CheckpointError(f"line {number}: token {data!r} of rank {index}")
            if data in ranks or index in owner:
                earlier = owner[index] if index in owner else owner[ranks[data]]
                raise CheckpointError(f"line {number} repeats the token or the rank of line {earlier}")
            ranks[data] = index
            owner[index] = number
        if not ranks:
            raise CheckpointError("has no ranks")
        known = ENCODINGS.get(path.stem, _Encoding(bpe.GPT2_PATTERN, {}))
        for token_text, index in known.specials.items():
            if index in owner:
                raise CheckpointError(f"line {owner[index]} has the rank {index}, which is {token_text}'s")
        tokens = {index: data for data, index in ranks.items()}
        tokens.update({index: token_text.encode() for token_text, index in known.specials.items()})
        end = known.specials.get(END_OF_TEXT)
        plain = bpe.rank_encoder(ranks, known.pattern)
        return Tokenizer(
            with_specials(plain, known.specials, {}),
            tokens,
            bos_id=end,
            eos_ids=() if end is None else (end,),
        )
