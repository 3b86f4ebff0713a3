"""A saved vocabulary, read by transformers' own tokenizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinyxp.text import bpe
from tinyxp.text.saving import save_tokenizer

transformers = pytest.importorskip("transformers")

SING = "sing sing sings song sang"


@pytest.mark.parametrize("pattern", [bpe.GPT2_PATTERN, bpe.CL100K_PATTERN])
def test_transformers_reads_it(pattern: str, tmp_path: Path) -> None:
    text = "sing , sing  a 'sing' 1234\n"
    ranks = bpe.train(SING, 260, pattern=pattern).ranks
    save_tokenizer(ranks, tmp_path, pattern=pattern)
    for reader in (transformers.AutoTokenizer, transformers.PreTrainedTokenizerFast):
        theirs = reader.from_pretrained(str(tmp_path))
        ids = bpe.encode(text, ranks, pattern=pattern)
        assert theirs(text).input_ids == ids
        assert theirs.decode(ids) == text
