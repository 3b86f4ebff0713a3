"""Two sections of the page of a forward pass: who looks at whom, and where a token stands."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyxp.html import measure
from tinyxp.html.measure import Run
from tinyxp.html.page import Section, cell, rounded, slider, table, token

ONES = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWX"
SIXTIES = "YZ!#$%()*+,-./:;"
"""Digits to write 0 to 1000 with: below 60 one character, else one more before it."""
WRITTEN = 16
"""Up to so many positions the cells of a map hold their numbers; beyond, their titles alone do."""


def attention(run: Run, data: dict[str, Any]) -> Section:
    """The weights of each head of each layer, with the mask and without."""
    config, count = run.params.config, len(run.shown)
    lower = np.tril_indices(count)
    data |= {"code": [ONES, SIXTIES], "group": config.n_heads // config.n_kv_heads}
    data |= {"written": count <= WRITTEN, "masked": [], "unmasked": [], "future": []}
    for layer in range(config.n_layers):
        weights, unmasked, future = measure.attention(run, layer)
        data["masked"].append([packed(x[lower]) for x in weights])
        data["unmasked"].append([packed(x) for x in unmasked])
        data["future"].append([rounded(x) for x in future])
    pills = "".join(
        f'<label class="pill"><input type="radio" name="head" value="{i}"{" checked" * (i == 0)}>'
        f"<span>{i}</span></label>"
        for i in range(config.n_heads)
    )
    controls = (
        f'<div class="controls">{slider("layer", "Layer", config.n_layers - 1)}'
        f'<fieldset id="heads"><legend>Head</legend>{pills}</fieldset>'
        f"{slider('query', 'Row', count - 1, count - 1)}"
        '<label class="field"><input type="checkbox" id="mask" role="switch" checked> Causal mask</label>'
        "</div>"
    )
    blank = [[cell("")] * count] * count
    return Section(
        "attention",
        "Who looks at whom",
        "A row is a token that looks, a column one that is looked at, a cell the weight between them "
        "(<code>attn.weights</code>; below 0.005 it is left blank). Each row adds up to 1. The mask hides "
        "what comes later. Switch it off to see what softmax would make of all the scores: beyond the "
        "steps, in another colour, the future leaks in.",
        f'{controls}<p><output id="attention-told" for="layer query mask"></output></p>'
        + _map(run, "Attention weights: rows look at columns", "attention-table", blank),
    )


def packed(weights: np.ndarray) -> str:
    """Numbers from 0 to 1 in thousandths, in the digits above."""
    whole = np.rint(weights.ravel() * 1000.0).astype(int).clip(0, 1000).tolist()
    return "".join((SIXTIES[x // 60 - 1] if x >= 60 else "") + ONES[x % 60] for x in whole)


def _map(run: Run, caption: str, name: str, cells: list[list[str]]) -> str:
    """A square table of the positions that are shown."""
    tokens = [token(run.token(i)) for i in run.shown]
    kind = "map" if len(tokens) <= WRITTEN else "map small"
    return table(caption, ("", *tokens), list(zip(tokens, cells, strict=True)), kind=kind, name=name)


def clocks(run: Run, data: dict[str, Any]) -> Section:
    """Some rotary pairs as the hands of clocks."""
    pairs, frequencies, hands = measure.clocks(run)
    periods = [2.0 * math.pi / f for f in frequencies.tolist()]
    data["hands"] = [[[rounded(x) for x in hand] for hand in clock] for clock in hands.tolist()]
    data["periods"] = [rounded(period, 6) for period in periods]
    half = run.params.config.head_dim // 2

    def face(pair: int, period: float, clock: np.ndarray) -> str:
        dots = "".join(
            f'<circle class="trail" cx="{50.0 + 46.0 * sin:.1f}" cy="{50.0 - 46.0 * cos:.1f}" r="2.5"/>'
            for cos, sin in clock[run.shown.start : run.shown.stop]
        )
        turn = f"{period:.1f}" if period < 100.0 else f"{period:,.0f}"
        return (
            '<figure class="clock"><svg viewBox="0 0 100 100" aria-hidden="true">'
            f'<circle class="dial" cx="50" cy="50" r="46"/>{dots}'
            '<line class="hand" x1="50" y1="50" x2="50" y2="12"/></svg>'
            f"<figcaption>numbers {pair} and {pair + half}<br>a turn in {turn} tokens<br>"
            '<span class="turns"></span></figcaption></figure>'
        )

    faces = "".join(map(face, pairs, periods, hands))
    return Section(
        "positions",
        "Where a token stands: clock hands",
        "Before a query meets a key, both are turned pair by pair, by angles that grow with the position: "
        "fast hands tell neighbours apart, slow ones far places. A score depends on the difference of the "
        "angles alone, so on how far apart two tokens are. 12 o'clock is position 0, and a dot a token of "
        "this page.",
        f'<div class="controls">{slider("position", "Position", hands.shape[1] - 1, len(run.ids) - 1)}</div>'
        f'<div class="clocks">{faces}</div>',
    )


def positions(run: Run) -> Section:
    """How alike the rows of a learned position table are."""
    written = len(run.shown) <= WRITTEN
    cells = [
        [cell(f"{x:z.2f}" if written else "", share=x, title=f"{x:z.3f}") for x in row]
        for row in measure.position_similarity(run).tolist()
    ]
    return Section(
        "positions",
        "Where a token stands: a table of positions",
        "This model has learned a vector for each position (<code>pos_embed.weight</code>) and adds it to "
        "the token's. A cell is the cosine between the vectors of two positions: 1 where they point the "
        "same way, 0 where they have nothing in common, and in another colour below 0.",
        _map(run, "Cosines between the vectors of positions", "similarity-table", cells),
    )
