"""Faults of what stands around the blocks: vocabulary, head, the order of layers, tokens in front."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from tinyxp.config import Config
from tinyxp.doctor.choices import F
from tinyxp.doctor.faults.matrices import MATRICES
from tinyxp.doctor.faults.record import Fault, changing
from tinyxp.doctor.traces import Batch
from tinyxp.doctor.variant import Variant


def tables(config: Config) -> Iterator[Fault]:
    for by in (1, -1):
        for names, words, shows in (
            (("embed.weight", "head.weight"), "vocabulary rows", ("embed", "logits")),
            (("embed.weight",), "embedding rows", ("embed",)),
            (("head.weight",), "head rows", ("logits",)),
        ):
            if config.tie_embeddings and len(names) == 1:
                continue

            def change(name: str, x: F, v: Variant, by: int = by, names: tuple[str, ...] = names) -> F:
                return np.roll(x, by, axis=0) if name in names else x

            source = "n - 1" if by > 0 else "n + 1"
            yield changing(
                f"{words} shifted by {by:+d}",
                f"{{its}} {words} are shifted by {by:+d}: token n has row {source}",
                "line the rows up with the tokenizer's ids",
                shows,
                change,
            )
        if config.tie_embeddings:
            yield Fault(
                f"embedding rows shifted by {by:+d}",
                f"{{it}} looks up row {'n - 1' if by > 0 else 'n + 1'} for token n; its head is right",
                "do not shift ids",
                ("embed",),
                partial(shifted_ids, by=by),
                likely=2,
            )
    if not config.tie_embeddings:

        def tied(name: str, x: F, v: Variant) -> F:
            return v.weights.read("embed.weight") if name == "head.weight" else x

        yield changing(
            "head tied",
            "{it} uses the embedding as its head; this model has a head of its own",
            "load the head's weight (tie_embeddings is false)",
            ("logits",),
            tied,
        )
    if config.position == "learned":
        for by in (1, -1, 2, -2):

            def rolled(name: str, x: F, v: Variant, by: int = by) -> F:
                return np.roll(x, by, axis=0) if name == "pos_embed.weight" else x

            yield changing(
                f"position rows shifted by {by:+d}",
                f"{{its}} position table is shifted by {by:+d} rows",
                "line it up: row p is of position p",
                ("embed",),
                rolled,
                likely=3,
            )


def shifted_ids(v: Variant, by: int) -> Variant:
    """Only the look-up is shifted."""
    n = v.weights.config.vocab_size
    return replace(v, batch=Batch((v.batch.ids - by) % n, v.batch.mask))


def lengths(config: Config) -> Iterator[Fault]:
    """Layers that are missing, there twice, or in each other's place."""
    n = config.n_layers
    layers = tuple(range(n))

    def having(key: str, says: str, fix: str, order: tuple[int, ...]) -> Fault:
        shows = ("attn_norm", "final_norm", *MATRICES.values())
        return Fault(key, says, fix, shows, lambda v: replace(v, layers=order), sets=frozenset({"layers"}))

    for i in layers:
        if n > 1:
            yield having(
                f"layer {i} dropped",
                f"{{it}} lacks layer {i}",
                f"run all {n} layers",
                (*layers[:i], *layers[i + 1 :]),
            )
        yield having(
            f"layer {i} doubled",
            f"{{it}} runs layer {i} twice",
            f"run each of the {n} layers once",
            (*layers[: i + 1], *layers[i:]),
        )
        if i + 1 < n:
            yield having(
                f"layers {i} and {i + 1} exchanged",
                f"{{it}} has layers {i} and {i + 1} in the wrong order",
                "number the layers as the checkpoint does",
                (*layers[:i], i + 1, i, *layers[i + 2 :]),
            )
            for a, b in ((i, i + 1), (i + 1, i)):
                yield having(
                    f"layer {a} in place of layer {b}",
                    f"{{it}} has the weights of layer {a} in layer {b} too",
                    f"load layer {b}'s own",
                    tuple(a if j == b else j for j in layers),
                )


def extra_tokens(config: Config) -> Iterator[Fault]:
    """A token that the side puts in front, and the column of logits that it leaves out then."""
    for token in likely_front(config):

        def plant(v: Variant, kept: tuple[int | None, int | None], token: int = token) -> Variant:
            return replace(v, batch=with_front(v.batch, token), kept=kept)

        for kept, which in (((1, None), "first"), ((None, -1), "last")):
            yield Fault(
                f"extra token {token} in front, {which} answer left out",
                f"{{it}} puts token {token} in front of the ids (a BOS?) and leaves out the {which} answer",
                "put a BOS in front once, or not at all, on both sides",
                ("logits",),
                lambda v, kept=kept, plant=plant: plant(v, kept),  # type: ignore[misc]
                sets=frozenset({"ids"}),
            )


def likely_front(config: Config) -> list[int]:
    """Tokens that may be a BOS: all of a small vocabulary, else its first and last ones."""
    n = config.vocab_size
    return list(range(n)) if n <= 64 else [0, 1, 2, 3, n - 2, n - 1]


def with_front(batch: Batch, token: int) -> Batch:
    """The batch with one more token before each row."""
    front = np.full((len(batch.ids), 1), token, np.int64)
    mask = None if batch.mask is None else np.concatenate([np.ones_like(front, bool), batch.mask], axis=1)
    return Batch(np.concatenate([front, batch.ids], axis=1), mask)
