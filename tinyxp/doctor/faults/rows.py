"""Faults of the rows of q and k: permuted, fused and cut wrongly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from tinyxp.config import Config
from tinyxp.doctor.choices import F
from tinyxp.doctor.faults.record import Fault, changing, within
from tinyxp.doctor.variant import Variant


def interleaved(x: F, heads: int) -> F:
    """Each head's rows in the order 0, hd/2, 1, hd/2 + 1, ...: as GGUF files of Llama store them."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def halved(x: F, heads: int) -> F:
    """The inverse of ``interleaved``."""
    return x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def permutations(config: Config) -> Iterator[Fault]:
    if config.position != "rope":
        return
    count = {"q": config.n_heads, "k": config.n_kv_heads}
    parts = ("weight", "bias") if config.attn_bias else ("weight",)
    for names, end in itertools.product(("qk", "q", "k"), ("", *parts) if len(parts) > 1 else ("",)):

        def rows(
            how: Callable[[F, int], F], names: str = names, end: str = end
        ) -> Callable[[str, F, Variant], F]:
            def change(full: str, x: F, v: Variant) -> F:
                which = within(full).removeprefix("attn.").partition(".")[0]
                chosen = len(which) == 1 and which in names and full.endswith(end)
                return how(x, count[which]) if chosen else x

            return change

        words = ("q and k" if names == "qk" else names) + (f" {end}" if end else "")
        heads = ", ".join(f"{name} with {count[name]} heads" for name in names)
        shows = tuple(f"attn.{name}" for name in names)
        have = "have" if names == "qk" else "has"
        likely = 2 if end else 1
        yield changing(
            f"{words} rows interleaved",
            f"{{its}} {words} {have} rows in GGUF order, in neighbouring pairs (0, hd/2, 1, hd/2 + 1, ...)",
            f"un-permute them, {heads}",
            shows,
            rows(interleaved),
            likely,
        )
        yield changing(
            f"{words} rows un-permuted twice",
            f"{{its}} {words} rows were un-permuted though they stood in halves already",
            f"leave the rows as they are, or permute them back, {heads}",
            shows,
            rows(halved),
            likely,
        )
    h, g, width = config.n_heads, config.n_kv_heads, config.head_dim
    if h != g and g * width % (2 * h) == 0:
        ways = {
            "un-permuted from pairs": lambda x: halved(interleaved(x, g), h),
            "permuted": lambda x: interleaved(x, h),
            "un-permuted": lambda x: halved(x, h),
        }
        for key, change in ways.items():

            def wrong(name: str, x: F, v: Variant, change: Callable[[F], F] = change) -> F:
                return change(x) if within(name).startswith("attn.k.") else x

            yield changing(
                f"k {key} with {h} heads",
                f"{{its}} k rows were {key} with n_heads, {h}; k has n_kv_heads, {g}",
                f"permute k with {g} heads, and only if its file stores pairs",
                ("attn.k",),
                wrong,
            )
        if h * width % (2 * g) == 0:

            def wrong_q(name: str, x: F, v: Variant) -> F:
                return halved(interleaved(x, h), g) if within(name).startswith("attn.q.") else x

            yield changing(
                f"q un-permuted with {g} heads",
                f"{{its}} q rows were un-permuted with n_kv_heads, {g}; q has n_heads, {h}",
                f"un-permute q with {h} heads",
                ("attn.q",),
                wrong_q,
            )
    for names in ("qk", "q", "k"):

        def flipped(name: str, x: F, v: Variant, names: str = names) -> F:
            which = within(name).removeprefix("attn.").partition(".")[0]
            if len(which) != 1 or which not in names:
                return x
            return x.reshape(count[which], 2, width // 2, *x.shape[1:])[:, ::-1].reshape(x.shape)

        words = "q and k" if names == "qk" else names
        yield changing(
            f"{words} halves swapped",
            f"{{its}} {words} rows have the halves of each head swapped",
            "swap them back",
            tuple(f"attn.{n}" for n in names),
            flipped,
            likely=3,
        )


def fused(config: Config) -> Iterator[Fault]:
    """GPT-2's joint matrix of q, k and v, cut the wrong way."""
    if config.n_heads != config.n_kv_heads or not config.attn_bias:
        return
    h, hd = config.n_heads, config.head_dim

    def joint(name: str, v: Variant) -> F:
        stem = name[: name.rindex("attn.")] + "attn."
        end = name.rpartition(".")[2]
        return np.concatenate([v.weights.read(f"{stem}{part}.{end}") for part in "qkv"])

    def per_head(name: str, x: F, v: Variant) -> F:
        which = within(name).removeprefix("attn.").partition(".")[0]
        if which not in ("q", "k", "v"):
            return x
        whole = joint(name, v)
        return whole.reshape(h, 3, hd, *whole.shape[1:])[:, "qkv".index(which)].reshape(x.shape)

    shows = ("attn.q", "attn.k", "attn.v")
    yield changing(
        "qkv cut head by head",
        "{it} cuts the joint q, k, v matrix head by head; it holds all of q, then all of k, then all of v",
        "split it in three before splitting heads",
        shows,
        per_head,
    )
    for order in ("kvq", "vqk", "vkq", "qvk", "kqv"):

        def other(name: str, x: F, v: Variant, order: str = order) -> F:
            which = within(name).removeprefix("attn.").partition(".")[0]
            if which not in ("q", "k", "v"):
                return x
            return v.weights.read(name.replace(f".attn.{which}.", f".attn.{'qkv'[order.index(which)]}."))

        moved = tuple(f"attn.{x}" for x, y in zip("qkv", order, strict=True) if x != y)
        yield changing(
            f"qkv cut as {order}",
            f"{{it}} takes the joint matrix for {', '.join(order)}; it holds q, k, v",
            "split it into q, k, v in this order",
            moved,
            other,
            likely=2,
        )
