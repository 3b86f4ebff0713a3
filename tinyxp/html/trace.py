"""The page of one forward pass: a section for each of its ideas, with the numbers of this run."""

from __future__ import annotations

from typing import Any

from tinyxp.html import measure
from tinyxp.html.measure import Run
from tinyxp.html.page import STRONG, Section, bar, cell, document, escaped, percent, table, token
from tinyxp.html.trace_attention import attention, clocks, positions
from tinyxp.html.trace_blocks import silent, stream, valve
from tinyxp.html.trace_script import SCRIPT, STYLE
from tinyxp.shapes import count_parameters

GROUPS = {
    "embed": "embedding",
    "pos_embed": "positions",
    "attention": "attention",
    "mlp": "MLPs",
    "norm": "norms",
    "head": "head",
}


def page(run: Run, model: str, computed: str) -> str:
    """The whole page as HTML; ``computed`` says in what, such as "float32 on numpy".

    ValueError where a value of the run is not finite, since no picture of it would be true.
    """
    if (broken := measure.not_finite(run)) is not None:
        raise ValueError(f"trace point {broken} holds numbers that are not finite: no page can show them")
    data: dict[str, Any] = {
        "tokens": [run.token(i) for i in run.shown],
        "first": run.shown.start,
        "strong": round(1000 * STRONG),
    }
    sections = [
        _tokens(run),
        _next(run),
        attention(run, data),
        clocks(run, data) if run.params.config.position == "rope" else positions(run),
        stream(run),
        silent(run),
        valve(run, data),
        _lens(run),
        _parameters(run),
    ]
    title = f"One forward pass of {model}"
    return document(title, _facts(run, computed), sections, data=data, style=STYLE, script=SCRIPT)


def _facts(run: Run, computed: str) -> str:
    c = run.params.config
    heads = f"{c.n_heads} heads" + (f" on {c.n_kv_heads} key/value heads" if c.n_kv_heads < c.n_heads else "")
    facts = (
        f"{c.n_layers} layers of width {c.d_model}, {heads} of size {c.head_dim}, MLPs of {c.d_ff} "
        f"({'SwiGLU' if c.mlp == 'swiglu' else 'GELU'}), {'RMSNorm' if c.norm == 'rms' else 'LayerNorm'}, "
        f"{'rotary' if c.position == 'rope' else 'learned'} positions, a vocabulary of {c.vocab_size:,}; "
        f"computed in {computed}. Every number here is of this run, under the names of its trace points."
    )
    cut = ""
    if run.shown.start:
        cut = (
            f'<p class="note">All {len(run.ids):,} tokens were computed and stand in the list of tokens. '
            "Whatever "
            f"else has an entry for each token shows the last {len(run.shown)} and leaves out those before, "
            "so that a row of an attention map may add up to less than 1.</p>"
        )
    return f"<p>{escaped(facts)}</p>{cut}"


def _tokens(run: Run) -> Section:
    def chip(i: int) -> str:
        text, index = escaped(run.token(i)), run.ids[i]
        return (
            f'<li><button type="button" class="chip token" title="position {i}, id {index}" '
            f'data-told="Position {i}: {text}, id {index}">{text}</button></li>'
        )

    chips = "".join(map(chip, range(len(run.ids))))
    return Section(
        "tokens",
        "Tokens",
        "The model reads no letters but ids: each piece of text below is one row of the embedding table. ␣ "
        "is a space. Point at a token, or go to it with the Tab key, for its id.",
        f'<ol class="chips" aria-label="Tokens">{chips}</ol>'
        f'<output id="chip-told">{len(run.ids):,} tokens</output>',
    )


def _next(run: Run) -> Section:
    rows = [
        (token(run.text(index)), (cell(str(index)), cell(percent(p)), cell(bar(p))))
        for index, p in measure.next_tokens(run)
    ]
    return Section(
        "next",
        "What comes next",
        "The logits at the last position, after softmax: a probability for each of the "
        f"{run.params.config.vocab_size:,} ids. These are the likeliest.",
        table("The likeliest next tokens", ("token", "id", "probability", ""), rows),
    )


def _lens(run: Run) -> Section:
    best, mass = measure.lens(run)

    def guess(layer: int, k: int) -> str:
        index, p = int(best[layer, k]), float(mass[layer, k])
        text = token(run.text(index))
        text = f"<strong>{text}</strong>" if index == best[-1, k] else text
        return cell(f"{text} <small>{percent(p)}</small>", share=p, title=f"id {index}")

    names = ["embed", *(f"block {i}" for i in range(run.params.config.n_layers))]
    rows = [(name, [guess(i, k) for k in range(len(run.shown))]) for i, name in enumerate(names)]
    return Section(
        "lens",
        "The logit lens",
        "What the model would say if it stopped early: the last norm and the head, applied to the residual "
        "after each block. A cell is the likeliest next token and its probability; the last row is the "
        "model's answer, and bold where an earlier row says the same. Early rows are rough: the head was "
        "trained to read the last one.",
        table(
            "Likeliest next token after each block",
            ("after", *(token(run.token(i)) for i in run.shown)),
            rows,
            kind="lens-table",
        ),
    )


def _parameters(run: Run) -> Section:
    config = run.params.config
    counts = count_parameters(config)
    total = counts.pop("total")
    rows = [
        (GROUPS[group], (cell(f"{n:,}"), cell(percent(n / total)), cell(bar(n / total))))
        for group, n in counts.items()
        if n
    ]
    rows.append(("total", (cell(f"{total:,}"), cell(percent(1.0)), cell(""))))
    tied = " The head is the embedding again (tied), so that its matrix counts once."
    return Section(
        "parameters",
        "Where the parameters are",
        f"All the numbers that training sets.{tied if config.tie_embeddings else ''}",
        table("Parameters by group", ("group", "numbers", "share", ""), rows),
    )
