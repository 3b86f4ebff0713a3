"""Laws of positions: rotary ones depend on distances only, learned ones are rows of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.config import Config, RopeScaling
from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.referee import rope_frequency, rotate
from tinyxp.testing.subjects.base import Subject

ROFORMER = "Su et al., 2021, RoFormer, section 3.2"

law = laws_of("model", "positions", ROFORMER, "params")


@law(
    "With rotary positions, shifting a whole text by any distance changes no logit.", needs="positions rotary"
)
def shift_invariance(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw, position="rope")
    ids = model.ids(draw, columns=(2, 6))
    # Rotary positions have no end here; those of other models may.
    furthest = 40 if "params" in subject.abilities else model.max_seq_len - ids.shape[1]
    shift = draw("shift", st.integers(min(1, furthest), furthest))
    columns = np.arange(ids.shape[1])[None, :]
    # Angles of size 40 have 40 times the rounding error of angles of size 1, which only float64 can afford.
    within = None if subject.dtype == "float64" else 0.01
    subject.close(
        model.forward(ids, positions=columns + shift),
        model.forward(ids),
        f"logits {shift} later",
        within=within,
    )


@law("Positions count a row's real tokens from 0.", source="Hugging Face's position_ids", needs="positions")
def positions_count_from_0(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    columns = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
    subject.close(
        model.forward(ids, positions=columns), model.forward(ids), "logits with positions 0, 1, ..."
    )


@law(
    "Positions matter: in a random model, swapping two tokens changes the logits after them.",
    source="Vaswani et al., 2017, section 3.5: without positions attention sees a set",
)
def order_matters(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw, n_layers=1)
    ids = model.ids(draw, columns=(3, 6)).copy()
    ids[:, 0], ids[:, 1] = 0, 1
    swapped = ids.copy()
    swapped[:, [0, 1]] = ids[:, [1, 0]]
    moved = np.abs(model.forward(swapped)[:, -1] - model.forward(ids)[:, -1]).max()
    if not moved > 1e-7:  # a hundred times rounding; these weights change logits by at least 0.01
        raise AssertionError(f"swapping tokens 0 and 1 changed the last logits by {moved}")


@law(
    "A learned position is a row of its table: explicit positions read their rows, in any order.",
    source="Radford et al., 2019; Vaswani et al., 2017, section 3.5",
    needs="params trace positions",
)
def learned_positions_are_rows(subject: Any, draw: Draw) -> None:
    model = subject.model(draw, position="learned", rope_scaling=None)
    ids = model.ids(draw)
    longest = model.max_seq_len - 1
    rows = draw("positions", st.lists(st.integers(0, longest), min_size=ids.shape[1], max_size=ids.shape[1]))
    table, words = model.arrays["pos_embed.weight"], model.arrays["embed.weight"]
    counted = model.trace(ids)["embed"]
    subject.close(counted, words[ids] + table[: ids.shape[1]], "embed")
    given = model.trace(ids, positions=np.tile(rows, (len(ids), 1)))["embed"]
    subject.close(given, words[ids] + table[rows], f"embed at positions {rows}")


@law(
    "Rotary angles are position times theta^(-2i/hd), scaled as the config says; they rotate the pairs (i, i "
    "+ hd/2) of q and k, and nothing else.",
    source=ROFORMER + "; kaiokendev, 2023; Llama 3.1, 2024",
    needs="params trace positions",
)
def rotary_angles(subject: Any, draw: Draw) -> None:
    model = subject.model(draw, position="rope")
    config = model.config
    ids = model.ids(draw)
    start = draw("start", st.integers(0, 30))
    positions = start + np.arange(ids.shape[1])
    points = model.trace(ids, positions=np.tile(positions, (len(ids), 1)))
    for i in range(config.n_layers):
        for name, heads in (("q", config.n_heads), ("k", config.n_kv_heads)):
            before = points[f"blocks.{i}.attn.{name}"].reshape(*ids.shape, heads, config.head_dim)
            expected = np.stack(
                [rotate(before[:, t], int(p), config) for t, p in enumerate(positions)], axis=1
            )
            found = points[f"blocks.{i}.attn.{name}_rotated"].swapaxes(1, 2)
            subject.close(found, expected, f"blocks.{i}.attn.{name}_rotated (b, t, heads, hd)")


@law(
    "The frequency of pair i is theta^(-2i/hd); scaling keeps it for short wavelengths, divides it for long "
    "ones, and blends between.",
    source=ROFORMER + "; kaiokendev, 2023; Llama 3.1, 2024",
)
def rotary_frequencies(subject: Any, draw: Draw) -> None:
    low = draw("low", st.sampled_from([0.25, 0.5, 1.0]))
    scaling = RopeScaling(
        rope_type=draw("rope_type", st.sampled_from(["llama3", "linear"])),
        factor=draw("factor", st.sampled_from([2.0, 8.0])),
        low_freq_factor=low,
        high_freq_factor=low * draw("high / low", st.sampled_from([2.0, 16.0])),
        original_max_seq_len=draw("original_max_seq_len", st.integers(8, 64)),
    )
    config = Config(
        head_dim=2 * draw("pairs", st.integers(4, 16)),
        rope_theta=draw("theta", st.sampled_from([100.0, 1e4, 1e6])),
        rope_scaling=draw("scaling", st.sampled_from([scaling, None])),
    )
    expected = [rope_frequency(i, config) for i in range(config.head_dim // 2)]
    found = subject.modules.rope.rope_frequencies(config)
    subject.close(np.asarray(found) / expected, np.ones(len(expected)), "ratio of frequencies", within=1e-12)
