"""The page of one forward pass: a section for each step of the model, with the numbers of this run."""

from __future__ import annotations

from tinyxp.html.elements import EMPTY, STRONG, Section, bar, cell, table, token
from tinyxp.html.forward_pass import ForwardPass, first_not_finite, next_tokens
from tinyxp.html.markup import Html, escape, fill, join
from tinyxp.html.measure_blocks import logit_lens
from tinyxp.html.numbers import percent, thousands
from tinyxp.html.page import build_page
from tinyxp.html.trace_attention import attention_section, learned_position_section, rotary_section
from tinyxp.html.trace_blocks import norm_section, stream_section, unit_section
from tinyxp.shapes import count_parameters

GROUPS = {
    "embed": "embedding",
    "pos_embed": "positions",
    "attention": "attention",
    "mlp": "MLPs",
    "norm": "norms",
    "head": "head",
}


def build_trace_page(run: ForwardPass, model: str, environment: str) -> Html:
    """Return a forward pass as one self-contained HTML file.

    ``environment`` says how it was computed, such as "float32 on numpy". ValueError if a value is not finite,
    since no chart could show it.
    """
    if (broken := first_not_finite(run)) is not None:
        raise ValueError(f"trace point {broken} holds numbers that are not finite: no page can show them")
    has_rope = run.params.config.position == "rope"
    sections = [
        _tokens(run),
        _next_tokens(run),
        attention_section(run),
        rotary_section(run) if has_rope else learned_position_section(run),
        stream_section(run),
        norm_section(run),
        unit_section(run),
        _lens(run),
        _parameters(run),
    ]
    data = {
        "tokens": [run.token(i) for i in run.shown],
        "first": run.shown.start,
        "strong": round(1000 * STRONG),
    }
    title = f"One forward pass of {model}"
    return build_page(title, _introduction(run, environment), sections, assets="trace", data=data)


def _introduction(run: ForwardPass, environment: str) -> Html:
    c = run.params.config
    heads = f"{c.n_heads} heads" + (f" on {c.n_kv_heads} key/value heads" if c.n_kv_heads < c.n_heads else "")
    facts = (
        f"{c.n_layers} layers of width {c.d_model}, {heads} of size {c.head_dim}, MLPs of {c.d_ff} "
        f"({c.mlp}), {'RMSNorm' if c.norm == 'rms' else 'LayerNorm'}, "
        f"{'rotary' if c.position == 'rope' else 'learned'} positions, a vocabulary of {c.vocab_size:,}; "
        f"computed in {environment}. Every number is of this run, under the name of its trace point."
    )
    cut = fill(
        '<p class="note">All {count} tokens were computed and are listed under Tokens. Every other list or '
        "map of tokens shows the last {shown} and leaves out those before, so a row of an attention map may "
        "add up to less than 1.</p>",
        count=thousands(len(run.ids)),
        shown=len(run.shown),
    )
    return fill("<p>{facts}</p>{cut}", facts=escape(facts), cut=cut if run.shown.start else EMPTY)


def _tokens(run: ForwardPass) -> Section:
    chips = (
        fill(
            '<li><button type="button" class="chip token" title="position {i}, id {index}" '
            'data-description="Position {i}: {text}, id {index}">{text}</button></li>',
            i=i,
            index=run.ids[i],
            text=escape(run.token(i)),
        )
        for i in range(len(run.ids))
    )
    return Section(
        "tokens",
        "Tokens",
        fill(
            "The model reads ids, not letters: each piece of text below is one row of the embedding table. "
            "␣ is a space. Point at a token, or focus it with the Tab key, to see its id."
        ),
        fill(
            '<ol class="chips" aria-label="Tokens">{chips}</ol><output id="chip-description">{count} '
            "tokens</output>",
            chips=join(chips),
            count=thousands(len(run.ids)),
        ),
    )


def _next_tokens(run: ForwardPass) -> Section:
    rows = [
        (token(run.describe(index)), (cell(escape(index)), cell(percent(p)), cell(bar(p))))
        for index, p in next_tokens(run)
    ]
    return Section(
        "next",
        "Next token",
        fill(
            "Softmax of the logits at the last position gives a probability for each of the {count} ids. "
            "These are the most likely.",
            count=thousands(run.params.config.vocab_size),
        ),
        table("Most likely next tokens", [*map(escape, ("token", "id", "probability", ""))], rows),
    )


def _lens(run: ForwardPass) -> Section:
    best, probabilities = logit_lens(run)

    def guess(layer: int, k: int) -> Html:
        index, p = int(best[layer, k]), float(probabilities[layer, k])
        text = token(run.describe(index))
        if index == best[-1, k]:
            text = fill("<strong>{text}</strong>", text=text)
        content = fill("{text} <small>{p}</small>", text=text, p=percent(p))
        return cell(content, share=p, title=fill("id {index}", index=index))

    names = ["embed", *(f"block {i}" for i in range(run.params.config.n_layers))]
    rows = [(escape(name), [guess(i, k) for k in range(len(run.shown))]) for i, name in enumerate(names)]
    columns = [escape("after"), *(token(run.token(i)) for i in run.shown)]
    return Section(
        "lens",
        "Logit lens",
        fill(
            "What the model would predict if it stopped early: the last norm and the head, applied to the "
            "residual after each block. Each cell is the most likely next token and its probability. The "
            "last row is the model's prediction; predictions equal to it are bold. Early rows are rough, "
            "because the head was trained on the last one."
        ),
        table("Most likely next token after each block", columns, rows, kind="lens-table"),
    )


def _parameters(run: ForwardPass) -> Section:
    config = run.params.config
    counts = count_parameters(config)
    total = counts.pop("total")
    rows = [
        (escape(GROUPS[group]), (cell(thousands(n)), cell(percent(n / total)), cell(bar(n / total))))
        for group, n in counts.items()
        if n
    ]
    rows.append((escape("total"), (cell(thousands(total)), cell(percent(1.0)), cell(EMPTY))))
    tied = (
        " The head is the embedding again (tied), so its matrix counts once." if config.tie_embeddings else ""
    )
    return Section(
        "parameters",
        "Parameters",
        fill("The numbers that training sets, by group.{tied}", tied=escape(tied)),
        table("Parameters by group", [*map(escape, ("group", "numbers", "share", ""))], rows),
    )
