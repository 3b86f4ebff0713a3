"""The sections of a forward pass's page about attention weights and positions."""

from __future__ import annotations

import math

import numpy as np

from tinyxp.html.elements import EMPTY, Section, cell, controls, slider, table, token
from tinyxp.html.forward_pass import ForwardPass
from tinyxp.html.markup import Html, escape, fill, join
from tinyxp.html.measure_attention import attention_weights, position_similarity, rotary_angles
from tinyxp.html.numbers import round_to

ONES = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWX"
SIXTIES = "YZ!#$%()*+,-./:;"
"""The digits of 0 to 1000: one character below 60, else another before it that counts the sixties."""
MAX_NUMBERS = 16
"""With up to so many positions the cells of a map hold their numbers; with more, only their tooltips do."""


def attention_section(run: ForwardPass) -> Section:
    """Return the weights of each head of each layer, with the causal mask and without."""
    config, count = run.params.config, len(run.shown)
    lower = np.tril_indices(count)
    layers = [attention_weights(run, layer) for layer in range(config.n_layers)]
    cells = [[cell(EMPTY)] * count] * count
    return Section(
        "attention",
        "Attention weights",
        fill(
            "Each row is a query token, each column a key token, and each cell the weight of the key for "
            "the query (<code>attn.weights</code>; blank below 0.005). Each row adds up to 1. The causal "
            "mask hides later tokens. Switch it off to see softmax over all scores: beyond the stepped "
            "line, in another colour, are the weights of future tokens."
        ),
        fill(
            '{controls}<p><output id="attention-description" for="layer query mask"></output></p>{map}',
            controls=_attention_controls(run),
            map=_map(run, "Attention weights: rows are queries, columns are keys", "attention-table", cells),
        ),
        {
            "digits": [ONES, SIXTIES],
            "group": config.n_heads // config.n_kv_heads,
            "show_numbers": count <= MAX_NUMBERS,
            "masked": [[pack(x[lower]) for x in weights] for weights, _, _ in layers],
            "unmasked": [[pack(x) for x in unmasked] for _, unmasked, _ in layers],
            "future": [[round_to(x) for x in future] for _, _, future in layers],
        },
    )


def _attention_controls(run: ForwardPass) -> Html:
    config, count = run.params.config, len(run.shown)
    heads = (
        fill(
            '<label class="pill"><input type="radio" name="head" '
            'value="{i}"{checked}><span>{i}</span></label>',
            i=i,
            checked=fill(" checked" if i == 0 else ""),
        )
        for i in range(config.n_heads)
    )
    return controls(
        slider("layer", "Layer", config.n_layers - 1),
        fill('<fieldset id="heads"><legend>Head</legend>{heads}</fieldset>', heads=join(heads)),
        slider("query", "Query", count - 1, count - 1),
        fill(
            '<label class="field"><input type="checkbox" id="mask" role="switch" checked> Causal mask</label>'
        ),
    )


def pack(weights: np.ndarray) -> str:
    """Write numbers from 0 to 1 in thousandths, with the digits above."""
    thousandths = np.rint(weights.ravel() * 1000.0).astype(int).clip(0, 1000).tolist()
    return "".join((SIXTIES[x // 60 - 1] if x >= 60 else "") + ONES[x % 60] for x in thousandths)


def _map(run: ForwardPass, caption: str, name: str, cells: list[list[Html]]) -> Html:
    """Return a square table over the shown positions."""
    tokens = [token(run.token(i)) for i in run.shown]
    kind = "map" if len(tokens) <= MAX_NUMBERS else "map small"
    return table(caption, (EMPTY, *tokens), list(zip(tokens, cells, strict=True)), kind=kind, name=name)


def rotary_section(run: ForwardPass) -> Section:
    """Return some rotary pairs as the hands of clocks."""
    pairs, frequencies, angles = rotary_angles(run)
    periods = [2.0 * math.pi / f for f in frequencies.tolist()]
    return Section(
        "positions",
        "Rotary positions as clock hands",
        fill(
            "Before queries meet keys, both are rotated pair by pair, by angles proportional to the "
            "position. Fast pairs tell neighbours apart, slow ones distant tokens. A score depends only on "
            "the difference of the angles, so on the distance of two tokens. 12 o'clock is position 0; each "
            "dot is a token of this page."
        ),
        fill(
            '{controls}<div class="clocks">{clocks}</div>',
            controls=controls(slider("position", "Position", angles.shape[1] - 1, len(run.ids) - 1)),
            clocks=join(
                _clock(run, pair, period, angle)
                for pair, period, angle in zip(pairs, periods, angles, strict=True)
            ),
        ),
        {
            "hands": [[[round_to(x) for x in hand] for hand in clock] for clock in angles.tolist()],
            "periods": [round_to(period, 6) for period in periods],
        },
    )


def _clock(run: ForwardPass, pair: int, period: float, angles: np.ndarray) -> Html:
    dots = (
        fill(
            '<circle class="trail" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>',
            x=50.0 + 46.0 * sin,
            y=50.0 - 46.0 * cos,
        )
        for cos, sin in angles[run.shown.start : run.shown.stop].tolist()
    )
    return fill(
        '<figure class="clock"><svg viewBox="0 0 100 100" aria-hidden="true"><circle class="dial" cx="50" '
        'cy="50" r="46"/>{dots}<line class="hand" x1="50" y1="50" x2="50" '
        'y2="12"/></svg><figcaption>numbers {i} and {j}<br>a turn in {period} tokens<br><span '
        'class="turns"></span></figcaption></figure>',
        dots=join(dots),
        i=pair,
        j=pair + run.params.config.head_dim // 2,
        period=escape(f"{period:.1f}" if period < 100.0 else f"{period:,.0f}"),
    )


def learned_position_section(run: ForwardPass) -> Section:
    """Return how similar the rows of a learned position table are."""
    has_numbers = len(run.shown) <= MAX_NUMBERS
    cells = [
        [cell(escape(f"{x:z.2f}" if has_numbers else ""), share=x, title=escape(f"{x:z.3f}")) for x in row]
        for row in position_similarity(run).tolist()
    ]
    return Section(
        "positions",
        "Learned positions",
        fill(
            "This model has a learned vector for each position (<code>pos_embed.weight</code>), which it "
            "adds to that of the token. Each cell is the cosine similarity of two position vectors: 1 if "
            "they point the same way, 0 if they are orthogonal, and in another colour below 0."
        ),
        _map(run, "Cosine similarity of position vectors", "similarity-table", cells),
    )
