"""Laws of how a block is assembled: each intermediate value follows from those before it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.config import MLPS, Config
from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.padding import draw_padded
from tinyxp.testing.referee import ACTIVATIONS

GPT2 = "Radford et al., 2019, section 2.3 (norms before the sublayers, one more at the end)"
LLAMA = "Touvron et al., 2023, section 2.2"
NEEDS = "params trace mask"

law = laws_of("model", "structure", GPT2, NEEDS)


def draw_trace(subject: Any, draw: Draw) -> tuple[Any, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Draw a model, padded ids and their mask; return them with every intermediate value."""
    model = subject.model(draw)
    ids, mask = draw_padded(subject, draw, model)
    return model, ids, mask, model.trace(ids, mask=mask)


def times(x: np.ndarray, model: Any, name: str) -> np.ndarray:
    """Return x W^T + b in NumPy, with the parameters of that name."""
    y = np.einsum("...i,oi->...o", x, model.arrays[f"{name}.weight"])
    return np.asarray(y + model.arrays.get(f"{name}.bias", 0.0))


def normed(x: np.ndarray, model: Any, name: str) -> np.ndarray:
    """Return the norm of that name of x, in NumPy."""
    config = model.config
    w: np.ndarray = model.arrays[f"{name}.weight"]
    if config.norm == "layer":
        bias: np.ndarray = model.arrays[f"{name}.bias"]
        mean = x.mean(-1, keepdims=True)
        y: np.ndarray = (x - mean) / np.sqrt(x.var(-1, keepdims=True) + config.norm_eps) * w + bias
    else:
        y = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + config.norm_eps) * w
    return y


@law(
    "The first value is the embedding of each token, plus its learned position if the model has these.",
    region="embedding",
    source="Vaswani et al., 2017, sections 3.4 and 3.5",
)
def tokens_are_looked_up(subject: Any, draw: Draw) -> None:
    model, ids, mask, points = draw_trace(subject, draw)
    expected = model.arrays["embed.weight"][ids]
    if model.config.position == "learned":
        count = np.cumsum(mask, axis=-1) - 1
        expected = expected + model.arrays["pos_embed.weight"][np.maximum(count, 0)]
    subject.close(points["embed"], expected, "embed")


@law(
    "Both sublayers of every block add to the stream that they read, and nothing else changes it.",
    region="residual",
    source="He et al., 2015; " + GPT2,
)
def sublayers_add_to_the_stream(subject: Any, draw: Draw) -> None:
    model, _, _, points = draw_trace(subject, draw)
    stream = points["embed"]
    for i in range(model.config.n_layers):
        at = f"blocks.{i}"
        subject.close(points[f"{at}.attn_residual"], stream + points[f"{at}.attn.out"], f"{at}.attn_residual")
        stream = points[f"{at}.attn_residual"]
        subject.close(points[f"{at}.residual"], stream + points[f"{at}.mlp.out"], f"{at}.residual")
        stream = points[f"{at}.residual"]


@law(
    "Norms are applied before both sublayers and before the head, each to the stream at that point.",
    region="residual",
)
def norms_stand_before(subject: Any, draw: Draw) -> None:
    model, _, _, points = draw_trace(subject, draw)
    stream = points["embed"]
    for i in range(model.config.n_layers):
        for name, after in (("attn_norm", "attn_residual"), ("mlp_norm", "residual")):
            at = f"blocks.{i}.{name}"
            subject.close(points[at], normed(stream, model, at), at)
            stream = points[f"blocks.{i}.{after}"]
    subject.close(points["final_norm"], normed(stream, model, "final_norm"), "final_norm")


@law(
    "Queries, keys and values are the normed stream times their matrices; the output is the joined heads "
    "times its matrix.",
    region="attention",
    source="Vaswani et al., 2017, section 3.2.2",
)
def projections(subject: Any, draw: Draw) -> None:
    model, _, _, points = draw_trace(subject, draw)
    for i in range(model.config.n_layers):
        at = f"blocks.{i}.attn"
        for name in ("q", "k", "v"):
            subject.close(
                points[f"{at}.{name}"], times(points[f"{at}_norm"], model, f"{at}.{name}"), f"{at}.{name}"
            )
        subject.close(points[f"{at}.out"], times(points[f"{at}.heads"], model, f"{at}.o"), f"{at}.out")


@law(
    "Head h weights the values of key/value head h // (h / g) by the softmax of q k / sqrt(hd) over the real "
    "tokens up to its own; heads are joined in order.",
    region="attention",
    source="Vaswani et al., 2017, section 3.2; Ainslie et al., 2023",
)
def heads_attend(subject: Any, draw: Draw) -> None:
    model, ids, mask, points = draw_trace(subject, draw)
    config: Config = model.config
    (b, t), hd, share = ids.shape, config.head_dim, config.n_heads // config.n_kv_heads
    for i in range(config.n_layers):
        at = f"blocks.{i}.attn"
        q = points.get(f"{at}.q_rotated", points[f"{at}.q"].reshape(b, t, -1, hd).swapaxes(1, 2))
        k = points.get(f"{at}.k_rotated", points[f"{at}.k"].reshape(b, t, -1, hd).swapaxes(1, 2))
        v = points[f"{at}.v"].reshape(b, t, -1, hd)
        heads = points[f"{at}.heads"].reshape(b, t, -1, hd)
        for row, head, now in np.ndindex(b, config.n_heads, t):
            scores = [float(q[row, head, now] @ k[row, head // share, s]) / math.sqrt(hd) for s in range(t)]
            subject.close(points[f"{at}.scores"][row, head, now], scores, f"{at}.scores of {row, head, now}")
            seen = [s for s in range(now + 1) if mask[row, s]]
            raised = {s: math.exp(scores[s] - max(scores[s] for s in seen)) for s in seen}
            weights = [raised.get(s, 0.0) / math.fsum(raised.values()) if seen else 0.0 for s in range(t)]
            found = points[f"{at}.weights"][row, head, now]
            subject.close(found, weights, f"{at}.weights of {row, head, now}")
            subject.equal(
                found[[s for s in range(t) if s not in seen]], 0.0 * found[: t - len(seen)], "masked"
            )
            mixed = sum((weights[s] * v[row, s, head // share] for s in seen), np.zeros(hd))
            subject.close(heads[row, now, head], mixed, f"{at}.heads of {row, head, now}")


@law(
    "The MLP is W_down of silu(W_gate x) times W_up x, or of f(W_up x) for the config's f: a form of GELU or "
    "the squared ReLU.",
    region="mlp",
    source="Shazeer, 2020; Hendrycks & Gimpel, 2016; So et al., 2021; " + LLAMA,
)
def mlps_bend(subject: Any, draw: Draw) -> None:
    model, _, _, points = draw_trace(subject, draw)
    activate = np.vectorize(ACTIVATIONS[model.config.mlp], otypes=[float])
    for i in range(model.config.n_layers):
        at = f"blocks.{i}.mlp"
        x = points[f"{at}_norm"]
        up = times(x, model, f"{at}.up")
        subject.close(points[f"{at}.up"], up, f"{at}.up")
        if MLPS[model.config.mlp].gated:
            gate = times(x, model, f"{at}.gate")
            subject.close(points[f"{at}.gate"], gate, f"{at}.gate")
            hidden = activate(gate) * up
        else:
            hidden = activate(up)
        subject.close(points[f"{at}.hidden"], hidden, f"{at}.hidden")
        subject.close(points[f"{at}.out"], times(points[f"{at}.hidden"], model, f"{at}.down"), f"{at}.out")


@law(
    "Logits are the normed stream times the head, or the embedding if tied, plus the head's bias if any.",
    region="head",
    source="Press & Wolf, 2016",
)
def logits_are_the_head(subject: Any, draw: Draw) -> None:
    model, _, _, points = draw_trace(subject, draw)
    table = model.arrays["embed.weight" if model.config.tie_embeddings else "head.weight"]
    expected = points["final_norm"] @ table.T + model.arrays.get("head.bias", 0.0)
    subject.close(points["logits"], expected, "logits")


@law(
    "A block's weights change what is computed from that block on, and nothing before it.",
    source="Vaswani et al., 2017, section 3.1: a stack of layers",
    needs="params trace",
)
def blocks_stand_in_order(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    changed = draw("block", st.integers(0, model.config.n_layers - 1))
    name = f"blocks.{changed}.{draw('matrix', st.sampled_from(['attn.o.weight', 'mlp.down.weight']))}"
    before, after = model.trace(ids), model.but(**{name: -1.5 * model.arrays[name]}).trace(ids)
    for i in range(model.config.n_layers):
        point = f"blocks.{i}.residual"
        if i < changed:
            subject.close(after[point], before[point], f"{point} with another {name}")
        elif np.array_equal(after[point], before[point]):
            raise AssertionError(f"{point} does not change with {name}")
    if np.array_equal(after["logits"], before["logits"]):
        raise AssertionError(f"logits do not change with {name}")


@law("Norms have the kind and the eps that the config names.", region="norm")
def norms_are_the_configs(subject: Any, draw: Draw) -> None:
    model, _, _, points = draw_trace(subject, draw)
    first = normed(points["embed"], model, "blocks.0.attn_norm")
    subject.close(points["blocks.0.attn_norm"], first, "blocks.0.attn_norm")


@law(
    "A trace contains each value once, in order, with its shape; recording it changes nothing.",
    source="tinyxp's own contract: trace",
    needs="params trace",
)
def traces_are_complete(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    points, config = model.trace(ids), model.config
    b, t = ids.shape
    h, g, hd, f = config.n_heads, config.n_kv_heads, config.head_dim, config.d_ff
    stream = (b, t, config.d_model)
    block: dict[str, tuple[int, ...]] = {
        "attn_norm": stream,
        "attn.q": (b, t, h * hd),
        "attn.k": (b, t, g * hd),
        "attn.v": (b, t, g * hd),
    }
    if config.position == "rope":
        block |= {"attn.q_rotated": (b, h, t, hd), "attn.k_rotated": (b, g, t, hd)}
    block |= {"attn.scores": (b, h, t, t), "attn.weights": (b, h, t, t), "attn.heads": (b, t, h * hd)}
    block |= {"attn.out": stream, "attn_residual": stream, "mlp_norm": stream}
    block |= {"mlp.gate": (b, t, f)} if MLPS[config.mlp].gated else {}
    block |= {"mlp.up": (b, t, f), "mlp.hidden": (b, t, f), "mlp.out": stream, "residual": stream}
    expected: dict[str, tuple[int, ...]] = {"embed": stream}
    for i in range(config.n_layers):
        expected |= {f"blocks.{i}.{name}": shape for name, shape in block.items()}
    expected |= {"final_norm": stream, "logits": (b, t, config.vocab_size)}
    found = {name: x.shape for name, x in points.items()}
    if found != expected or (subject.backend.eager and list(found) != list(expected)):
        raise AssertionError(f"trace points are {found}, expected {expected}")
    subject.close(points["logits"], model.forward(ids), "logits under a trace")


@law(
    "If a tap replaces a value, the rest is computed from the replacement.",
    source="tinyxp's own contract: tap(name, x) -> x",
    needs="params trace",
)
def taps_replace(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    names = [f"blocks.0.{name}" for name in ("attn.v", "attn.weights", "attn.out", "mlp.hidden", "residual")]
    name = draw("point", st.sampled_from(["embed", *names, "final_norm", "logits"]))
    f = subject.compiled(with_a_half, model=subject.modules.model, point=name)
    found, after = subject.host(f(model.params, subject.array(ids)))
    if name == "logits":
        expected = 0.5 * model.forward(ids)
    elif name == "final_norm":
        bias = model.arrays.get("head.bias", 0.0)
        expected = 0.5 * (model.forward(ids) - bias) + bias
    else:
        expected = None
    if expected is not None:
        subject.close(found, expected, f"logits with {name} halved")
    if not after:
        raise AssertionError(f"the tap never saw {name}")
    if np.array_equal(found, model.forward(ids)):
        raise AssertionError(f"logits do not change when {name} is halved")


def with_a_half(params: Any, ids: Any, *, model: Any, point: str) -> Any:
    seen = []

    def halve(name: str, x: Any) -> Any:
        if name != point:
            return x
        seen.append(name)
        return 0.5 * x

    return model.forward(params, ids, tap=halve), len(seen)
