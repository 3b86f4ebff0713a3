"""Both sides of a planted fault: the right model on a backend, and the wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tinyxp
from tests.reference import drawn

from .planted import MASK, Planted, config_of, open_port, state_of


def sides(planted: Planted, backend: str, folder: Path, *, logits: bool = False) -> tuple[Any, Any]:
    """The right model's parameters on a backend; a function for a port, a specification for files.

    Faulty files run on the same backend; faulty ports are in the library that they are written in.
    """
    config = config_of(planted)
    params = drawn(config)
    right = params.to(tinyxp.backend(backend).xp)
    if planted.how == "file":
        assert not isinstance(planted.plant, str)
        tinyxp.save(params, folder / "model")
        return right, f"{planted.plant(folder / 'model')}@{backend}"
    assert isinstance(planted.plant, str)
    port = open_port(planted.how, planted.family, state_of(config), config.to_hf(), planted.plant)
    answer = port.logits if logits else port.trace

    def wrong(ids: np.ndarray, mask: np.ndarray | None = None) -> Any:
        return answer(ids, mask)

    return right, wrong


def mask_of(planted: Planted) -> np.ndarray | None:
    return MASK if planted.needs_mask else None
