"""Hypothesis strategies for decoders: small by default, with every option a keyword and every value plain.

Values are drawn as NumPy arrays or Python lists, so that a failing example replays on every backend. All
shrink towards the smallest: one layer, one head, one token, id 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from hypothesis import strategies as st

from tinyxp.config import GPT2, MLPS, NORMS, POSITIONS, Config, RopeScaling
from tinyxp.params import Params
from tinyxp.shapes import parameter_shapes

Range = tuple[int, int]


class HasVocabulary(Protocol):
    """What ids are drawn for: a Config, or any object with these two limits."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def max_seq_len(self) -> int: ...


FAMILIES = ("llama", "gpt2", "mixed")
SCALINGS = (
    RopeScaling(rope_type="linear", factor=4.0),
    RopeScaling(
        rope_type="llama3",
        factor=8.0,
        low_freq_factor=0.25,
        high_freq_factor=1.0,
        original_max_seq_len=8,
    ),
)


@st.composite
def configs(
    draw: st.DrawFn,
    /,
    *,
    families: Sequence[str] = FAMILIES,
    vocab_size: Range | int = (2, 12),
    n_layers: Range | int = (1, 3),
    d_model: Range | int = (3, 12),
    n_kv_heads: Range | int = (1, 3),
    queries_per_kv_head: Range | int = (1, 3),
    head_dim: Range | int = (1, 8),
    d_ff: Range | int = (1, 12),
    max_seq_len: Range | int = (12, 16),
    **fixed: Any,
) -> Config:
    """Draw configurations of both families and of mixtures.

    They cover GQA from MQA to MHA, odd widths, every norm, mlp, position and bias, tied and untied heads, and
    every scaling of rotary frequencies. A size is an inclusive range, or one number. For rotary positions
    ``head_dim`` is rounded up to an even number. ``fixed`` sets fields of Config, such as ``norm="rms"``, and
    overrides those of the family.
    """
    family = draw(st.sampled_from(list(families)))

    def integer(limits: Range | int) -> int:
        return limits if isinstance(limits, int) else draw(st.integers(*limits))

    def flag() -> bool:
        return draw(st.booleans())

    fields: dict[str, Any] = {
        "vocab_size": integer(vocab_size),
        "n_layers": integer(n_layers),
        "d_model": integer(d_model),
        "d_ff": integer(d_ff),
        "max_seq_len": integer(max_seq_len),
        "norm_eps": draw(st.sampled_from([1e-5, 1e-6, 1e-2, 0.1])),
        "tie_embeddings": flag(),
    }
    if family == "gpt2":
        fields |= {name: value for name, value in GPT2.items() if name != "tie_embeddings"}
        fields["mlp"] = draw(st.sampled_from(["gelu_tanh", "gelu"]))
    else:
        fields |= {name: flag() for name in ("attn_bias", "attn_out_bias", "mlp_bias", "head_bias")}
    if family == "mixed":
        for name, known in (("norm", NORMS), ("position", POSITIONS), ("mlp", MLPS)):
            fields[name] = draw(st.sampled_from(tuple(known)))
    groups = integer(n_kv_heads)
    shared = 1 if family == "gpt2" else integer(queries_per_kv_head)
    size = integer(head_dim)
    if (fields | fixed).get("position", "rope") == "rope":
        size += size % 2
        fields["rope_theta"] = draw(st.sampled_from([1e4, 100.0, 1e6]))
        fields["rope_scaling"] = draw(st.sampled_from([None, *SCALINGS]))
    heads = {"n_kv_heads": groups, "n_heads": groups * shared, "head_dim": size}
    width, limits = groups * shared * size, (d_model, d_model) if isinstance(d_model, int) else d_model
    if limits[0] <= width <= limits[1] and flag():
        fields["d_model"] = width  # square matrices, whose shapes do not reveal a transpose
    return Config(**(heads | fields | fixed))


def seeds() -> st.SearchStrategy[int]:
    """Return a strategy for seeds of ``default_rng``: arrays built from one keep examples short."""
    return st.integers(0, 2**16)


def random_arrays(config: Config, seed: int = 0) -> dict[str, np.ndarray]:
    """Return parameters for which every intermediate value is of order one, in float64 on NumPy.

    A matrix (o, i) is normal with standard deviation 1.5 / sqrt(i), so that attention is selective and
    activations are nonlinear; with the usual 0.02 a wrong GELU is smaller than rounding. A table (n, d) has
    standard deviation 1. Norm weights are 1 and biases 0, each plus 0.3 times a normal number.
    """
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, shape in parameter_shapes(config).items():
        x = rng.normal(size=shape)
        if name.endswith("embed.weight"):
            arrays[name] = x
        elif len(shape) == 2:
            arrays[name] = x * (1.5 / shape[1] ** 0.5)
        else:
            arrays[name] = 0.3 * x + name.endswith(".weight")
    return arrays


def params(config: Config) -> st.SearchStrategy[Params]:
    """Return a strategy for parameters of ``config``, as ``random_arrays`` gives them."""
    return seeds().map(lambda seed: Params(random_arrays(config, seed), config))


def token_ids(
    config: HasVocabulary, *, rows: Range = (1, 3), columns: Range = (1, 6)
) -> st.SearchStrategy[list[list[int]]]:
    """Return a strategy for ids (b, t) as lists, within the config's vocab_size and max_seq_len."""
    longest = min(columns[1], config.max_seq_len)
    ids = st.integers(0, config.vocab_size - 1)
    shapes = st.tuples(st.integers(*rows), st.integers(min(columns[0], longest), longest))
    return shapes.flatmap(
        lambda shape: st.lists(
            st.lists(ids, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0]
        )
    )


@st.composite
def padded_batches(
    draw: st.DrawFn, config: HasVocabulary, *, rows: Range = (1, 3), columns: Range = (1, 8)
) -> tuple[list[list[int]], list[list[bool]]]:
    """Draw (ids, mask) of a batch (b, t): each row has 1 to t contiguous real tokens, at any place.

    Ids on padding are arbitrary.
    """
    batch = draw(token_ids(config, rows=rows, columns=columns))
    width = len(batch[0])
    mask = []
    for _ in batch:
        length = draw(st.integers(1, width))
        left = draw(st.integers(0, width - length))
        mask.append([left <= column < left + length for column in range(width)])
    return batch, mask


def chunkings(t: int) -> st.SearchStrategy[list[int]]:
    """Return a strategy for cutting t columns into pieces: positive integers that add up to t."""
    cuts = st.lists(st.booleans(), min_size=max(t - 1, 0), max_size=max(t - 1, 0))

    def pieces(cut_after: list[bool]) -> list[int]:
        sizes = [1]
        for cut in cut_after:
            if cut:
                sizes.append(1)
            else:
                sizes[-1] += 1
        return sizes

    return cuts.map(pieces)


def logits(
    *, rows: Range = (1, 3), vocab_size: Range = (1, 12), magnitude: float = 12.0
) -> st.SearchStrategy[np.ndarray]:
    """Return a strategy for scores (b, n) in float64, up to ``magnitude``: exact in float32, some equal."""
    steps = int(magnitude * 4)
    values = st.integers(-steps, steps).map(lambda i: i / 4)
    shapes = st.tuples(st.integers(*rows), st.integers(*vocab_size))
    return shapes.flatmap(
        lambda shape: st.lists(
            st.lists(values, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0]
        )
    ).map(lambda rows: np.asarray(rows, dtype=np.float64))


def sampling_settings(*, vocab_size: int = 12) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for keywords of ``tinyxp.generate``: temperature (also 0), top_k, top_p and seed."""
    temperatures = st.sampled_from([0.0, 1.0, 0.5, 2.0, 0.1, 10.0])
    top_k = st.none() | st.integers(1, vocab_size + 1)
    top_p = st.none() | st.sampled_from([1.0, 0.9, 0.5, 0.1, 0.0]) | st.floats(0.0, 1.0, width=32)
    return st.fixed_dictionaries(
        {"temperature": temperatures, "top_k": top_k, "top_p": top_p, "seed": st.integers(0, 2**32)}
    )


def texts(*, max_size: int = 40) -> st.SearchStrategy[str]:
    """Return a strategy for any text that UTF-8 can encode, including text that spells special tokens."""
    anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size)
    pieces = st.sampled_from(
        ["", " ", "  ", "\n", "\t", " the", "don't", "I'LL", "123", "4567", "!?", "naïve", "e\u0301", "日本",
         "Привет", "🙂", "👩\u200d👩\u200d👧", "\u00a0", "\u200b", "\x00", "<|endoftext|>", "<s>", "a" * 9]
    )  # fmt: skip
    joined = st.lists(pieces, max_size=8).map("".join)
    return anything | joined
