"""The decoder: every family from one block, in the array API standard alone.

b batch, t query positions, s key positions, d model width, h query heads, g key/value heads, hd head size,
f MLP width, n vocabulary. Weights are (out, in).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tinyxp.cache import Cache, Placement, place
from tinyxp.checks import as_flag
from tinyxp.config import MLPS, NORMS, Config
from tinyxp.inputs import Inputs, as_kernels, as_tap, as_targets, check_inputs
from tinyxp.ops import Kernels, untapped
from tinyxp.params import Params
from tinyxp.rope import rotation
from tinyxp.typing import Array, Namespace, Tap

Weights = Mapping[str, Array]
LayerCache = tuple[Array, Array]


class Context(NamedTuple):
    """What all blocks of one pass share."""

    config: Config
    kernels: Kernels
    placement: Placement
    rotation: tuple[Array, Array] | None  # cos and sin (b or 1, 1, t, hd/2); None if positions are learned
    xp: Namespace


def linear(w: Weights, name: str, x: Array, ctx: Context) -> Array:
    """``ops.linear`` with the weight, and the bias if there is one, of that name. (b, t, i) -> (b, t, o)."""
    return ctx.kernels.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"), xp=ctx.xp)


def project(w: Weights, names: tuple[str, ...], x: Array, ctx: Context) -> list[Array]:
    """``ops.project`` of one input by several linear maps. (b, t, i) -> (b, t, o) for each name."""
    return ctx.kernels.project(x, w, names, xp=ctx.xp, linear=ctx.kernels.linear)


def normalize(w: Weights, name: str, x: Array, ctx: Context) -> Array:
    """The config's norm with the parameters of that name. (b, t, d) -> (b, t, d)."""
    norm = NORMS[ctx.config.norm]
    parts = (w[f"{name}.{part}"] for part in norm.parts)
    y: Array = getattr(ctx.kernels, norm.kernel)(x, *parts, ctx.config.norm_eps, xp=ctx.xp)
    return y


def attend(
    w: Weights, x: Array, cache: LayerCache | None, ctx: Context, tap: Tap
) -> tuple[Array, LayerCache | None]:
    """The heads' outputs side by side, before W_o. x (b, t, d) -> (b, t, h*hd), and the cache after."""
    config, xp, placement = ctx.config, ctx.xp, ctx.placement
    q, k, v = project(w, ("attn.q", "attn.k", "attn.v"), x, ctx)
    q = split_heads(tap("attn.q", q), config.n_heads, xp=xp)  # (b, h, t, hd)
    k = split_heads(tap("attn.k", k), config.n_kv_heads, xp=xp)  # (b, g, t, hd)
    v = split_heads(tap("attn.v", v), config.n_kv_heads, xp=xp)
    if ctx.rotation is not None:
        q = tap("attn.q_rotated", ctx.kernels.rotary(q, *ctx.rotation, xp=xp))
        k = tap("attn.k_rotated", ctx.kernels.rotary(k, *ctx.rotation, xp=xp))
    if cache is not None:
        k = ctx.kernels.write_cache(cache[0], k, placement.start, placement.slots, xp=xp)
        v = ctx.kernels.write_cache(cache[1], v, placement.start, placement.slots, xp=xp)
        cache = (k, v)
    heads = ctx.kernels.attention(q, k, v, placement.visible, xp=xp, tap=prefix(tap, "attn"))
    return tap("attn.heads", join_heads(heads, xp=xp)), cache


def expand(w: Weights, x: Array, ctx: Context, tap: Tap) -> Array:
    """act(W_up x) or, gated, act(W_gate x) * W_up x (Shazeer, 2020). x (b, t, d) -> (b, t, f)."""
    activation, gated = MLPS[ctx.config.mlp]
    act = getattr(ctx.kernels, activation)
    if not gated:
        return tap("mlp.hidden", act(tap("mlp.up", linear(w, "mlp.up", x, ctx)), xp=ctx.xp))
    gate, up = project(w, ("mlp.gate", "mlp.up"), x, ctx)
    gate, up = tap("mlp.gate", gate), tap("mlp.up", up)
    return tap("mlp.hidden", act(gate, xp=ctx.xp) * up)


def block(
    w: Weights, x: Array, cache: LayerCache | None, ctx: Context, tap: Tap
) -> tuple[Array, LayerCache | None]:
    """x + attn(norm(x)), then x + mlp(norm(x)). x (b, t, d) -> (b, t, d), and the cache with t more columns.

    ``w`` holds one block's weights under their names within it.
    """
    a = tap("attn_norm", normalize(w, "attn_norm", x, ctx))
    heads, cache = attend(w, a, cache, ctx, tap)
    x = tap("attn_residual", x + tap("attn.out", linear(w, "attn.o", heads, ctx)))
    m = tap("mlp_norm", normalize(w, "mlp_norm", x, ctx))
    x = tap("residual", x + tap("mlp.out", linear(w, "mlp.down", expand(w, m, ctx, tap), ctx)))
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


def prefix(tap: Tap, first: str) -> Tap:
    """Return the tap that puts ``first`` and a dot before every name."""
    if tap is untapped:
        return tap
    return lambda name, x: tap(f"{first}.{name}", x)


def look_up(table: Array, index: Array, *, xp: Namespace) -> Array:
    """table[index]. table (m, d), index (b, t) -> (b, t, d)."""
    rows = xp.take(table, xp.reshape(index, (-1,)), axis=0)
    y: Array = xp.reshape(rows, (*index.shape, table.shape[1]))
    return y


def new_context(inputs: Inputs, cache: Cache | None, kernels: Any) -> Context:
    """What all blocks of a pass over checked inputs share, after what ``cache`` holds."""
    params, placement = inputs.params, place(inputs, cache)
    angles = rotation(params.config, placement.positions, params.dtype, xp=params.xp, device=params.device)
    return Context(params.config, as_kernels(kernels), placement, angles, params.xp)


def embed(params: Weights, ids: Array, ctx: Context) -> Array:
    """E[ids], plus P[positions] if positions are learned. ids (b, t) -> (b, t, d)."""
    x = look_up(params["embed.weight"], ids, xp=ctx.xp)
    if ctx.config.position == "learned":
        x = x + look_up(params["pos_embed.weight"], ctx.placement.positions, xp=ctx.xp)
    return x


def run_blocks(
    params: Params, x: Array, cache: Cache | None, ctx: Context, tap: Tap
) -> tuple[Array, Cache | None]:
    """x through all blocks, one after another. (b, t, d) -> (b, t, d), and the cache after them."""
    layers: list[Any] = [None] * ctx.config.n_layers
    for i in range(ctx.config.n_layers):
        before = None if cache is None else (cache.keys[i], cache.values[i])
        x, layers[i] = block(params.block(i), x, before, ctx, prefix(tap, f"blocks.{i}"))
    if ctx.placement.cache is None:
        return x, None
    keys, values = zip(*layers, strict=True)
    return x, ctx.placement.cache._replace(keys=keys, values=values)


def head(params: Weights, config: Config) -> tuple[Array, Array | None]:
    """The head's matrix (n, d), which is the embedding if tied, and its bias (n,) if it has one."""
    return params["embed.weight" if config.tie_embeddings else "head.weight"], params.get("head.bias")


def compute_logits(params: Weights, x: Array, ctx: Context, tap: Tap) -> Array:
    """The last norm and the head. x (b, t, d) -> (b, t, n)."""
    x = tap("final_norm", normalize(params, "final_norm", x, ctx))
    return tap("logits", ctx.kernels.linear(x, *head(params, ctx.config), xp=ctx.xp))


def last_real(x: Array, inputs: Inputs) -> Array:
    """Each row's last real column. (b, t, d) -> (b, 1, d)."""
    xp, t = inputs.params.xp, x.shape[1]
    if inputs.mask is None:
        return x[:, t - 1 :, :]
    last = xp.max(xp.where(inputs.mask, xp.arange(t, device=inputs.params.device), 0), axis=-1)  # (b,)
    y: Array = xp.take_along_axis(x, last[:, None, None], axis=1)
    return y


def compute(
    inputs: Inputs, cache: Cache | None, kernels: Any, tap: Tap, *, last: bool = False
) -> tuple[Array, Cache | None]:
    """One pass over checked inputs: logits (b, t, n), or (b, 1, n) if ``last``, and the extended cache."""
    ctx = new_context(inputs, cache, kernels)
    x = tap("embed", embed(inputs.params, inputs.ids, ctx))
    x, cache = run_blocks(inputs.params, x, cache, ctx, tap)
    return compute_logits(inputs.params, last_real(x, inputs) if last else x, ctx, tap), cache


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
    dtype. ``mask`` (b, t) is True on real tokens; padding may be on either side. ``positions`` (b, t) default
    to counting each row's real tokens from 0. ``xp`` converts the parameters if they are of another library
    (``params.to(xp)`` once is the fast way). ``kernels`` maps names in ``tinyxp.ops`` to functions of the
    same signature. ``tap(name, x) -> x`` sees, and may replace, every intermediate value.

    Raise ValueError naming the value and its limit for ids outside the vocabulary, wrong shapes and dtypes,
    and learned positions of max_seq_len or more. Values that cannot be read, under jit or on torch's meta
    device, are not checked. Rotary positions may exceed max_seq_len.
    """
    logits, _ = compute(check_inputs(params, ids, positions, mask, xp), None, kernels, as_tap(tap))
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
    ids[:, i] should predict. Without a single target the loss is 0. ``tap`` sees every value but the logits,
    which need not exist all at once; the other arguments and the errors are those of ``forward``.
    """
    inputs, tap = check_inputs(params, ids, positions, mask, xp), as_tap(tap)
    targets = as_targets(targets, inputs)
    ctx = new_context(inputs, None, kernels)
    x = tap("embed", embed(inputs.params, inputs.ids, ctx))
    x, _ = run_blocks(inputs.params, x, None, ctx, tap)
    x = tap("final_norm", normalize(inputs.params, "final_norm", x, ctx))
    weight, bias = head(inputs.params, ctx.config)
    mean: Array = ctx.kernels.linear_cross_entropy(
        x, weight, targets, bias, xp=ctx.xp, linear=ctx.kernels.linear
    )
    return mean


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
    """logits for t more columns after those in ``cache``, and the extended cache: prefill, chunk or step.

    Shapes: ids (b, t), mask (b, t) of the new columns -> logits (b, t, n); with ``last`` (b, 1, n), of each
    row's last real column, at the cost of one column's head. The given cache stays valid, unless ``kernels``
    has a write_cache that writes in place. Raise ValueError for what ``forward`` rejects, and for a cache
    without room for t columns, of other rows or of another model. Under jit it is not known how full a cache
    is: columns beyond its length are dropped.
    """
    if not isinstance(cache, Cache):
        raise ValueError(f"cache is a {type(cache).__name__}; it must come from tinyxp.new_cache")
    inputs = check_inputs(params, ids, positions, mask, xp)
    logits, extended = compute(inputs, cache, kernels, untapped, last=as_flag("last", last))
    assert extended is not None
    return logits, extended
