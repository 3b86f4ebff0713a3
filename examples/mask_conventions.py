"""torch's two opposite conventions for a bool mask, shown with numbers.

In ``scaled_dot_product_attention`` True means visible; in ``nn.MultiheadAttention`` True means hidden. The
same causal mask is right in one and inverted in the other: there a query sees the future only. tinyxp's
``visible`` and ``mask`` follow the first convention.
"""

import numpy as np
import show
import torch
from torch import nn
from torch.nn import functional as F

import tinyxp
from tinyxp import ops

T, D = 3, 4
LOOK = torch.ones((T, T), dtype=torch.bool).tril()  # query i looks at key j <= i
CALLS = {
    "scaled_dot_product_attention, True looks": lambda x, mask: by_function(x, mask),
    "MultiheadAttention, True hides": lambda x, mask: by_module(x, mask),
}


def by_function(x, mask):
    """Return the weights (t, t) of x with itself: v is the identity, so the output is the weights."""
    return F.scaled_dot_product_attention(x[None], x[None], torch.eye(T)[None], attn_mask=mask)[0]


def by_module(x, mask):
    """Return the weights from the module, with identity projections."""
    module = nn.MultiheadAttention(D, 1, bias=False, batch_first=True)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(D).repeat(3, 1))
        return module(x[None], x[None], x[None], attn_mask=mask)[1][0]


def inverted(q, k, v, visible, *, xp, tap=ops.untapped):
    """Attention with a mask of the other convention."""
    return ops.attention(q, k, v, ~visible, xp=xp, tap=tap)


def leak(attention):
    """Return the largest change of earlier logits when the last of eight ids of a small model changes."""
    params = tinyxp.init(tinyxp.Config())
    one, other = (
        tinyxp.forward(params, [[3, 1, 4, 1, 5, 9, 2, last]], kernels={"attention": attention})
        for last in (6, 7)
    )
    return float(np.abs(one - other)[:, :-1].max())


def main():
    given = show.arguments(__doc__, quick=False)
    x = torch.asarray(np.random.default_rng(0).normal(size=(T, D)), dtype=torch.float32)
    masks = {"True on and below the diagonal": LOOK, "the opposite": ~LOOK}
    made, axes = show.figure(4, size=(14, 4))
    panels = iter(axes)
    for call, weights_of in CALLS.items():
        for which, mask in masks.items():
            weights = weights_of(x, mask).numpy()
            future = np.triu(weights, 1).sum(axis=-1)
            print(f"{call}; mask {which}")
            show.table(
                ["query", *(f"key {j}" for j in range(T)), "of the future"],
                [[i, *(f"{w:.4f}" for w in (*row, future[i]))] for i, row in enumerate(weights)],
            )
            print()
            draw(next(panels), call.replace(", ", "\n") + f"; {which}", weights)

    print("A later token moves an earlier logit of a causal model by")
    show.table(
        ["mask", "at most"],
        [["right", f"{leak(ops.attention):.6f}"], ["inverted", f"{leak(inverted):.6f}"]],
    )
    show.save(made, given.plot)


def draw(axes, title, weights):
    axes.imshow(weights, vmin=0, vmax=1, cmap="Blues")
    for (i, j), weight in np.ndenumerate(weights):
        axes.text(j, i, f"{weight:.3f}", ha="center", va="center", color="white" if weight > 0.6 else "black")
    axes.set_title(title, fontsize="small")
    axes.set(xlabel="key", ylabel="query", xticks=range(T), yticks=range(T))


if __name__ == "__main__":
    main()
