"""Rows of the embedding and of the positions that belong to others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.doctor.models import GPT2_SMALL, IDS, LLAMA_SMALL
from tests.doctor.variants import right_variant
from tinyxp import Config
from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.fits.rows import fit_rows

FIRST = np.equal(IDS, IDS[0, 0])
POSITIONS = np.broadcast_to(np.arange(12), IDS.shape)


def key_of(config: Config, ids: np.ndarray, positions: np.ndarray = POSITIONS) -> str | None:
    """What a side is said to look up that has these rows of the tables."""
    v = right_variant(config)
    embed = v.read("embed.weight")[ids] * (ids >= 0)[..., None]
    if config.position == "learned":
        embed = embed + v.read("pos_embed.weight")[positions]
    evidence = Evidence(v.weights, v.batch, {"embed": embed}, "float32")
    fit = fit_rows(evidence, v, "embed")
    return None if fit is None else fit[0].key


@pytest.mark.parametrize("config", [LLAMA_SMALL, GPT2_SMALL], ids=["llama", "gpt2"])
def test_tokens(config: Config) -> None:
    assert key_of(config, IDS) is None
    assert key_of(config, (IDS - 3) % 61) == "token rows shifted by +3"
    assert key_of(config, (IDS + 2) % 61) == "token rows shifted by -2"
    assert key_of(config, np.where(FIRST, 7, IDS)) == "token rows moved"
    assert key_of(config, np.where(FIRST, -1, IDS)) == "token rows zeroed"


def test_positions() -> None:
    assert key_of(GPT2_SMALL, IDS, POSITIONS + 3) == "position rows shifted by -3"
    assert key_of(GPT2_SMALL, IDS, POSITIONS[:, ::-1]) == "position rows moved"


def test_what_is_no_row_is_no_fit() -> None:
    v = right_variant(LLAMA_SMALL)
    evidence = Evidence(v.weights, v.batch, {"embed": 1.1 * v.read("embed.weight")[IDS]}, "float32")
    assert fit_rows(evidence, v, "embed") is None
    assert fit_rows(evidence, v, "logits") is None
