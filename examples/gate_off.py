"""What the gate of SwiGLU does: the loss of a trained model without its gates, block by block.

silu(W_gate x) * (W_up x) multiplies each hidden number by one that depends on the token. With silu(gate)
fixed at its mean, or at 1 (an open gate), the MLP is a linear map of its input. A trained gate is nearly
closed on most tokens, so an open one lets through many times what the next blocks expect.
"""

import numpy as np
import show
from trained_model import token_losses, trained_model

import tinyxp
from tinyxp import ops

CHANGES = ("at its mean", "open", "no MLP")
GRID = np.linspace(-1.2784645427610738, 30.0, 200_001)  # silu falls before the first and rises from there


def gate_for(value):
    """Return the gate g with silu(g) = ``value``, elementwise."""
    return np.interp(value, ops.silu(GRID, xp=np), GRID)


def mean_activations(params, ids):
    """Return the mean over all tokens of silu(gate) for each block, (f,)."""
    points = tinyxp.trace(params, ids[:, :-1])
    gates = [points[f"blocks.{i}.mlp.gate"] for i in range(params.config.n_layers)]
    return [ops.silu(gate, xp=np).mean(axis=(0, 1)) for gate in gates]


def holding(values):
    """Return a tap that replaces the activation ``name`` by ``values[name]``."""
    return lambda name, x: np.broadcast_to(values[name], x.shape).astype(x.dtype) if name in values else x


def losses(params, ids, means, layers):
    """Return the mean loss with each of CHANGES in these blocks."""
    at_mean = {f"blocks.{i}.mlp.gate": gate_for(means[i]) for i in layers}
    opened = {f"blocks.{i}.mlp.gate": gate_for(1.0) for i in layers}
    without = {f"blocks.{i}.mlp.out": 0.0 for i in layers}
    return [token_losses(params, ids, holding(values)).mean() for values in (at_mean, opened, without)]


def main():
    given = show.arguments(__doc__)
    name, params, ids = trained_model(given.quick)
    ids = ids[:, :-1].reshape(-1, min(128, params.config.max_seq_len))
    layers, means = range(params.config.n_layers), mean_activations(params, ids)
    whole = token_losses(params, ids).mean()
    rows = {f"block {i}": losses(params, ids, means, [i]) for i in layers} | {
        "all": losses(params, ids, means, layers)
    }
    print(f"{name}, {ids.size - len(ids):,} targets: loss {whole:.4f} nats with all gates as trained\n")
    show.table(
        ["gate of", "mean of silu(gate)", *CHANGES],
        [
            [where, f"{np.mean(mean):.3f}", *(f"{loss:.4f}" for loss in row)]
            for (where, row), mean in zip(rows.items(), [*means, means], strict=True)
        ],
    )
    print(f"\nA uniform guess costs ln V = {np.log(params.config.vocab_size):.4f}.")
    draw(given.plot, whole, rows)


def draw(path, whole, rows):
    made, (axes,) = show.figure()
    places = np.arange(len(rows))
    for i, label in enumerate(CHANGES):
        axes.bar(places + 0.27 * (i - 1), [row[i] for row in rows.values()], 0.25, label=label)
    axes.axhline(whole, color="black", linestyle="--", label="as trained")
    axes.set_xticks(places, list(rows))
    axes.set(ylabel="loss, nats", title="A trained model with its gates switched off")
    axes.legend()
    show.save(made, path)


if __name__ == "__main__":
    main()
