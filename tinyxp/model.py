"""The decoder: both families from one block, in the array API standard alone.

b batch, t query positions, s key positions, d model width, h query heads, g key/value heads, hd head size,
f MLP width, n vocabulary. Weights are (out, in).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from tinyxp.cache import Cache, Layout, lay_out
from tinyxp.checks import as_flag
from tinyxp.config import Config
from tinyxp.inputs import Inputs, as_kernels, as_tap, prepare, targets_like
from tinyxp.ops import Kernels, untapped
from tinyxp.params import Params
from tinyxp.typing import Array, Namespace, Tap


class Context(NamedTuple):
    """What all blocks of one pass share."""

    config: Config
    kernels: Kernels
    layout: Layout
    rotation: tuple[Array, Array] | None  # cos and sin (b or 1, 1, t, hd/2); None where positions are learned
    xp: Namespace


Weights = Mapping[str, Array]
LayerCache = tuple[Array, Array]


def linear(w: Weights, name: str, x: Array, ctx: Context) -> Array:
    """``ops.linear`` with the weight, and the bias if there is one, of that name. (b, t, i) -> (b, t, o)."""
    return ctx.kernels.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"), xp=ctx.xp)


def linears(w: Weights, widths: dict[str, int], x: Array, ctx: Context) -> list[Array]:
    """``linear`` for each name: in one product where their weights stand joined in ``w`` (see ``fusion``).

    (b, t, i) -> (b, t, o) of each, o its width.
    """
    joint = "+".join(widths)
    if f"{joint}.weight" not in w:
        return [linear(w, name, x, ctx) for name in widths]
    y, start, parts = linear(w, joint, x, ctx), 0, []
    for width in widths.values():
        parts.append(y[..., start : start + width])
        start += width
    return parts


def rms(w: Weights, name: str, x: Array, ctx: Context) -> Array:
    """``ops.rms_norm`` with the weight of that name. (b, t, d) -> (b, t, d)."""
    return ctx.kernels.rms_norm(x, w[f"{name}.weight"], ctx.config.norm_eps, xp=ctx.xp)


def layer(w: Weights, name: str, x: Array, ctx: Context) -> Array:
    """``ops.layer_norm`` with the weight and bias of that name. (b, t, d) -> (b, t, d)."""
    return ctx.kernels.layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"], ctx.config.norm_eps, xp=ctx.xp)


NORMS = {"rms": rms, "layer": layer}


def swiglu(w: Weights, x: Array, ctx: Context, tap: Tap) -> Array:
    """silu(W_gate x) * W_up x. x (b, t, d) -> (b, t, f) (Shazeer, 2020)."""
    gate, up = linears(w, dict.fromkeys(("mlp.gate", "mlp.up"), ctx.config.d_ff), x, ctx)
    gate, up = tap("mlp.gate", gate), tap("mlp.up", up)
    return ctx.kernels.silu(gate, xp=ctx.xp) * up


def ungated(activation: str, w: Weights, x: Array, ctx: Context, tap: Tap) -> Array:
    """gelu(W_up x), in the form that ``activation`` names. x (b, t, d) -> (b, t, f)."""
    up = tap("mlp.up", linear(w, "mlp.up", x, ctx))
    return getattr(ctx.kernels, activation)(up, xp=ctx.xp)  # type: ignore[no-any-return]


MLPS: dict[str, Callable[[Weights, Array, Context, Tap], Array]] = {
    "swiglu": swiglu,
    "gelu_tanh": partial(ungated, "gelu_tanh"),
    "gelu": partial(ungated, "gelu"),
}


def block(
    w: Weights, x: Array, cache: LayerCache | None, ctx: Context, tap: Tap
) -> tuple[Array, LayerCache | None]:
    """x + attn(norm(x)), then x + mlp(norm(x)). x (b, t, d) -> (b, t, d), and the cache with t more columns.

    ``w`` holds one block's weights under their names within it.
    """
    config, xp = ctx.config, ctx.xp
    norm, mlp = NORMS[config.norm], MLPS[config.mlp]

    a = tap("attn_norm", norm(w, "attn_norm", x, ctx))
    q_width, kv_width = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
    q, k, v = linears(w, {"attn.q": q_width, "attn.k": kv_width, "attn.v": kv_width}, a, ctx)
    q = split_heads(tap("attn.q", q), config.n_heads, xp=xp)  # (b, h, t, hd)
    k = split_heads(tap("attn.k", k), config.n_kv_heads, xp=xp)  # (b, g, t, hd)
    v = split_heads(tap("attn.v", v), config.n_kv_heads, xp=xp)
    if ctx.rotation is not None:
        q = tap("attn.q_rotated", ctx.kernels.rotary(q, *ctx.rotation, xp=xp))
        k = tap("attn.k_rotated", ctx.kernels.rotary(k, *ctx.rotation, xp=xp))
    if cache is not None:
        k = ctx.kernels.write_cache(cache[0], k, ctx.layout.start, ctx.layout.slots, xp=xp)
        v = ctx.kernels.write_cache(cache[1], v, ctx.layout.start, ctx.layout.slots, xp=xp)
        cache = (k, v)
    heads = ctx.kernels.attention(q, k, v, ctx.layout.visible, xp=xp, tap=within(tap, "attn"))
    heads = tap("attn.heads", join_heads(heads, xp=xp))  # (b, t, h*hd)
    x = tap("attn_residual", x + tap("attn.out", linear(w, "attn.o", heads, ctx)))

    m = tap("mlp_norm", norm(w, "mlp_norm", x, ctx))
    hidden = tap("mlp.hidden", mlp(w, m, ctx, tap))  # (b, t, f)
    x = tap("residual", x + tap("mlp.out", linear(w, "mlp.down", hidden, ctx)))
    return x, cache


def split_heads(x: Array, heads: int, *, xp: Namespace) -> Array:
    """(b, t, heads*hd) -> (b, heads, t, hd)."""
    b, t, width = x.shape
    y: Array = xp.permute_dims(xp.reshape(x, (b, t, heads, width // heads)), (0, 2, 1, 3))
    return y


def join_heads(x: Array, *, xp: Namespace) -> Array:
    """(b, h, t, hd) -> (b, t, h*hd)."""
    b, h, t, hd = x.shape
    y: Array = xp.reshape(xp.permute_dims(x, (0, 2, 1, 3)), (b, t, h * hd))
    return y


def within(tap: Tap, prefix: str) -> Tap:
    """The tap that puts ``prefix`` before every name."""
    if tap is untapped:
        return tap
    return lambda name, x: tap(f"{prefix}.{name}", x)


def embed(params: Params, ids: Array, ctx: Context) -> Array:
    """E[ids], plus P[positions] where positions are learned. ids (b, t) -> (b, t, d)."""
    x = look_up(params["embed.weight"], ids, xp=ctx.xp)
    if ctx.config.position == "learned":
        x = x + look_up(params["pos_embed.weight"], ctx.layout.positions, xp=ctx.xp)
    return x


def look_up(table: Array, index: Array, *, xp: Namespace) -> Array:
    """table (m, d), index (b, t) -> (b, t, d)."""
    rows = xp.take(table, xp.reshape(index, (-1,)), axis=0)
    y: Array = xp.reshape(rows, (*index.shape, table.shape[1]))
    return y


def last_real(x: Array, mask: Array | None, *, xp: Namespace, device: Any) -> Array:
    """Each row's last real column. x (b, t, d), mask (b, t) -> (b, 1, d)."""
    if mask is None:
        return x[:, x.shape[1] - 1 :, :]
    last = xp.max(xp.where(mask, xp.arange(x.shape[1], device=device), 0), axis=-1)  # (b,)
    return xp.take_along_axis(x, last[:, None, None], axis=1)  # type: ignore[no-any-return]


def rotation(
    config: Config, positions: Array, dtype: Any, *, xp: Namespace, device: Any
) -> tuple[Array, Array] | None:
    """cos and sin of position times frequency; None where positions are learned.

    positions (b or 1, t) -> two of (b or 1, 1, t, hd/2), in float32 or in ``dtype`` where that is wider: in
    bfloat16 neighbouring positions would coincide.
    """
    if config.position != "rope":
        return None
    precision = xp.result_type(dtype, xp.float32)
    frequencies = xp.asarray(rope_frequencies(config), dtype=precision, device=device)
    angles = xp.astype(positions, precision)[:, None, :, None] * frequencies
    return xp.cos(angles), xp.sin(angles)


def rope_frequencies(config: Config) -> list[float]:
    """theta^(-2i/hd) for i < hd/2, in radians per position, stretched as config.rope_scaling says."""
    scaling = config.rope_scaling
    frequencies = [config.rope_theta ** (-2.0 * i / config.head_dim) for i in range(config.head_dim // 2)]
    if scaling is None:
        return frequencies
    if scaling.rope_type == "linear":
        return [frequency / scaling.factor for frequency in frequencies]

    def stretched(frequency: float) -> float:
        turns = scaling.original_max_seq_len * frequency / (2.0 * math.pi)  # in the first training's context
        keep = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        keep = min(max(keep, 0.0), 1.0)
        return keep * frequency + (1.0 - keep) * frequency / scaling.factor

    return [stretched(frequency) for frequency in frequencies]


def blocks(
    params: Params, x: Array, cache: Cache | None, ctx: Context, tap: Tap
) -> tuple[Array, tuple[Array, ...], tuple[Array, ...]]:
    """x through all blocks, one after another. (b, t, d) -> (b, t, d), and each block's keys and values."""
    layers: list[Any] = [None] * ctx.config.n_layers
    for i in range(ctx.config.n_layers):
        before = None if cache is None else (cache.keys[i], cache.values[i])
        x, layers[i] = block(params.block(i), x, before, ctx, within(tap, f"blocks.{i}"))
    keys, values = ((), ()) if cache is None else zip(*layers, strict=True)
    return x, keys, values


def hidden(
    inputs: Inputs,
    cache: Cache | None,
    kernels: Any,
    tap: Tap,
    *,
    last: bool = False,
    through: Callable[..., Any] = blocks,
) -> tuple[Array, Context, Cache | None]:
    """One pass over checked inputs, after what ``cache`` holds, up to the head: the last norm's output
    (b, t, d), what all blocks shared, and the cache after it.

    ``through`` takes the activations through the blocks; a compiler may have a loop of its own.
    """
    params, ids = inputs.params, inputs.ids
    config, xp, device = params.config, params.xp, params.device
    layout = lay_out(inputs, cache)
    angles = rotation(config, layout.positions, params.dtype, xp=xp, device=device)
    ctx = Context(config, as_kernels(kernels), layout, angles, xp)

    x = tap("embed", embed(params, ids, ctx))  # (b, t, d)
    x, keys, values = through(params, x, cache, ctx, tap)
    if last:
        x = last_real(x, inputs.mask, xp=xp, device=device)
    x = tap("final_norm", NORMS[config.norm](params, "final_norm", x, ctx))
    return x, ctx, None if layout.cache is None else layout.cache._replace(keys=keys, values=values)


def head(params: Params) -> Array:
    """The matrix (n, d) that makes logits: the embedding where it is tied."""
    return params["embed.weight" if params.config.tie_embeddings else "head.weight"]


def run(
    inputs: Inputs,
    cache: Cache | None,
    kernels: Any,
    tap: Tap,
    *,
    last: bool = False,
    through: Callable[..., Any] = blocks,
) -> tuple[Array, Cache | None]:
    """``hidden``, and the head: logits (b, t, n) and the cache after it."""
    x, ctx, cache = hidden(inputs, cache, kernels, tap, last=last, through=through)
    logits = tap("logits", ctx.kernels.linear(x, head(inputs.params), None, xp=ctx.xp))  # (b, t, n)
    return logits, cache


def forward(
    params: Params,
    ids: Any,
    *,
    xp: Namespace | None = None,
    positions: Any = None,
    mask: Any = None,
    kernels: Any = None,
    tap: Tap | None = None,
) -> Array:
    """logits[b, t] = the model's scores for the token after ids[b, :t+1].

    Shapes: ids (b, t) integers (lists, NumPy or the library's own) -> logits (b, t, n) in the parameters'
    dtype. ``mask`` (b, t) is True on real tokens, so padding may stand on either side; ``positions`` (b, t)
    default to counting each row's real tokens from 0. ``xp`` converts the parameters where it is not theirs
    (``params.to(xp)`` once is the fast way). ``kernels`` maps names in ``tinyxp.ops`` to functions of the
    same signature. ``tap(name, x) -> x`` sees, and may replace, every value on the way.

    Raises ValueError naming the value and its limit for ids outside the vocabulary, wrong shapes and dtypes,
    and learned positions of max_seq_len or more, wherever values can be read: not under jit, nor on torch's
    meta device. Rotary positions may exceed max_seq_len.
    """
    inputs = prepare(params, ids, positions, mask, xp)
    logits, _ = run(inputs, None, kernels, as_tap(tap))
    return logits


def loss(
    params: Params,
    ids: Any,
    targets: Any,
    *,
    xp: Namespace | None = None,
    positions: Any = None,
    mask: Any = None,
    kernels: Any = None,
    tap: Tap | None = None,
) -> Array:
    """Mean over the targets that are not -100 of -log softmax(logits)[target], in nats.

    ids and targets (b, t) integers -> () in float32 at least. Nothing is shifted: targets[:, i] is what
    ids[:, i] should predict. Without a single target the loss is 0. ``tap`` as for ``forward``, but for the
    logits, which need not be there all at once. Errors as for ``forward``.
    """
    inputs = prepare(params, ids, positions, mask, xp)
    wanted = targets_like(targets, tuple(inputs.ids.shape), inputs)
    x, ctx, _ = hidden(inputs, None, kernels, as_tap(tap))
    loss: Array = ctx.kernels.linear_cross_entropy(
        x, head(inputs.params), wanted, xp=ctx.xp, linear=ctx.kernels.linear
    )
    return loss


def extend(
    params: Params,
    ids: Any,
    cache: Cache,
    *,
    mask: Any = None,
    positions: Any = None,
    kernels: Any = None,
    last: bool = False,
    xp: Namespace | None = None,
) -> tuple[Array, Cache]:
    """logits for t more columns after those in ``cache``, and the cache with them: prefill, chunk or step.

    Shapes: ids (b, t), mask (b, t) of the new columns -> logits (b, t, n), or (b, 1, n) of each row's last
    real column where ``last``, which costs the head for one column only. The given cache stays good, unless
    ``kernels`` has a write_cache in place. Errors as for ``forward``, and ValueError where the cache has no
    room for t columns, or is of other rows or another model. Under jit nothing is known of how full it is:
    columns beyond its length are dropped.
    """
    if not isinstance(cache, Cache):
        raise ValueError(f"cache is a {type(cache).__name__}; it must come from tinyxp.new_cache")
    last = as_flag("last", last)
    inputs = prepare(params, ids, positions, mask, xp)
    logits, extended = run(inputs, cache, kernels, untapped, last=last)
    assert extended is not None
    return logits, extended
