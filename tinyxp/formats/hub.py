"""Folders from the Hugging Face hub, through its own client and cache."""

from __future__ import annotations

import re
from pathlib import Path

from tinyxp.errors import CheckpointError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "encoder.json",
    "vocab.bpe",
    "tokenizer.model",
    "chat_template.jinja",
    "generation_config.json",
)
CONFIGS = ("*.json",)
EVERYTHING = ("*.safetensors", "*.json", *(name for name in TOKENIZER_FILES if not name.endswith(".json")))


def fetch(name: str, patterns: tuple[str, ...]) -> Path:
    """The local copy of a hub repository's files, downloaded where the cache lacks them.

    Raises ImportError where huggingface_hub is not installed, CheckpointError saying what to do where the
    repository cannot be had.
    """
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError as error:
        raise ImportError(f"{name} is fetched with huggingface_hub: pip install 'tinyxp[hf]'") from error
    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns), ignore_patterns=["*/*"]))
    except Exception as error:  # its client raises its own, its transport's and the system's errors
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise CheckpointError(
            f"{name}: no such path, and the hub does not give it ({reason}); download the folder elsewhere "
            f"(hf download {name} --local-dir DIR) and pass its path"
        ) from error
