"""Faults of matrices and biases: transposed, exchanged, scaled, dropped, rounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tinyxp.config import Config
from tinyxp.doctor.choices import F
from tinyxp.doctor.distance import round_to
from tinyxp.doctor.faults.record import Fault, changing, within
from tinyxp.doctor.variant import Variant
from tinyxp.shapes import block_shapes

MATRICES = {
    "attn.q": "attn.q",
    "attn.k": "attn.k",
    "attn.v": "attn.v",
    "attn.o": "attn.out",
    "mlp.gate": "mlp.gate",
    "mlp.up": "mlp.up",
    "mlp.down": "mlp.out",
}
"""A block's matrices -> the points where they show."""


def transpositions(config: Config) -> Iterator[Fault]:
    shapes = block_shapes(config)
    for ours, point in MATRICES.items():
        if f"{ours}.weight" not in shapes:
            continue
        o, i = shapes[f"{ours}.weight"]
        for key, says, how in (
            ("transposed", "is left transposed", (lambda x: x.T) if o == i else None),
            (
                "reshaped",
                "was reshaped to its shape where it had to be transposed",
                None if o == i else lambda x: x.T.reshape(x.shape),
            ),
        ):
            if how is None:
                continue

            def change(name: str, x: F, v: Variant, how: Callable[[F], F] = how, ours: str = ours) -> F:
                return how(x) if within(name) == f"{ours}.weight" else x

            yield changing(
                f"{ours} {key}",
                f"{{its}} matrix {ours} {says}",
                f"transpose {ours} when it is loaded",
                (point,),
                change,
            )


def exchanges(config: Config) -> Iterator[Fault]:
    shapes = block_shapes(config)
    pairs = [
        ("mlp.gate", "mlp.up"),
        ("attn.q", "attn.k"),
        ("attn.k", "attn.v"),
        ("attn.q", "attn.v"),
        ("attn_norm", "mlp_norm"),
    ]
    for a, b in pairs:
        mine = {name.removeprefix(a) for name in shapes if name.startswith(f"{a}.")}
        if not mine or any(shapes.get(f"{a}{end}") != shapes.get(f"{b}{end}") for end in mine):
            continue

        def change(name: str, x: F, v: Variant, a: str = a, b: str = b) -> F:
            ours = within(name)
            for one, other in ((a, b), (b, a)):
                if ours.startswith(f"{one}."):
                    return v.weights.read(name.replace(f".{one}.", f".{other}."))
            return x

        yield changing(
            f"{a} and {b} exchanged",
            f"{{its}} parameters of {a} and {b} are swapped",
            "swap them back",
            (a, b),
            change,
        )


def block_roundings(config: Config) -> Iterator[Fault]:
    for dtype in ("bfloat16", "float16"):

        def change(name: str, x: F, v: Variant, dtype: str = dtype) -> F:
            inside = x.ndim == 2 and name.startswith("blocks.")
            return round_to(np.asarray(x, np.float64), dtype) if inside else x

        yield changing(
            f"blocks' matrices in {dtype}",
            f"{{its}} blocks' matrices were rounded to {dtype}",
            "keep them in float32",
            tuple(MATRICES.values()),
            change,
            likely=2,
        )


def copies(config: Config) -> Iterator[Fault]:
    """One parameter in the place of another of its shape."""
    shapes = block_shapes(config)
    for mine, other in (
        ("attn_norm", "mlp_norm"),
        ("mlp_norm", "attn_norm"),
        ("attn.v", "attn.k"),
        ("attn.k", "attn.v"),
    ):
        ends = [name.removeprefix(mine) for name in shapes if name.startswith(f"{mine}.")]
        if any(shapes[f"{mine}{end}"] != shapes.get(f"{other}{end}") for end in ends):
            continue

        def change(name: str, x: F, v: Variant, mine: str = mine, other: str = other) -> F:
            mine_here = within(name).startswith(f"{mine}.")
            return v.weights.read(name.replace(f".{mine}.", f".{other}.")) if mine_here else x

        yield changing(
            f"{other} in place of {mine}",
            f"{{it}} uses the parameters of {other} for {mine} too",
            f"load {mine}'s own",
            (mine,),
            change,
            likely=2,
        )


def eight_bits(config: Config) -> Iterator[Fault]:
    def change(name: str, x: F, v: Variant) -> F:
        if x.ndim < 2:
            return x
        wide = np.asarray(x, np.float64)
        step = np.max(np.abs(wide), axis=-1, keepdims=True) / 127.0
        return np.rint(wide / np.where(step > 0.0, step, 1.0)) * step

    yield changing(
        "weights in int8",
        "{its} matrices were rounded to 8 bits, row by row",
        "load the weights that were not quantised",
        ("embed", *MATRICES.values(), "logits"),
        change,
        likely=2,
    )


def biases(config: Config) -> Iterator[Fault]:
    shapes = block_shapes(config)
    groups = {
        "q, k and v biases dropped": ("attn.q", "attn.k", "attn.v"),
        "q bias dropped": ("attn.q",),
        "k bias dropped": ("attn.k",),
        "v bias dropped": ("attn.v",),
        "attention output bias dropped": ("attn.o",),
        "mlp biases dropped": ("mlp.gate", "mlp.up", "mlp.down"),
        "mlp.up bias dropped": ("mlp.up",),
        "mlp.gate bias dropped": ("mlp.gate",),
        "mlp.down bias dropped": ("mlp.down",),
        "all biases dropped": tuple(MATRICES),
    }
    for key, names in groups.items():
        had = tuple(name for name in names if f"{name}.bias" in shapes)
        if not had or (len(names) > 1 and len(had) == 1):
            continue

        def change(name: str, x: F, v: Variant, had: tuple[str, ...] = had) -> F:
            return np.zeros_like(x) if within(name) in {f"{n}.bias" for n in had} else x

        yield changing(
            key,
            f"{{it}} leaves out the bias of {', '.join(had)}",
            "add it",
            tuple(MATRICES[n] for n in had),
            change,
            likely=2 if key == "all biases dropped" else 1,
        )


def roundings(config: Config) -> Iterator[Fault]:
    everywhere = ("embed", *MATRICES.values(), "attn_norm", "mlp_norm", "final_norm", "logits")
    for dtype in ("bfloat16", "float16"):

        def change(name: str, x: F, v: Variant, dtype: str = dtype) -> F:
            return round_to(np.asarray(x, np.float64), dtype)

        yield changing(
            f"weights in {dtype}",
            f"{{its}} weights were rounded to {dtype}",
            f"load them in float32 from a file that was not saved in {dtype}",
            everywhere,
            change,
            likely=2,
        )
    for ours, point in MATRICES.items():
        for factor, word in ((2.0, "doubled"), (0.5, "halved"), (-1.0, "negated")):

            def scaled(name: str, x: F, v: Variant, factor: float = factor, ours: str = ours) -> F:
                return factor * x if within(name) == f"{ours}.weight" else x

            yield changing(
                f"{ours} {word}",
                f"{{its}} matrix {ours} is {word}",
                "load it as it is",
                (point,),
                scaled,
                likely=3,
            )
