"""RoPE beyond the training length: rotations, like hands of a clock, that reach unseen angles.

Pair i of a head rotates by theta^(-2i/hd) radians per position. A fast hand has reached every angle long
before training's last position. A hand that has not made a full turn by then reaches new angles right after
it, which the model has never seen. Slowing down only these hands keeps them longer among known angles
(Llama 3.1 does this); truncating the context keeps them there always.
"""

import dataclasses
import math
from itertools import pairwise

import numpy as np
import show
from trained_model import token_losses, trained_model

import tinyxp
from tinyxp.config import RopeScaling
from tinyxp.rope import rope_frequencies

COLUMNS = ("going on", "slow hands halved", "context cut")


def hands(config):
    """Return the frequency of each pair, its period in positions, and its turns within max_seq_len."""
    return [(f, 2 * math.pi / f, config.max_seq_len * f / (2 * math.pi)) for f in rope_frequencies(config)]


def slowed(params, factor):
    """Slow down hands of less than one turn by ``factor``; those of 4 or more turns stay as they are."""
    scaling = RopeScaling(
        rope_type="llama3",
        factor=factor,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_seq_len=params.config.max_seq_len,
    )
    return tinyxp.Params(params, dataclasses.replace(params.config, rope_scaling=scaling))


def cut_losses(params, ids, start, stop):
    """Return losses at start to stop - 1; each sees at most max_seq_len ids, with positions from 0."""
    first = max(0, stop - params.config.max_seq_len)
    return token_losses(params, ids[:, first : stop + 1])[:, start - first :]


def by_position(params, ids, parts):
    """Return mean losses in ``parts`` equal spans: start, stop, and the three of COLUMNS."""
    edges = np.linspace(0, ids.shape[1] - 1, parts + 1).astype(int).tolist()
    going_on, halved = (
        np.concatenate([token_losses(model, row[None]) for row in ids])
        for model in (params, slowed(params, 2.0))
    )
    return [
        (a, b, going_on[:, a:b].mean(), halved[:, a:b].mean(), cut_losses(params, ids, a, b).mean())
        for a, b in pairwise(edges)
    ]


def main():
    given = show.arguments(__doc__)
    name, params, ids = trained_model(given.quick)
    config = params.config
    print(
        f"{name}: head_dim {config.head_dim}, theta {config.rope_theta:g}, {config.max_seq_len} positions\n"
    )
    clocks = hands(config)
    show.table(
        ["pair", "radians a position", "positions a turn", "turns in training", "whole turn"],
        [
            [i, f"{f:.4f}", f"{period:,.1f}", f"{turns:.3f}", "yes" if turns >= 1 else "no"]
            for i, (f, period, turns) in enumerate(clocks)
        ],
    )
    spans = by_position(params, ids, 8 if given.quick else 16)
    print("\nLoss by position, in nats; the same tokens in each column")
    show.table(
        ["positions", *COLUMNS],
        [[f"{a} to {b - 1}", *(f"{x:.3f}" for x in losses)] for a, b, *losses in spans],
    )
    draw(given.plot, config, clocks, spans)


def draw(path, config, clocks, spans):
    made, axes = show.figure(len(clocks) + 1, size=(2.6 * len(clocks) + 5, 3.6))
    for i, (each, (f, _, turns)) in enumerate(zip(axes, clocks, strict=False)):
        for times, radius in ((1, 1.0), (4, 0.8)):
            end = times * config.max_seq_len * f
            angles = np.linspace(0, min(end, 2 * math.pi), 200)
            arc = each.plot(radius * np.sin(angles), radius * np.cos(angles), linewidth=5)[0]
            arc.set_label("in training" if times == 1 else f"{times} times as far")
            each.plot([0, radius * math.sin(end)], [0, radius * math.cos(end)], color=arc.get_color())
        each.set(aspect="equal", xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), title=f"pair {i}: {turns:.2f} turns")
        each.axis("off")
    axes[-2].legend(loc="lower left", frameon=False)
    for label, losses in zip(COLUMNS, zip(*(span[2:] for span in spans), strict=True), strict=True):
        axes[-1].plot([(a + b) / 2 for a, b, *_ in spans], losses, label=label)
    axes[-1].axvline(config.max_seq_len, color="black", linestyle=":", linewidth=1)
    axes[-1].set(xlabel="position", ylabel="loss, nats", title="Loss by position")
    axes[-1].legend(fontsize="small")
    show.save(made, path)


if __name__ == "__main__":
    main()
