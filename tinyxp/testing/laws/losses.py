"""Laws of the loss of a whole model, its gradients, and its initialisation."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.config import GPT2, Config
from tinyxp.registry import Backend
from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.padding import draw_padded
from tinyxp.testing.references import other_differentiating
from tinyxp.testing.strategies import random_arrays, seeds
from tinyxp.testing.subjects.backends import build_decoder

RADFORD = "Radford et al., 2019, section 2.3"

law = laws_of("training", "gradients", RADFORD, "params")


def draw_targets(draw: Draw, model: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Draw targets (b, t), some of them -100, at least one not."""
    one = st.integers(0, model.vocab_size - 1)
    rows = st.lists(
        st.lists(st.just(-100) | one, min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    )
    targets = np.asarray(draw("targets", rows))
    targets[0, 0] = max(targets[0, 0], 0)
    return targets


@law(
    "The loss is the mean of -log softmax(logits)[target] over the targets that are not -100; nothing is "
    "shifted.",
    region="loss",
    source="Bengio et al., 2003; PyTorch's ignore_index",
    needs="params mask",
)
def loss_is_cross_entropy(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = draw_padded(subject, draw, model)
    targets = draw_targets(draw, model, ids.shape)
    logits = model.forward(ids, mask=mask).astype(np.float64)
    losses = [
        math.log(math.fsum(math.exp(x - row.max()) for x in row)) + float(row.max() - row[target])
        for row, target in zip(logits.reshape(-1, model.vocab_size), targets.reshape(-1), strict=True)
        if target != -100
    ]
    subject.close(model.loss(ids, targets, mask=mask), math.fsum(losses) / len(losses), "loss")


@law(
    "The loss is at least 0 and at most ln V plus the range of the logits; for equal logits it is ln V.",
    region="loss",
    source="Shannon, 1948",
)
def loss_bounds(subject: Any, draw: Draw) -> None:
    model = subject.model(draw, tie_embeddings=False)
    ids = model.ids(draw)
    targets = draw_targets(draw, model, ids.shape)
    loss, logits = model.loss(ids, targets), model.forward(ids)
    most = math.log(model.vocab_size) + float(logits.max() - logits.min())
    if not -1e-12 <= loss <= most + 1e-12:
        raise AssertionError(f"loss is {loss}, beyond 0 and {most}")
    zeros = {name: 0.0 * x for name, x in model.arrays.items() if name.startswith("head.")}
    uniform = model.but(**zeros).loss(ids, targets)
    subject.close(uniform, math.log(model.vocab_size), "loss of equal logits")


@law(
    "Without any target the loss and every gradient are 0, not NaN.",
    source="a micro-batch of padding alone must add nothing",
    needs="params gradients",
)
def no_targets_no_gradient(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    nothing = np.full(ids.shape, -100)
    subject.equal(model.loss(ids, nothing), 0.0, "loss")
    for name, x in model.gradients(ids, nothing).items():
        subject.equal(x, np.zeros_like(x), f"gradient of {name}")


@law(
    "The gradient along any direction is the loss's central difference along it.",
    source="Taylor's theorem",
    needs="params gradients",
)
def gradients_are_differences(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    targets = draw_targets(draw, model, ids.shape)
    name = draw("parameter", st.sampled_from(sorted(model.arrays)))
    rng = np.random.default_rng(draw("direction", seeds()))
    way = rng.normal(size=model.arrays[name].shape)
    step = 1e-5
    ahead, behind = (
        model.but(**{name: model.arrays[name] + sign * step * way}).loss(ids, targets) for sign in (1.0, -1.0)
    )
    found = float(np.sum(model.gradients(ids, targets)[name] * way))
    # The error of a central difference: step^2 times the third derivative, plus rounding over the step.
    within = 1e-5 if subject.dtype == "float64" else 0.3
    subject.close(found, (ahead - behind) / (2.0 * step), f"slope along {name}", within=within)


@law(
    "In an untied model only embeddings of tokens in the input have a gradient; in a tied one all have.",
    source="Press & Wolf, 2016, section 3.2",
    needs="params gradients",
)
def embedding_gradients(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    targets = np.zeros(ids.shape, dtype=int)
    gradient = model.gradients(ids, targets)["embed.weight"]
    moved = np.abs(gradient).max(axis=-1) > 0.0
    causal_inputs = np.isin(np.arange(model.vocab_size), ids)
    expected = causal_inputs | model.config.tie_embeddings
    subject.equal(moved & ~expected, np.zeros_like(moved), "rows with a gradient that are not in the input")
    if model.config.tie_embeddings and not moved.all():
        raise AssertionError(f"rows {np.flatnonzero(~moved)} of a tied embedding have no gradient")
    if not (moved & causal_inputs).any():
        raise AssertionError("no row of the embedding has a gradient")


@law(
    "Two libraries compute the same gradients.",
    source="the chain rule",
    needs="params gradients other-gradients mask",
    is_reference=True,
)
def gradients_agree(subject: Any, draw: Draw) -> None:
    other = other_subject(subject.backend, subject.dtype)
    shapes = other if other.pooled else subject
    config = draw("config", shapes.configs())
    model = subject.build(config, random_arrays(config, draw("seed", seeds())))
    ids, mask = draw_padded(shapes, draw, model)
    targets = np.where(mask, draw_targets(draw, model, ids.shape), -100)
    with other.active():
        expected = other.build(model.config, model.arrays).gradients(ids, targets, mask=mask)
    for name, x in model.gradients(ids, targets, mask=mask).items():
        subject.close(x, expected[name], f"gradient of {name}, compared with {other.name}")


@functools.cache
def other_subject(backend: Backend, dtype: str) -> Any:
    """Return the one subject to compare gradients with, so that it compiles each shape once."""
    other = other_differentiating(backend)
    assert other is not None
    return build_decoder(other, name=other.name, recipe="", dtype=dtype)


# Initialisation

WIDE: dict[str, Any] = {
    "vocab_size": 2048,
    "d_model": 128,
    "n_heads": 4,
    "n_kv_heads": 4,
    "d_ff": 128,
    "max_seq_len": 64,
}


def initial(subject: Any, config: Config, seed: int) -> Any:
    """Return the model of init's parameters."""
    made = subject.modules.initialization.init(config, seed=seed, xp=subject.backend.xp, dtype=subject.dtype)
    return subject.build(config, {name: subject.host(x) for name, x in made.items()})


@law(
    "At initialisation the loss over all targets is ln V + s^2/2, where s = 0.02 sqrt(d) is the standard "
    "deviation of the logits.",
    region="initialisation",
    source="E[log sum exp] of V normal logits; " + RADFORD,
    examples=2,
)
def loss_at_initialisation(subject: Any, draw: Draw) -> None:
    config = Config(**WIDE, n_layers=1)
    model = initial(subject, config, draw("seed", seeds()))
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (1, 8))
    logits = model.forward(ids).astype(np.float64)
    losses = np.log(np.exp(logits).mean(-1)) - logits.mean(-1)  # the mean over all targets, minus ln V
    expected = (0.02**2 * config.d_model) / 2.0
    # The variance of 2,048 normal numbers is known to 3 %; six times that, once in a billion.
    subject.close(losses.mean() / expected, 1.0, "(loss - ln V) / (s^2/2)", within=0.19)


@law(
    "At initialisation matrices have standard deviation 0.02, or 0.02 / sqrt(2 L) for the two that write "
    "into the residual stream; norm weights are 1, biases 0.",
    region="initialisation",
    examples=3,
)
def initial_values(subject: Any, draw: Draw) -> None:
    layers = draw("n_layers", st.integers(1, 3))
    config = Config(**WIDE | GPT2, n_layers=layers)
    for name, x in initial(subject, config, draw("seed", seeds())).arrays.items():
        if x.ndim == 1:
            subject.equal(x, np.full_like(x, 1.0 if name.endswith(".weight") else 0.0), name)
            continue
        writes = name.endswith(("attn.o.weight", "mlp.down.weight"))
        std = 0.02 / math.sqrt(2.0 * layers) if writes else 0.02
        # A sample of m numbers gives their deviation to 1/sqrt(2 m); six times that, once in a billion.
        within = 6.0 / math.sqrt(2.0 * x.size)
        subject.close(x.std() / std, 1.0, f"deviation of {name} over {std:.4g}", within=within)
        subject.close(x.mean() / std, 0.0, f"mean of {name} over {std:.4g}", within=6.0 / math.sqrt(x.size))


@law(
    "At initialisation what the blocks add to the residual stream does not grow with their number.",
    region="initialisation",
    needs="params trace",
    examples=1,
)
def initial_stream_keeps_its_size(subject: Any, draw: Draw) -> None:
    seed = draw("seed", seeds())
    ids = np.random.default_rng(0).integers(0, WIDE["vocab_size"], (1, 16))
    added = []
    for layers in (2, 12):
        points = initial(subject, Config(**WIDE, n_layers=layers), seed).trace(ids)
        added.append(float(np.var(points[f"blocks.{layers - 1}.residual"] - points["embed"])))
    # Without the scaling twelve blocks would add six times as much as two.
    if not 0.4 < added[1] / added[0] < 2.5:
        raise AssertionError(f"two blocks add a variance of {added[0]:.3g}, twelve {added[1]:.3g}")


@law(
    "A seed gives the same parameters on every backend, and another seed gives others.",
    region="initialisation",
    source="tinyxp's own contract: init",
    examples=10,
)
def initial_values_are_the_same_everywhere(subject: Any, draw: Draw) -> None:
    from tinyxp.initialization import init

    config = draw("config", subject.configs())
    seed = draw("seed", seeds())
    found = initial(subject, config, seed).arrays
    for name, x in init(config, seed=seed, dtype=subject.dtype).items():
        subject.equal(found[name], np.asarray(x), name)
    if np.array_equal(initial(subject, config, seed + 1).arrays["embed.weight"], found["embed.weight"]):
        raise AssertionError(f"seeds {seed} and {seed + 1} give the same embedding")
