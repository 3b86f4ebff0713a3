"""Faults of matrices and biases: transposed, swapped, scaled, dropped, rounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from tinyxp.config import Config
from tinyxp.doctor.distance import round_to
from tinyxp.doctor.faults.change import Change, Read, edit_parameters, load_from
from tinyxp.doctor.faults.fault import Fault, Row, Scope
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
"""A block's matrices -> the kinds of trace points that they compute."""

ArrayEdit = Callable[[np.ndarray], np.ndarray]
parameter_fault = partial(Fault, scope=Scope.BLOCK)


def matrix_faults(config: Config) -> Iterator[Row]:
    shapes = block_shapes(config)
    yield from _transposed(shapes)
    yield from _swapped(shapes)
    yield from _copied(shapes)
    yield from _without_biases(shapes)
    yield from _rounded()
    if config.head_bias:
        yield parameter_fault(
            "head bias dropped",
            "{it} leaves out the bias of the head",
            "add head.bias to the logits",
            ("logits",),
            edit_parameters(["head.bias"], np.zeros_like),
        )
    for name, point in _matrices(shapes):
        for factor, word in ((2.0, "doubled"), (0.5, "halved"), (-1.0, "negated")):
            yield parameter_fault(
                f"{name} {word}",
                f"{{its}} matrix {name} is {word}",
                f"load {name} without scaling it",
                (point,),
                edit_parameters([f"{name}.weight"], partial(np.multiply, factor)),
                rank=3,
            )


def _matrices(shapes: dict[str, tuple[int, ...]]) -> list[tuple[str, str]]:
    """The matrices that a block has, and the kinds of points that they compute."""
    return [(name, point) for name, point in MATRICES.items() if f"{name}.weight" in shapes]


def _transposed(shapes: dict[str, tuple[int, ...]]) -> Iterator[Fault]:
    for name, point in _matrices(shapes):
        o, i = shapes[f"{name}.weight"]
        edit: ArrayEdit = np.transpose
        key, says = "transposed", "is left transposed"
        if o != i:
            edit, key, says = _reshape, "reshaped", "is reshaped to its shape, not transposed"
        yield parameter_fault(
            f"{name} {key}",
            f"{{its}} matrix {name} {says}",
            f"transpose {name} when it is loaded",
            (point,),
            edit_parameters([f"{name}.weight"], edit),
        )


def _reshape(x: np.ndarray) -> np.ndarray:
    return x.T.reshape(x.shape)


def _same_shapes(shapes: dict[str, tuple[int, ...]], a: str, b: str) -> bool:
    """Whether b can take the parameters of a."""
    ends = [name.removeprefix(a) for name in shapes if name.startswith(f"{a}.")]
    return bool(ends) and all(shapes[f"{a}{end}"] == shapes.get(f"{b}{end}") for end in ends)


def _swapped(shapes: dict[str, tuple[int, ...]]) -> Iterator[Fault]:
    for a, b in (
        ("mlp.gate", "mlp.up"),
        ("attn.q", "attn.k"),
        ("attn.k", "attn.v"),
        ("attn.q", "attn.v"),
        ("attn_norm", "mlp_norm"),
    ):
        if _same_shapes(shapes, a, b):
            says = f"{{it}} swaps the parameters of {a} and {b}"
            change = load_from({a: b, b: a})
            yield parameter_fault(f"{a} and {b} exchanged", says, "swap them back", (a, b), change)


def _copied(shapes: dict[str, tuple[int, ...]]) -> Iterator[Fault]:
    for name, other in (
        ("attn_norm", "mlp_norm"),
        ("mlp_norm", "attn_norm"),
        ("attn.v", "attn.k"),
        ("attn.k", "attn.v"),
    ):
        if _same_shapes(shapes, name, other):
            yield parameter_fault(
                f"{other} in place of {name}",
                f"{{it}} uses the parameters of {other} for {name} too",
                f"load {name} from its own entry",
                (name,),
                load_from({name: other}),
                rank=2,
            )


def _without_biases(shapes: dict[str, tuple[int, ...]]) -> Iterator[Fault]:
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
        biased = [name for name in names if f"{name}.bias" in shapes]
        if biased and (len(names) == 1 or len(biased) > 1):
            yield parameter_fault(
                key,
                f"{{it}} leaves out the bias of {', '.join(biased)}",
                "add the bias",
                tuple(MATRICES[name] for name in biased),
                edit_parameters([f"{name}.bias" for name in biased], np.zeros_like),
                rank=2 if key == "all biases dropped" else 1,
            )


def _rounded() -> Iterator[Fault]:
    """Parameters of few digits."""
    everywhere = ("embed", *MATRICES.values(), "attn_norm", "mlp_norm", "final_norm", "logits")
    for dtype in ("bfloat16", "float16"):
        yield parameter_fault(
            f"weights in {dtype}",
            f"{{its}} weights were rounded to {dtype}",
            f"load them in float32, from a file that was not saved in {dtype}",
            everywhere,
            Change(parameters=partial(_round, dtype, blocks_only=False)),
            rank=2,
        )
        yield parameter_fault(
            f"blocks' matrices in {dtype}",
            f"{{its}} blocks' matrices were rounded to {dtype}",
            "keep them in float32",
            tuple(MATRICES.values()),
            Change(parameters=partial(_round, dtype, blocks_only=True)),
            rank=2,
        )
    yield parameter_fault(
        "weights in int8",
        "{its} matrices were rounded to 8 bits, row by row",
        "load the weights that were not quantised",
        ("embed", *MATRICES.values(), "logits"),
        Change(parameters=_to_int8),
        rank=2,
    )


def _round(dtype: str, name: str, x: np.ndarray, read: Read, *, blocks_only: bool) -> np.ndarray:
    if blocks_only and not (x.ndim == 2 and name.startswith("blocks.")):
        return x
    return round_to(np.asarray(x, np.float64), dtype)


def _to_int8(name: str, x: np.ndarray, read: Read) -> np.ndarray:
    if x.ndim < 2:
        return x
    wide = np.asarray(x, np.float64)
    step = np.max(np.abs(wide), axis=-1, keepdims=True) / 127.0
    y: np.ndarray = np.rint(wide / np.where(step > 0.0, step, 1.0)) * step
    return y
