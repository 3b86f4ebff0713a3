"""The sections of a forward pass's page about the residual stream, the norms and the units of the MLP."""

from __future__ import annotations

import math

import numpy as np

from tinyxp.config import MLPS
from tinyxp.html.charts import Curve, column_chart, line_chart
from tinyxp.html.elements import (
    EMPTY,
    Section,
    cell,
    code,
    controls,
    details,
    scroll_box,
    select,
    slider,
    table,
    token,
)
from tinyxp.html.forward_pass import ForwardPass
from tinyxp.html.markup import Html, escape, fill, join
from tinyxp.html.measure_blocks import (
    ShortestVector,
    activation_curve,
    mlp_units,
    shortest_vector,
    stream_lengths,
    stream_points,
)
from tinyxp.html.numbers import number, percent, round_to

MAX_NUMBERS = 256
"""How many numbers of a vector are drawn at most."""
MAX_TICKS = 10


def stream_section(run: ForwardPass) -> Section:
    """Return the length of each token's vector, from the embedding to the last block."""
    lengths = stream_lengths(run)
    tokens = [f"{run.token(i)} (position {i})" for i in run.shown]
    curves = [Curve(name, lengths[:, k].tolist(), "token") for k, name in enumerate(tokens)]
    title = "Length of each token's vector, one line per token, from the embedding to the last block"
    chart = line_chart(
        curves, title=title, axis="block", ticks=_ticks(run.params.config.n_layers), dots=False
    )
    longest = int(lengths.max(axis=0).argmax())
    rows = [
        (code(point), [cell(number(x)) for x in row])
        for (point, _), row in zip(stream_points(run), lengths.tolist(), strict=True)
    ]
    columns = [escape("point"), *(token(run.token(i)) for i in run.shown)]
    return Section(
        "stream",
        "Residual stream",
        fill(
            "Each block adds to a token's vector twice: after attention (<code>attn_residual</code>) and "
            "after the MLP (<code>residual</code>). A line is the length of one token's vector through the "
            "blocks, on a logarithmic scale; a tick is the end of a block. The token with the largest "
            "length is chosen first."
        ),
        join(
            [
                controls(
                    select("stream-token", "Token", [(str(k), x) for k, x in enumerate(tokens)], longest)
                ),
                scroll_box(chart, title),
                details("Table of the values", table("Length of each vector", columns, rows)),
            ]
        ),
    )


def _ticks(layers: int) -> list[str]:
    """Label "embed" and the ends of some blocks: the last always, none close to "embed"."""
    every = math.ceil(layers / MAX_TICKS)
    ticks = ["embed"]
    for layer in range(layers):
        ticks += ["", str(layer) if (layer + 1) % every == layers % every else ""]
    return ticks


def norm_section(run: ForwardPass) -> Section:
    """Return the shortest vector before and after its norm, and what eps does to it."""
    vector, config = shortest_vector(run), run.params.config
    is_rms = config.norm == "rms"
    shown = min(len(vector.before), MAX_NUMBERS)
    cut = "" if shown == len(vector.before) else f", the first {shown} of {len(vector.before)} numbers"
    charts = (
        fill(
            "<p>{label}, {point}{cut}:</p>{chart}",
            label=escape(label),
            point=code(point),
            cut=escape(cut),
            chart=column_chart(values[:shown].tolist(), title=f"The vector {label.lower()} the norm{cut}"),
        )
        for label, point, values in (
            ("Before", vector.point, vector.before),
            ("After", vector.norm, vector.after),
        )
    )
    power = "mean square" if is_rms else "variance"
    return Section(
        "norm",
        "Effect of eps in the norm",
        fill(
            "The shortest vector of this run is that of {token} at position {position} in {point}. The norm "
            "divides {what} by √({power} + eps), with eps = {eps:g}, and multiplies by its weights. For a "
            "long vector eps is negligible. The shorter the vector, the larger the share of eps, which "
            "keeps noise from being amplified; {zeros} instead of 0 / 0.",
            token=token(run.token(vector.position)),
            position=vector.position,
            point=code(vector.point),
            what=escape("it" if is_rms else "its difference from its mean"),
            power=escape(power),
            eps=config.norm_eps,
            zeros=escape("zeros stay zeros" if is_rms else "zeros become the norm's bias"),
        ),
        fill("{charts}{table}", charts=join(charts), table=_scaled_table(vector, config.norm_eps, power)),
    )


def _scaled_table(vector: ShortestVector, eps: float, power: str) -> Html:
    """Return what the norm makes of the vector scaled down, to 0 at last."""
    rows = []
    for scaled in vector.scaled:
        cells = (
            number(scaled.before),
            number(scaled.power),
            percent(eps / (scaled.power + eps)),
            number(scaled.after),
            escape("0 / 0") if math.isnan(scaled.without_eps) else number(scaled.without_eps),
        )
        rows.append((fill("&times; {factor:g}", factor=scaled.factor), [cell(x) for x in cells]))
    columns = ("vector", "root mean square", power, "share of eps", "after the norm", "without eps")
    return table("This vector, scaled down", [*map(escape, columns)], rows)


def unit_section(run: ForwardPass) -> Section:
    """Return single units of the MLPs across the tokens."""
    config = run.params.config
    activation, is_gated = MLPS[config.mlp].activation, MLPS[config.mlp].gated
    argument = "gate" if is_gated else "up"
    names = [argument, f"{activation}({argument})"]
    product = [escape("up"), fill("{gate} &times; up", gate=escape(names[1]))] if is_gated else []
    columns = [*map(escape, names), *product]
    layers = [mlp_units(run, layer) for layer in range(config.n_layers)]
    units = [units for units, _ in layers]
    reach = [[max(4.0, 1.1 * float(np.abs(unit[0]).max())) for unit in values] for _, values in layers]
    if is_gated:
        explanation = fill(
            "A gated unit multiplies up by {gate}, and the product goes on (<code>mlp.hidden</code>). A "
            "gate far below 0 closes the unit.",
            gate=escape(names[1]),
        )
    else:
        explanation = fill(
            "A unit passes on its input if that is large, and suppresses it if it is far below 0 "
            "(<code>mlp.hidden</code>)."
        )
    rows = [(token(run.token(i)), [cell(EMPTY)] * len(columns)) for i in run.shown]
    return Section(
        "units",
        "Gated units of the MLP" if is_gated else "Units of the MLP",
        fill(
            "{explanation} Here are the {shown} of each layer's {all} units with the largest results.",
            explanation=explanation,
            shown=len(units[0]),
            all=escape(f"{config.d_ff:,}"),
        ),
        fill(
            '{controls}<div class="beside">{table}{plot}</div>',
            controls=controls(
                slider("mlp-layer", "Layer", config.n_layers - 1),
                select("unit", "Unit", [(str(k), str(unit)) for k, unit in enumerate(units[0])]),
            ),
            table=table("One unit across the tokens", [escape("token"), *columns], rows, name="unit-table"),
            plot=_plot(run, max(map(max, reach))),
        ),
        {
            "units": units,
            "unit_values": [
                [[[round_to(x) for x in row] for row in unit] for unit in values.tolist()]
                for _, values in layers
            ],
            "reach": [[round_to(x, 3) for x in layer] for layer in reach],
            "plotted": names,
        },
    )


def _plot(run: ForwardPass, reach: float) -> Html:
    """Return the activation as a curve, with a dot for each token that the script moves."""
    curve = (fill("{x:.3f},{y:.3f}", x=x, y=-y) for x, y in activation_curve(run, reach).tolist())
    return fill(
        '<figure class="plot"><svg id="plot" role="img" aria-labelledby="plot-description"><path '
        'class="grid" d="M-9999,0H9999M0,-9999V9999"/><polyline class="curve" points="{curve}"/><g '
        'id="dots">{dots}</g></svg><figcaption id="plot-description" class="note"></figcaption></figure>',
        curve=join(curve, " "),
        dots=join([fill('<circle class="dot"/>')] * len(run.shown)),
    )
