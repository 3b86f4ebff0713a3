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
CONFIG_PATTERNS = ("*.json",)
MODEL_PATTERNS = (
    "*.safetensors",
    "*.json",
    *(name for name in TOKENIZER_FILES if not name.endswith(".json")),
)


def fetch(hub_id: str, patterns: tuple[str, ...]) -> Path:
    """Return a local folder with the files of a hub repository, downloading those that its cache lacks.

    Raises ImportError if huggingface_hub is not installed, and CheckpointError with a way out if the
    repository cannot be downloaded.
    """
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError as error:
        raise ImportError(f"{hub_id} needs huggingface_hub: pip install 'tinyxp[hf]'") from error
    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(patterns), ignore_patterns=["*/*"]))
    except Exception as error:  # its client raises its own, its transport's and the system's errors
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise CheckpointError(
            f"{hub_id}: no such path, and the hub cannot provide it ({reason}); download the folder "
            f"elsewhere (hf download {hub_id} --local-dir DIR) and pass its path"
        ) from error
