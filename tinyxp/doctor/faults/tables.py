"""Faults around the blocks: embedding, head, the order of layers, tokens in front."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tinyxp.config import Config
from tinyxp.doctor.faults.change import Change, edit_parameters, load_from
from tinyxp.doctor.faults.fault import Fault, Row, Scope
from tinyxp.doctor.faults.matrices import MATRICES, parameter_fault
from tinyxp.doctor.traces import Batch


def table_faults(config: Config) -> Iterator[Row]:
    """Rows of the embedding, of the head and of the positions that are shifted; a head that is tied."""
    tied = config.tie_embeddings
    for by in (1, -1):
        for names, words, points in (
            (("embed.weight", "head.weight"), "vocabulary rows", ("embed", "logits")),
            (("embed.weight",), "embedding rows", ("embed",)),
            (("head.weight",), "head rows", ("logits",)),
        ):
            yield parameter_fault(
                f"{words} shifted by {by:+d}",
                f"{{its}} {words} are shifted by {by:+d}: token n has row {'n - 1' if by > 0 else 'n + 1'}",
                "align the rows with the tokenizer's ids",
                points,
                edit_parameters(names, partial(np.roll, shift=by, axis=0)),
                rank=2 if tied and len(names) == 1 else 1,
            )
    if not tied:
        yield parameter_fault(
            "head tied",
            "{it} uses the embedding as its head; this model has a separate head",
            "load the head's weight (tie_embeddings is false)",
            ("logits",),
            load_from({"head": "embed"}),
        )
    if config.position == "learned":
        for by in (1, -1, 2, -2):
            yield parameter_fault(
                f"position rows shifted by {by:+d}",
                f"{{its}} position table is shifted by {by:+d} rows",
                "use row p for position p",
                ("embed",),
                edit_parameters(["pos_embed.weight"], partial(np.roll, shift=by, axis=0)),
                rank=3,
            )


def layer_fault(key: str, says: str, fix: str, order: tuple[int, ...]) -> Fault:
    """The fault of blocks that load these layers, in this order."""
    points = ("attn_norm", "final_norm", *MATRICES.values())
    return Fault(key, says, fix, points, Change(layers=order), "layers", scope=Scope.MODEL)


def layer_faults(config: Config) -> Iterator[Row]:
    """Layers that are missing, run twice, or swapped."""
    n = config.n_layers
    layers = tuple(range(n))
    for i in layers:
        if n > 1:
            without = (*layers[:i], *layers[i + 1 :])
            yield layer_fault(f"layer {i} dropped", f"{{it}} lacks layer {i}", f"run all {n} layers", without)
        yield layer_fault(
            f"layer {i} doubled",
            f"{{it}} runs layer {i} twice",
            f"run each of the {n} layers once",
            (*layers[: i + 1], *layers[i:]),
        )
        if i + 1 == n:
            continue
        yield layer_fault(
            f"layers {i} and {i + 1} exchanged",
            f"{{it}} runs layers {i} and {i + 1} in the wrong order",
            "number the layers as the checkpoint does",
            (*layers[:i], i + 1, i, *layers[i + 2 :]),
        )
        for a, b in ((i, i + 1), (i + 1, i)):
            yield layer_fault(
                f"layer {a} in place of layer {b}",
                f"{{it}} loads the weights of layer {a} into layer {b} too",
                f"load layer {b} from its own entries",
                tuple(a if j == b else j for j in layers),
            )


def extra_token_faults(config: Config) -> Iterator[Row]:
    """A token put in front, and the column of logits that is then left out."""
    for token in likely_front_tokens(config):
        for answered, which in ((slice(1, None), "first"), (slice(None, -1), "last")):
            yield Fault(
                f"extra token {token} in front, {which} answer left out",
                f"{{it}} puts token {token} in front of the ids (a BOS?) and drops the {which} logits",
                "put a BOS in front once, or not at all, on both sides",
                ("logits",),
                Change(inputs=partial(put_in_front, token=token), answered=answered),
                "ids",
                scope=Scope.MODEL,
            )


def likely_front_tokens(config: Config) -> list[int]:
    """Tokens that may be a BOS: all of a small vocabulary, else its first and last ones."""
    n = config.vocab_size
    return list(range(n)) if n <= 64 else [0, 1, 2, 3, n - 2, n - 1]


def put_in_front(batch: Batch, token: int) -> Batch:
    """The batch with one more token before each row."""
    front = np.full((len(batch.ids), 1), token, np.int64)
    mask = None if batch.mask is None else np.concatenate([np.ones_like(front, bool), batch.mask], axis=1)
    return Batch(np.concatenate([front, batch.ids], axis=1), mask)
