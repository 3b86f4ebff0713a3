"""A trained model for the examples that take one apart, and text like its training text.

If TINYXP_TEST_DATA names a folder with ``stories260k``, it is that model, with stories that it generates.
Otherwise it is a model of bytes that trains for some seconds on this project's own pages, with held-out
pages.
"""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

import tinyxp

STRETCH = 4  # rows of text are so many times max_seq_len long


class Trained(NamedTuple):
    name: str
    params: tinyxp.Params  # of NumPy
    ids: np.ndarray  # (rows, STRETCH * max_seq_len + 1)


def trained_model(quick):
    """The model and its text, 8 rows of it, or 2 in a hurry."""
    folder, rows = os.environ.get("TINYXP_TEST_DATA"), 2 if quick else 8
    return stories(Path(folder) / "stories260k", rows) if folder else from_pages(80 if quick else 500, rows)


def stories(folder, rows):
    """Stories of max_seq_len tokens, each from the beginning-of-text id 1 on."""
    params = tinyxp.load(folder)
    starts = np.ones((rows * (STRETCH + 1), 1), dtype=np.int64)
    drawn = tinyxp.generate(params, starts, params.config.max_seq_len - 1, temperature=1.0, seed=0)
    text = np.concatenate([starts, drawn], axis=1).reshape(rows, -1)
    return Trained("stories260k on its own stories", params, staggered(text, params.config.max_seq_len))


def from_pages(steps, rows):
    """Bytes of the project's pages, the end of the last held out."""
    import torch

    from tinyxp.text.windows import cut_windows
    from tinyxp.train import Recipe, fit

    root, length = Path(__file__).parents[1], 64
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    text = np.frombuffer(b"".join(page.read_bytes() for page in pages), dtype=np.uint8)
    held_out = rows * (STRETCH + 1) * length
    config = tinyxp.Config(vocab_size=256, d_model=64, n_heads=8, n_kv_heads=4, d_ff=176, max_seq_len=length)
    train, validation = cut_windows(text[:-held_out], length), cut_windows(text[-held_out:], length)
    recipe = Recipe(steps=steps, batch=16, peak=3e-3, warmup=20, seed=0)
    *_, last = fit(tinyxp.init(config, xp=torch), train, validation, recipe)
    ids = staggered(text[-held_out:].astype(np.int64).reshape(rows, -1), length)
    return Trained("a model trained on this project's pages", last.params.to(np), ids)


def staggered(text, length):
    """Row r from column r length / rows on, so that stories do not begin at the same place in every row.

    text (rows, (STRETCH + 1) length) -> (rows, STRETCH length + 1).
    """
    starts = np.arange(len(text)) * length // len(text)
    return np.stack([row[i : i + STRETCH * length + 1] for row, i in zip(text, starts, strict=True)])


def token_losses(params, ids, tap=None):
    """-log softmax(logits)[next id], in nats. ids (b, t) -> (b, t - 1)."""
    logits = tinyxp.forward(params, ids[:, :-1], kernels=params.backend.engine.kernels, tap=tap)
    wide = np.asarray(logits, dtype=np.float64)
    chosen = np.take_along_axis(wide, ids[:, 1:, None], axis=-1)[..., 0]
    return np.logaddexp.reduce(wide, axis=-1) - chosen
