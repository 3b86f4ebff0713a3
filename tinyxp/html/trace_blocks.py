"""Three sections of the page of a forward pass: the residual stream, a norm, and a unit of the MLP."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyxp.config import MLPS
from tinyxp.html import measure
from tinyxp.html.measure import Run
from tinyxp.html.page import (
    Line,
    Section,
    cell,
    chart,
    columns,
    escaped,
    number,
    percent,
    rounded,
    scrolling,
    slider,
    table,
    token,
)

LONGEST = 256
"""How many numbers of a vector are drawn at most."""
TICKS = 10


def stream(run: Run) -> Section:
    """The length of each token's vector, from the embedding to the last block."""
    norms = measure.stream_norms(run)
    names = [name for name, _ in measure.stream(run)]
    layers, tokens = (
        run.params.config.n_layers,
        [escaped(f"{run.token(i)} (position {i})") for i in run.shown],
    )
    every = math.ceil(layers / TICKS)
    ticks = ["embed"]
    for layer in range(layers):  # the last block has a tick, and none comes too near to "embed"
        ticks += ["", str(layer) if (layer + 1) % every == layers % every else ""]
    lines = [Line(label, norms[:, k].tolist()) for k, label in enumerate(tokens)]
    loudest = int(norms.max(axis=0).argmax())
    title = "Length of each token's vector, one line per token, from the embedding to the last block"
    options = "".join(
        f'<option value="{k}"{" selected" * (k == loudest)}>{label}</option>'
        for k, label in enumerate(tokens)
    )
    rows = [
        (f"<code>{name}</code>", [cell(number(x)) for x in row])
        for name, row in zip(names, norms.tolist(), strict=True)
    ]
    heads = ("point", *(token(run.token(i)) for i in run.shown))
    return Section(
        "stream",
        "The residual stream",
        "Each block adds to a token's vector twice, after attention (<code>attn_residual</code>) and after "
        "the MLP (<code>residual</code>). A line is the length of one token's vector on its way through the "
        "blocks, on a logarithmic scale; a tick is the end of a block. The token with the longest is chosen "
        "first.",
        '<div class="controls"><label class="field" for="trail">Token '
        f'<select id="trail">{options}</select></label></div>'
        f"{scrolling(chart(lines, ticks, title=title, log=True), title)}"
        f"<details><summary>The numbers</summary>{table('Length of each vector', heads, rows)}</details>",
    )


def silent(run: Run) -> Section:
    """The quietest vector, before and after the norm that reads it."""
    found, config = measure.silent(run), run.params.config
    power = "mean square" if config.norm == "rms" else "variance"
    rows = []
    for step in found.steps:
        share = percent(config.norm_eps / (step.power + config.norm_eps))
        bare = "0 / 0" if math.isnan(step.bare) else number(step.bare)
        cells = (number(step.before), number(step.power), share, number(step.after), bare)
        rows.append((f"&times; {step.factor:g}", [cell(x) for x in cells]))
    shown = min(len(found.before), LONGEST)
    cut = "" if shown == len(found.before) else f", the first {shown} of {len(found.before)} numbers"
    zero = "zeros stay zeros" if config.norm == "rms" else "zeros become the norm's bias"
    heads = ("vector", "root mean square", power, "eps's share", "after the norm", "without eps")
    return Section(
        "silent",
        "A silent token through the norm",
        f"The quietest vector of this run is that of {token(run.token(found.position))} at position "
        f"{found.position} in <code>{found.point}</code>. The norm divides "
        f"{'it' if config.norm == 'rms' else 'its distance from its mean'} by √({power} + eps), where eps "
        f"is {config.norm_eps:g}, and multiplies by its weights. Beside a loud vector eps is nothing; the "
        f"quieter the vector, the more of the sum is eps, which keeps noise from being blown up, and {zero} "
        "instead of 0 / 0.",
        f"<p>Before, <code>{found.point}</code>{cut}:</p>"
        f"{columns(found.before[:shown].tolist(), title=f'The vector before the norm{cut}')}"
        f"<p>After, <code>{found.norm}</code>{cut}:</p>"
        f"{columns(found.after[:shown].tolist(), title=f'The vector after the norm{cut}')}"
        + table("The same vector, made quieter by hand", heads, rows),
    )


def valve(run: Run, data: dict[str, Any]) -> Section:
    """Single units of the MLPs across the tokens."""
    config = run.params.config
    gated = MLPS[config.mlp].gated
    found = [measure.valve(run, layer) for layer in range(config.n_layers)]
    reaches = [[max(4.0, 1.1 * float(np.abs(unit[0]).max())) for unit in values] for _, values in found]
    data["units"] = [units for units, _ in found]
    data["valve"] = [
        [[[rounded(x) for x in row] for row in unit] for unit in values.tolist()] for _, values in found
    ]
    data["reach"] = [[rounded(reach, 3) for reach in layer] for layer in reaches]
    curve = " ".join(f"{x:.3f},{-y:.3f}" for x, y in measure.activation(run, max(map(max, reaches))))
    names = ("gate", "silu(gate)", "up", "silu(gate) &times; up") if gated else ("up", "gelu(up)")
    data["plotted"] = names[:2]
    if gated:
        what = (
            "A unit of the MLP is a valve: silu(gate) says how far it is open, up what would flow, and their "
            "product goes on (<code>mlp.hidden</code>). A gate far below 0 shuts it."
        )
    else:
        what = (
            "A unit of the MLP lets its number through where that is high, and holds it back where it is far "
            "below 0 (<code>mlp.hidden</code>)."
        )
    options = "".join(f'<option value="{k}">{unit}</option>' for k, unit in enumerate(data["units"][0]))
    rows = [(token(run.token(i)), [cell("")] * len(names)) for i in run.shown]
    values = table("One unit across the tokens", ("token", *names), rows, name="valve-table")
    dots = '<circle class="dot"/>' * len(run.shown)
    plot = (
        f'<figure class="plot"><svg id="plot" role="img" aria-labelledby="plot-told"><path class="grid" '
        f'd="M-9999,0H9999M0,-9999V9999"/><polyline class="curve" points="{curve}"/><g id="dots">{dots}</g>'
        '</svg><figcaption id="plot-told" class="note"></figcaption></figure>'
    )
    return Section(
        "valve",
        "A valve of the MLP" if gated else "A unit of the MLP",
        f"{what} Here are the {len(data['units'][0])} of each layer's {config.d_ff:,} units whose results "
        "are largest.",
        f'<div class="controls">{slider("mlp-layer", "Layer", config.n_layers - 1)}'
        f'<label class="field" for="unit">Unit <select id="unit">{options}</select></label></div>'
        f'<div class="beside">{values}{plot}</div>',
    )
