"""Laws of symmetry: the numbering of units, heads and tokens does not matter to a decoder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of

SYMMETRY = "Ainsworth et al., 2022, Git Re-Basin (permutation symmetries)"

law = laws_of("model", "mlp", SYMMETRY, "params")


def draw_order(draw: Draw, name: str, count: int) -> list[int]:
    """Draw a permutation of range(count)."""
    return list(draw(name, st.permutations(range(count))))


def blocks(model: Any) -> list[str]:
    return [f"blocks.{i}" for i in range(model.config.n_layers)]


@law("Renumbering the vocabulary renumbers the logits.", region="embedding")
def vocabulary_permutation(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    order = draw_order(draw, "order", model.vocab_size)
    names = [name for name in ("embed.weight", "head.weight", "head.bias") if name in model.arrays]
    renumbered = model.but(**{name: model.arrays[name][order] for name in names})
    new_ids = np.argsort(order)[ids]
    subject.close(renumbered.forward(new_ids), model.forward(ids)[..., order], f"logits in the order {order}")


@law(
    "The order of heads does not matter: groups of query heads with their key/value head, and queries in a "
    "group.",
    region="heads",
)
def head_permutation(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    config = model.config
    g, share, hd = config.n_kv_heads, config.n_heads // config.n_kv_heads, config.head_dim
    groups, within = draw_order(draw, "groups", g), draw_order(draw, "within", share)
    kv = np.asarray([[group * hd + i for i in range(hd)] for group in groups]).reshape(-1)
    q = np.asarray(
        [[(group * share + head) * hd + i for i in range(hd)] for group in groups for head in within]
    ).reshape(-1)
    changes = {}
    for at in blocks(model):
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            for kind in ("weight", "bias"):
                if f"{at}.attn.{name}.{kind}" in model.arrays:
                    changes[f"{at}.attn.{name}.{kind}"] = model.arrays[f"{at}.attn.{name}.{kind}"][rows]
        changes[f"{at}.attn.o.weight"] = model.arrays[f"{at}.attn.o.weight"][:, q]
    subject.close(model.but(**changes).forward(ids), model.forward(ids), "logits with heads in another order")


@law("The order of the MLP's hidden units does not matter.")
def hidden_permutation(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    order = draw_order(draw, "order", model.config.d_ff)
    changes = {}
    for at in blocks(model):
        for name in ("gate.weight", "gate.bias", "up.weight", "up.bias"):
            if f"{at}.mlp.{name}" in model.arrays:
                changes[f"{at}.mlp.{name}"] = model.arrays[f"{at}.mlp.{name}"][order]
        changes[f"{at}.mlp.down.weight"] = model.arrays[f"{at}.mlp.down.weight"][:, order]
    subject.close(model.but(**changes).forward(ids), model.forward(ids), "logits with units in another order")


@law("The order of the residual stream's dimensions does not matter.", region="residual")
def stream_permutation(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    order = draw_order(draw, "order", model.config.d_model)
    changes = {}
    for name, x in model.arrays.items():
        writes = name.endswith(("attn.o.weight", "mlp.down.weight", "attn.o.bias", "mlp.down.bias"))
        if writes or name.endswith(("norm.weight", "norm.bias")):
            changes[name] = x[order]
        elif x.ndim == 2:
            changes[name] = x[:, order]
    subject.close(
        model.but(**changes).forward(ids), model.forward(ids), "logits, dimensions in another order"
    )


@law(
    "A block whose output matrices and biases are zero is the identity.",
    region="residual",
    source="He et al., 2015; Goyal et al., 2017, section 5.1",
    needs="params trace",
)
def zero_outputs_make_the_identity(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    silent = draw("block", st.integers(0, model.config.n_layers - 1))
    outputs = ("attn.o.weight", "attn.o.bias", "mlp.down.weight", "mlp.down.bias")
    names = [f"blocks.{silent}.{name}" for name in outputs]
    changes = {name: 0.0 * model.arrays[name] for name in names if name in model.arrays}
    found = model.but(**changes).trace(ids)
    before = found["embed"] if silent == 0 else found[f"blocks.{silent - 1}.residual"]
    subject.close(found[f"blocks.{silent}.residual"], before, f"blocks.{silent}.residual")


@law(
    "If all output matrices are zero, the logits are the head of the normed embedding.",
    region="structure",
    source="nostalgebraist, 2020, the logit lens",
)
def without_blocks(subject: Any, draw: Draw) -> None:
    from tinyxp.testing.laws.structure import normed

    model = subject.model(draw)
    ids = model.ids(draw)
    outputs = ("attn.o.weight", "attn.o.bias", "mlp.down.weight", "mlp.down.bias")
    changes = {name: 0.0 * x for name, x in model.arrays.items() if name.endswith(outputs)}
    stream = model.arrays["embed.weight"][ids]
    if model.config.position == "learned":
        stream = stream + model.arrays["pos_embed.weight"][: ids.shape[1]]
    table = model.arrays["embed.weight" if model.config.tie_embeddings else "head.weight"]
    expected = normed(stream, model, "final_norm") @ table.T + model.arrays.get("head.bias", 0.0)
    subject.close(model.but(**changes).forward(ids), expected, "logits without blocks")


@law(
    "With a gate of zero the MLP returns only its output bias.",
    source="Shazeer, 2020: silu(0) = 0",
    needs="params trace",
)
def zero_gate_kills_the_mlp(subject: Any, draw: Draw) -> None:
    model = subject.model(draw, mlp="swiglu")
    ids = model.ids(draw)
    changes = {name: 0.0 * x for name, x in model.arrays.items() if ".mlp.gate." in name}
    points = model.but(**changes).trace(ids)
    for at in blocks(model):
        bias = model.arrays.get(f"{at}.mlp.down.bias", np.zeros(model.config.d_model))
        out = points[f"{at}.mlp.out"]
        subject.equal(out, np.broadcast_to(bias, out.shape).astype(out.dtype), f"{at}.mlp.out")


@law(
    "A gated MLP is linear in its values: doubled values double the output.",
    source="Shazeer, 2020",
    needs="params trace",
)
def gated_mlps_are_linear_in_their_values(subject: Any, draw: Draw) -> None:
    model = subject.model(draw, mlp="swiglu")
    ids = model.ids(draw)
    changes = {name: 2.0 * x for name, x in model.arrays.items() if ".mlp.up." in name}
    found, expected = model.but(**changes).trace(ids), model.trace(ids)
    subject.close(found["blocks.0.mlp.hidden"], 2.0 * expected["blocks.0.mlp.hidden"], "blocks.0.mlp.hidden")


@law(
    "A tied model equals the untied one whose head is a copy of its embedding.",
    region="head",
    source="Press & Wolf, 2016",
)
def tied_equals_untied_with_a_copy(subject: Any, draw: Draw) -> None:
    model = subject.model(draw, tie_embeddings=True)
    ids = model.ids(draw)
    untied = model.but(
        config=replace(model.config, tie_embeddings=False), **{"head.weight": model.arrays["embed.weight"]}
    )
    subject.close(untied.forward(ids), model.forward(ids), "logits of the untied model")


@law(
    "Doubling an untied head doubles the logits; the embedding of an absent token changes none.",
    region="head",
    source="Press & Wolf, 2016",
)
def an_untied_head_is_its_own(subject: Any, draw: Draw) -> None:
    model = subject.model(draw, tie_embeddings=False)
    ids = model.ids(draw)
    doubled = model.but(**{name: 2.0 * x for name, x in model.arrays.items() if name.startswith("head.")})
    subject.close(doubled.forward(ids), 2.0 * model.forward(ids), "logits of twice the head")
    present = np.isin(np.arange(model.vocab_size), ids)[:, None]
    others = np.where(present, model.arrays["embed.weight"], 5.0)
    subject.close(model.but(**{"embed.weight": others}).forward(ids), model.forward(ids), "logits")


@law(
    "A model with grouped key/value heads equals the one in which each is repeated for every query head of "
    "its group.",
    region="heads",
    source="Ainslie et al., 2023, section 2.1",
)
def grouped_heads_equal_repeated_ones(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    config = model.config
    changes = {}
    for at in blocks(model):
        for name in ("k.weight", "k.bias", "v.weight", "v.bias"):
            if (x := model.arrays.get(f"{at}.attn.{name}")) is not None:
                heads = x.reshape(config.n_kv_heads, config.head_dim, -1)
                spread = np.repeat(heads, config.n_heads // config.n_kv_heads, axis=0)
                changes[f"{at}.attn.{name}"] = spread.reshape(-1, *x.shape[1:])
    repeated = model.but(config=replace(config, n_kv_heads=config.n_heads), **changes)
    subject.close(repeated.forward(ids), model.forward(ids), "logits with repeated key/value heads")


@law(
    "Doubling the final norm's weight and bias doubles the logits of a head without bias.",
    region="norm",
    source="Zhang & Sennrich, 2019; Ba et al., 2016",
)
def the_final_norm_scales_the_logits(subject: Any, draw: Draw) -> None:
    model = subject.model(draw, head_bias=False)
    ids = model.ids(draw)
    changes = {name: 2.0 * x for name, x in model.arrays.items() if name.startswith("final_norm.")}
    subject.close(model.but(**changes).forward(ids), 2.0 * model.forward(ids), "logits of twice the weight")


@law(
    "A bias of zeros is the same as no bias.",
    region="linear",
    source="tinyxp's own contract: what the parameters hold decides",
)
def zero_biases_are_none(subject: Any, draw: Draw) -> None:
    model = subject.model(draw, attn_bias=True, attn_out_bias=True, mlp_bias=True)
    ids = model.ids(draw)
    zeroed = {
        name: 0.0 * x
        for name, x in model.arrays.items()
        if name.endswith(".bias") and (".attn." in name or ".mlp." in name)
    }
    bare = replace(model.config, attn_bias=False, attn_out_bias=False, mlp_bias=False)
    subject.close(
        model.but(config=bare).forward(ids), model.but(**zeroed).forward(ids), "logits without biases"
    )


@law(
    "Adding a constant to the key biases changes no logit, because softmax ignores a constant.",
    region="softmax",
    source="Vaswani et al., 2017, section 3.2.1: softmax(x + c) = softmax(x)",
)
def key_biases_cancel(subject: Any, draw: Draw) -> None:
    # Only with learned positions: rotary ones rotate a bias by its position.
    model = subject.model(draw, position="learned", attn_bias=True, rope_scaling=None)
    ids = model.ids(draw)
    changes = {name: x + 1.0 for name, x in model.arrays.items() if name.endswith("attn.k.bias")}
    subject.close(model.but(**changes).forward(ids), model.forward(ids), "logits with every key moved")
