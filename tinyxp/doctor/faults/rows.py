"""Faults of the rows of q, k and v: permuted, or split wrongly from a fused matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from tinyxp.config import Config
from tinyxp.doctor.faults.change import Change, Read, load_from, name_in_block
from tinyxp.doctor.faults.fault import Fault, Row
from tinyxp.doctor.faults.matrices import parameter_fault

RowEdit = Callable[[np.ndarray, int], np.ndarray]
"""Rows and the number of heads -> the rows in another order."""


def row_faults(config: Config) -> Iterator[Row]:
    if config.position == "rope":
        yield from _permuted(config)
        yield from _permuted_by_other_heads(config)
        yield from _halves_swapped(config)
    if config.n_heads == config.n_kv_heads and config.attn_bias:
        yield from _split_from_fused(config)


def interleave(x: np.ndarray, heads: int) -> np.ndarray:
    """Each head's rows in the order 0, hd/2, 1, hd/2 + 1, ...: as GGUF files of Llama store them."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def deinterleave(x: np.ndarray, heads: int) -> np.ndarray:
    """The inverse of ``interleave``."""
    return x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def swap_halves(x: np.ndarray, heads: int) -> np.ndarray:
    """Each head's second half of rows before its first."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:])[:, ::-1].reshape(x.shape)


def _edit_rows(config: Config, letters: str, edit: RowEdit, end: str = "") -> Change:
    """The change of the rows of q and k, as ``letters`` say, by their own number of heads."""
    heads = {"q": config.n_heads, "k": config.n_kv_heads}

    def change(name: str, x: np.ndarray, read: Read) -> np.ndarray:
        stem, _, kind = name_in_block(name).rpartition(".")
        letter = stem.removeprefix("attn.")
        is_chosen = stem.startswith("attn.") and letter in tuple(letters) and kind.endswith(end)
        return edit(x, heads[letter]) if is_chosen else x

    return Change(parameters=change)


def _words(letters: str) -> str:
    return " and ".join(letters)


def _points(letters: str) -> tuple[str, ...]:
    return tuple(f"attn.{letter}" for letter in letters)


def _permuted(config: Config) -> Iterator[Fault]:
    heads = {"q": config.n_heads, "k": config.n_kv_heads}
    for letters in ("qk", "q", "k"):
        for end in ("", "weight", "bias") if config.attn_bias else ("",):
            words = _words(letters) + (f" {end}" if end else "")
            have = "have" if letters == "qk" else "has"
            counts = ", ".join(f"{letter} with {heads[letter]} heads" for letter in letters)
            rank = 2 if end else 1
            yield parameter_fault(
                f"{words} rows interleaved",
                f"{{its}} {words} {have} rows in GGUF order, in neighbouring pairs (0, hd/2, 1, hd/2+1, ...)",
                f"un-permute them, {counts}",
                _points(letters),
                _edit_rows(config, letters, interleave, end),
                rank=rank,
            )
            yield parameter_fault(
                f"{words} rows un-permuted twice",
                f"{{its}} {words} rows were un-permuted, but they were in halves already",
                f"do not un-permute the rows, or permute them back, {counts}",
                _points(letters),
                _edit_rows(config, letters, deinterleave, end),
                rank=rank,
            )


def _permuted_by_other_heads(config: Config) -> Iterator[Fault]:
    """k permuted with q's number of heads, and the other way round."""
    h, g, width = config.n_heads, config.n_kv_heads, config.head_dim
    if h == g or g * width % (2 * h):
        return
    edits: dict[str, RowEdit] = {
        "un-permuted from pairs": lambda x, heads: deinterleave(interleave(x, g), h),
        "permuted": lambda x, heads: interleave(x, h),
        "un-permuted": lambda x, heads: deinterleave(x, h),
    }
    for word, edit in edits.items():
        yield parameter_fault(
            f"k {word} with {h} heads",
            f"{{its}} k rows were {word} with n_heads, {h}; k has n_kv_heads, {g}",
            f"permute k with {g} heads, and only if its file stores pairs",
            ("attn.k",),
            _edit_rows(config, "k", edit),
        )
    if h * width % (2 * g) == 0:
        yield parameter_fault(
            f"q un-permuted with {g} heads",
            f"{{its}} q rows were un-permuted with n_kv_heads, {g}; q has n_heads, {h}",
            f"un-permute q with {h} heads",
            ("attn.q",),
            _edit_rows(config, "q", lambda x, heads: deinterleave(interleave(x, h), g)),
        )


def _halves_swapped(config: Config) -> Iterator[Fault]:
    for letters in ("qk", "q", "k"):
        yield parameter_fault(
            f"{_words(letters)} halves swapped",
            f"{{its}} {_words(letters)} rows have the halves of each head swapped",
            "swap them back",
            _points(letters),
            _edit_rows(config, letters, swap_halves),
            rank=3,
        )


def _split_from_fused(config: Config) -> Iterator[Fault]:
    """GPT-2's fused matrix of q, k and v, split wrongly."""
    yield parameter_fault(
        "qkv cut head by head",
        "{it} splits the fused qkv matrix head by head; it holds all of q, then all of k, then all of v",
        "split it into q, k and v before splitting heads",
        ("attn.q", "attn.k", "attn.v"),
        Change(parameters=partial(_split_by_head, config.n_heads)),
    )
    for order in ("kvq", "vqk", "vkq", "qvk", "kqv"):
        moved = {f"attn.{'qkv'[i]}": f"attn.{'qkv'[order.index(x)]}" for i, x in enumerate("qkv")}
        yield parameter_fault(
            f"qkv cut as {order}",
            f"{{it}} splits the fused qkv matrix into {', '.join(order)}; it holds q, k, v",
            "split it into q, k, v in this order",
            tuple(f"attn.{x}" for x, y in zip("qkv", order, strict=True) if x != y),
            load_from(moved),
            rank=2,
        )


def _split_by_head(heads: int, name: str, x: np.ndarray, read: Read) -> np.ndarray:
    stem, _, end = name.rpartition(".")
    before, _, letter = stem.rpartition("attn.")
    if letter not in ("q", "k", "v"):
        return x
    fused = np.concatenate([read(f"{before}attn.{one}.{end}") for one in "qkv"])
    parts = fused.reshape(heads, 3, x.shape[0] // heads, *fused.shape[1:])
    return parts[:, "qkv".index(letter)].reshape(x.shape)
