"""One forward pass of a GPT-2 of 92 parameters, every value printed, and what its mask is for.

Four tokens, three positions, width 2, one block with one head. Matrices and biases have numbers of one
decimal, so that each line can be computed by hand from those above it. (At width 2 the result of a
LayerNorm only says which of the two numbers is larger: it is close to 1 and -1.)
"""

import numpy as np
import show

import tinyxp
from tinyxp import ops

CONFIG = tinyxp.Config(
    vocab_size=4,
    n_layers=1,
    d_model=2,
    n_heads=1,
    n_kv_heads=1,
    d_ff=8,
    max_seq_len=3,
    norm="layer",
    position="learned",
    mlp="gelu_tanh",
    attn_bias=True,
    attn_out_bias=True,
    mlp_bias=True,
    tie_embeddings=True,
)
IDS = [[3, 0, 1]]
OTHER_END = [[3, 0, 2]]


def micro_params():
    """Set number n of parameter k to sin(1.3 n + 1.3 k), to one decimal; norms keep weight 1 and bias 0."""
    arrays = dict(tinyxp.init(CONFIG, dtype="float64"))
    for k, (name, x) in enumerate(arrays.items()):
        if "norm" not in name:
            arrays[name] = np.round(np.sin(1.3 * np.arange(x.size) + 1.3 * k), 1).reshape(x.shape)
    return tinyxp.Params(arrays, CONFIG)


def without_mask(q, k, v, visible, *, xp, tap=ops.untapped):
    """Attention in which every position sees every other."""
    return ops.attention(q, k, v, xp.ones_like(visible), xp=xp, tap=tap)


def masked_after_softmax(q, k, v, visible, *, xp, tap=ops.untapped):
    """A common fault: the future is removed from the weights, but not from the sum that divides them."""

    def mask_weights(name, x):
        return tap(name, xp.where(visible, x, 0.0) if name == "weights" else x)

    return without_mask(q, k, v, visible, xp=xp, tap=mask_weights)


ATTENTIONS = {
    "with the mask": ops.attention,
    "without the mask": without_mask,
    "masked after the softmax": masked_after_softmax,
}


def run(params, ids, attention):
    """Return the attention weights (3, 3) and the logits (3, 4) of one sequence."""
    points = {}
    tinyxp.forward(
        params, ids, kernels={"attention": attention}, tap=lambda name, x: points.setdefault(name, x)
    )
    return points["blocks.0.attn.weights"][0, 0], points["logits"][0]


def print_values(values):
    """Print each array with its name and shape, row by row; rows of up to four numbers side by side."""
    for name, x in values.items():
        rows = [" ".join(f"{number:7.3f}" for number in row) for row in x.reshape(-1, x.shape[-1])]
        if x.shape[-1] <= 4:
            rows = [" |".join(rows[i : i + 4]) for i in range(0, len(rows), 4)]
        for i, row in enumerate(rows):
            label = f"{name} {x.shape}" if i == 0 else ""
            print(f"{label:<36}{row}")


def main():
    given = show.arguments(__doc__, quick=False)
    params = micro_params()
    print(f"Parameters: {sum(x.size for x in params.values())}, the tied head counted once")
    print_values(params)
    print(f"\nForward pass of {IDS[0]}, every value on the way")
    print_values(tinyxp.trace(params, IDS))

    print("\nAttention weights: a row is what one position takes from each of the three")
    picture, axes = show.figure(3, size=(11, 4.6))
    for each, (name, attention) in zip(axes, ATTENTIONS.items(), strict=True):
        weights, logits = run(params, IDS, attention)
        leak = np.abs(run(params, OTHER_END, attention)[1] - logits)[:2].max()
        print(f"\n{name}")
        show.table(
            ["query", "key 0", "key 1", "key 2", "sum"],
            [[i, *(f"{w:.4f}" for w in row), f"{row.sum():.4f}"] for i, row in enumerate(weights)],
        )
        print(f"another last token moves the logits before it by up to {leak:.4f}")
        draw(each, name, weights)
    show.save(picture, given.plot)


def draw(axes, name, weights):
    axes.imshow(weights, vmin=0, vmax=1, cmap="Blues")
    for (i, j), weight in np.ndenumerate(weights):
        axes.text(j, i, f"{weight:.3f}", ha="center", va="center", color="white" if weight > 0.6 else "black")
    sums = ", ".join(f"{total:.3f}" for total in weights.sum(axis=1))
    axes.set(
        title=name, xlabel=f"key\nsums of rows: {sums}", ylabel="query", xticks=range(3), yticks=range(3)
    )


if __name__ == "__main__":
    main()
