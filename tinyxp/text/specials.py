"""Which ids begin and end a text: what stands beside a Hugging Face vocabulary."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tinyxp.errors import CheckpointError
from tinyxp.files import name_in_errors, read_json

END_OF_TEXT = "<|endoftext|>"


class SpecialIds(NamedTuple):
    """The BOS, the ids that end a generation, and whether a BOS is added; None where that is not said."""

    bos_id: int | None
    eos_ids: tuple[int, ...]
    adds_bos: bool | None = None


def read_special_ids(folder: Path, vocab: Mapping[str, int]) -> SpecialIds:
    """What tokenizer_config.json says of BOS and EOS, and generation_config.json of further EOS.

    Without a tokenizer_config.json, GPT-2's <|endoftext|> is both, where `vocab` has it. CheckpointError
    where the files name what is not in `vocab`.
    """
    end = vocab.get(END_OF_TEXT)
    bos_id, adds_bos = end, None
    eos_ids = [] if end is None else [end]
    path = folder / "tokenizer_config.json"
    if path.is_file():
        config = read_json(path)
        with name_in_errors(path):
            bos_id = _token_id(config, "bos_token", vocab)
            eos_id = _token_id(config, "eos_token", vocab)
            eos_ids = [] if eos_id is None else [eos_id]
            adds_bos = config.get("add_bos_token")
            if adds_bos is not None and not isinstance(adds_bos, bool):
                raise CheckpointError(f"add_bos_token is {adds_bos!r}; it must be true or false")
    path = folder / "generation_config.json"
    if path.is_file():
        ending = read_json(path).get("eos_token_id")
        endings = ending if isinstance(ending, list) else [] if ending is None else [ending]
        known = set(vocab.values())
        with name_in_errors(path):
            for index in endings:
                if type(index) is not int or index not in known:
                    raise CheckpointError(f"eos_token_id {index!r} is not in the vocabulary")
                eos_ids.append(index)
    return SpecialIds(bos_id, tuple(eos_ids), adds_bos)


def _token_id(config: Mapping[str, object], key: str, vocab: Mapping[str, int]) -> int | None:
    token = config.get(key)
    if isinstance(token, dict):
        token = token.get("content")
    if token is None:
        return None
    if not isinstance(token, str) or token not in vocab:
        raise CheckpointError(f"{key} {token!r} is not in the vocabulary")
    return vocab[token]
