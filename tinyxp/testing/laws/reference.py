"""Laws that no property implies: agreement with decoders that were written independently."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.config import GPT2, Config
from tinyxp.errors import UnsupportedModelError
from tinyxp.formats.huggingface import list_rules
from tinyxp.params import Params
from tinyxp.shapes import parameter_shapes
from tinyxp.testing import referee
from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.padding import draw_padded
from tinyxp.testing.references import reference
from tinyxp.testing.strategies import random_arrays, seeds
from tinyxp.testing.subjects.backends import build_decoder

law = laws_of("model", "reference", "tinyxp.testing.referee", "params mask positions")


@law(
    "The logits are those of an independent decoder that computes token by token and head by head.",
    is_reference=True,
)
def agrees_with_the_referee(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = draw_padded(subject, draw, model)
    start = draw("start", st.integers(0, model.max_seq_len - ids.shape[1]))
    counted = np.maximum(np.cumsum(mask, axis=-1) - 1, 0)
    for given, logits in (
        (counted, model.forward(ids, mask=mask)),
        (counted + start, model.forward(ids, mask=mask, positions=counted + start)),
    ):
        for r, real in enumerate(mask):
            row, places = ids[r, real].tolist(), given[r, real].tolist()
            expected = referee.logits(model.config, model.arrays, row, places)
            subject.close(logits[r, real], expected, f"logits of row {r} at positions {places}")


# Models filled by a rule: number n of the k-th sorted parameter of Hugging Face's state dict is
# 0.3 sin(0.7 n + 1.3 k), plus 1 for weights of norms. The values are transformers', for ids 3 1 4 1 5: the
# last position's first five logits, the argmax, the mean loss of the next tokens, six greedy tokens.

FILLED_GPT2 = Config(
    **GPT2, vocab_size=11, max_seq_len=16, d_model=8, n_layers=2, n_heads=2, n_kv_heads=2, d_ff=32
)
FILLED_LLAMA = Config(vocab_size=11, d_model=8, d_ff=12, n_layers=2, n_heads=2, n_kv_heads=1)
FIGURES: dict[str, tuple[Config, list[float], int, float, list[int]]] = {
    "gpt2": (
        FILLED_GPT2,
        [0.784084, -0.354944, -1.334650, -1.715274, -1.325965],
        8,
        3.787285,
        [8, 8, 9, 8, 8, 7],
    ),
    "llama": (
        FILLED_LLAMA,
        [0.114623, 0.817703, 1.153742, 0.971903, 0.353808],
        2,
        2.280658,
        [2, 8, 4, 2, 8, 6],
    ),
    "llama-tied": (
        replace(FILLED_LLAMA, tie_embeddings=True),
        [0.763566, -0.375650, -1.346248, -1.712558, -1.310155],
        8,
        2.940109,
        [8, 1, 3, 5, 7, 9],
    ),
}
IDS = np.asarray([[3, 1, 4, 1, 5]])


def filled_arrays(config: Config) -> dict[str, np.ndarray]:
    """Return the parameters of the rule, under our names."""
    shapes = parameter_shapes(config)
    arrays: dict[str, np.ndarray] = {}
    for k, rule in enumerate(sorted(list_rules(config), key=lambda rule: rule.name)):
        shape = rule.shape(shapes)
        x = (0.3 * np.sin(0.7 * np.arange(math.prod(shape)) + 1.3 * k)).reshape(shape)
        arrays |= dict(zip(rule.targets, rule.split(x, shapes), strict=True))
    return {name: x + ("norm" in name and name.endswith("weight")) for name, x in arrays.items()}


@law(
    "Models filled by a rule, without random numbers, have the logits, loss and greedy tokens of "
    "transformers.",
    source="transformers 5.24; GPT-2 in float64, Llama in float32",
    needs="params generate",
    examples=3,
    is_reference=True,
)
def filled_models(subject: Any, draw: Draw) -> None:
    name = draw("name", st.sampled_from(sorted(FIGURES)))
    config, first, argmax, loss, greedy = FIGURES[name]
    model = subject.build(config, filled_arrays(config))
    last = model.forward(IDS)[0, -1]
    # Six decimals are recorded; those of the Llamas were computed in float32.
    subject.close(last[:5], first, f"{name}: last logits 0 to 4", within=2e-6)
    subject.equal(int(np.argmax(last)), argmax, f"{name}: argmax")
    targets = np.concatenate([IDS[:, 1:], [[-100]]], axis=1)
    subject.close(model.loss(IDS, targets), loss, f"{name}: loss", within=2e-6)
    for cached in (True, False):
        subject.equal(model.generate(IDS, 6, cache=cached), [greedy], f"{name}: greedy ids, cache={cached}")


def micro(ops: Any, xp: Any, e: Any, p: Any, wk: Any, wv: Any, ids: Any, targets: Any) -> dict[str, Any]:
    """Return a model of two-dimensional embeddings, one head and a tied output."""
    points = {}

    def tap(name: str, x: Any) -> Any:
        points[name] = x
        return x

    t = ids.shape[0]
    x = (xp.take(e, ids, axis=0) + p)[None, None, ...]
    visible = xp.arange(t)[None, :] <= xp.arange(t)[:, None]
    heads = ops.attention(
        x, ops.linear(x, wk, xp=xp), ops.linear(x, wv, xp=xp), visible[None, None, ...], xp=xp, tap=tap
    )
    hidden = (x + heads)[0, ...]
    logits = ops.linear(hidden, e, xp=xp)
    losses = xp.stack(
        [ops.cross_entropy(logits[:, i : i + 1, :], targets[None, i : i + 1], xp=xp) for i in range(t)]
    )
    mean = ops.cross_entropy(logits, targets[None, :], xp=xp)
    probabilities = ops.softmax(logits, xp=xp)
    return points | {
        "hidden": hidden,
        "logits": logits,
        "probabilities": probabilities,
        "losses": losses,
        "mean": mean,
    }


@law(
    "The micro model that can be computed by hand (birds, sing, at, dawn) has the values on its page, to "
    "four decimals.",
    source="worked by hand",
    needs="ops trace",
    examples=1,
    is_reference=True,
)
def micro_model(subject: Any, draw: Draw) -> None:
    e = np.asarray([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5], [0.5, -1.0]])
    p = np.asarray([[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]])
    wk, wv = np.asarray([[1.0, 0.5], [0.0, 1.0]]), np.asarray([[0.0, 1.0], [1.0, 0.0]])
    found = subject.run(micro, e, p, wk, wv, np.asarray([0, 1, 2]), np.asarray([1, 2, 3]))
    page = {
        "scores": [[0.7071, 0.7071, -0.3536], [0.3536, 1.0607, 0.5303], [-0.7071, 0.0, 1.0607]],
        "weights": [[1.0, 0.0, 0.0], [0.3302, 0.6698, 0.0], [0.1125, 0.2282, 0.6592]],
        "hidden": [[1.0, 1.0], [1.1698, 1.6651], [-0.1125, 0.5674]],
        "logits": [
            [1.0, 1.0, -0.5, -0.5],
            [1.1698, 1.6651, -0.3372, -1.0802],
            [-0.1125, 0.5674, 0.3963, -0.6237],
        ],
        "probabilities": [
            [0.4088, 0.4088, 0.0912, 0.0912],
            [0.3369, 0.5529, 0.0747, 0.0355],
            [0.1910, 0.3769, 0.3176, 0.1145],
        ],
        "losses": [0.8946, 2.5949, 2.1669],
        "mean": 1.8854,
    }
    for name, expected in page.items():
        # Half of the last recorded decimal.
        value = np.squeeze(found[name])
        worst = float(np.max(np.abs(value - expected)))
        if not worst <= 5.1e-5:
            raise AssertionError(f"{name} is {value.tolist()}, expected {expected}")
    other = subject.run(micro, e, p, wk, wv, np.asarray([0, 1, 3]), np.asarray([1, 2, 3]))
    subject.equal(other["hidden"][0, :2], found["hidden"][0, :2], "hidden of the first two words")
    for name, row in (("hidden", [0.5934, 0.1910]), ("logits", [0.5934, 0.1910, -0.4979, 0.1057])):
        if not float(np.max(np.abs(other[name][0, 2] - row))) <= 5.1e-5:
            raise AssertionError(f"{name} of dawn is {other[name][0, 2].tolist()}, expected {row}")


def is_theirs(config: Config) -> bool:
    """Return whether transformers has a class for this model."""
    try:
        config.to_hf()
    except UnsupportedModelError:
        return False
    return True


@law(
    "In float32 the logits are as close to the float64 referee as transformers' own.",
    source="transformers' GPT-2, Llama and Qwen2",
    needs="params reference-decoder",
    examples=15,
    is_reference=True,
)
def agrees_with_transformers(subject: Any, draw: Draw) -> None:
    transformers = reference("decoder")
    config = draw("config", subject.configs().filter(is_theirs))
    arrays = random_arrays(config, draw("seed", seeds()))
    narrow = {name: x.astype(np.float32) for name, x in arrays.items()}
    model = subject.build(config, narrow, "float32")
    ids = model.ids(draw)
    truth = exact(config, narrow, ids)
    theirs = transformers.logits(transformers.model(Params(narrow, config), "float32"), ids)
    as_near(subject, model.forward(ids), theirs, truth, "transformers")


@law(
    "In float32 every backend is as close to the float64 referee as this decoder on NumPy is.",
    region="precision",
    source="Higham, 2002, chapter 4: what float32 costs here",
    needs="params",
    is_reference=True,
)
def float32_costs_what_it_must(subject: Any, draw: Draw) -> None:
    from tinyxp.model import forward

    config = draw("config", subject.configs())
    arrays = random_arrays(config, draw("seed", seeds()))
    narrow = {name: x.astype(np.float32) for name, x in arrays.items()}
    model = subject.build(config, narrow, "float32")
    ids = model.ids(draw)
    truth = exact(config, narrow, ids)
    as_near(subject, model.forward(ids), np.asarray(forward(Params(narrow, config), ids)), truth, "NumPy")


def exact(config: Config, arrays: dict[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    """Return the referee's logits (b, t, n) of these weights, in float64."""
    wide = {name: x.astype(np.float64) for name, x in arrays.items()}
    places = list(range(ids.shape[1]))
    return np.stack([referee.logits(config, wide, row.tolist(), places) for row in ids])


def as_near(subject: Any, ours: np.ndarray, theirs: np.ndarray, truth: np.ndarray, whose: str) -> None:
    """Raise AssertionError if our error exceeds eight times theirs, and eight times 32 roundings.

    Smaller differences are chance: correct implementations sum in different orders.
    """
    ours_off, theirs_off = (float(np.max(np.abs(x - truth))) for x in (ours, theirs))
    rounding = 32.0 * 2.0**-24 * max(1.0, float(np.max(np.abs(truth))))
    if not ours_off <= 8.0 * max(theirs_off, rounding):
        raise AssertionError(f"logits are {ours_off:.2g} from the referee, {whose}' {theirs_off:.2g}")


@law(
    "Forty decimal digits round to the same float64 logits.",
    source="mpmath",
    needs="params reference-precision",
    examples=4,
    is_reference=True,
)
def agrees_with_arbitrary_precision(subject: Any, draw: Draw) -> None:
    small = {"n_layers": (1, 2), "d_model": (3, 5), "d_ff": (2, 4), "head_dim": (2, 4), "vocab_size": (2, 4)}
    config = draw("config", subject.configs() if subject.pooled else subject.configs(**small))
    arrays = random_arrays(config, draw("seed", seeds()))
    model = subject.build(config, arrays)
    ids = model.ids(draw, rows=(1, 2), columns=(2, 3))
    precise = reference("precision")
    with precise.digits(40):
        expected = (
            build_decoder(precise.backend, name="precise", recipe="").build(config, arrays).forward(ids)
        )
    subject.close(
        model.forward(ids), expected, "logits", within=1e-12 if subject.dtype == "float64" else None
    )
