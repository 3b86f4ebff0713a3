"""Two leaks that make a training run look far too good, on tokens that no model can predict.

The ids are uniform and independent, so no model has a loss below ln V on text that it has not seen. After
long training on a finite text it has a higher one. A model without its causal mask simply reads the next
token; one with unshifted targets only has to repeat its input.
"""

import math

import numpy as np
import show
import torch

import tinyxp
from tinyxp import ops
from tinyxp.text.windows import cut_windows, split_stream
from tinyxp.train import Recipe, fit

T = 32
CONFIG = tinyxp.Config(
    vocab_size=64, n_layers=2, d_model=64, n_heads=2, n_kv_heads=2, d_ff=128, max_seq_len=T
)
RECIPE = Recipe(steps=150, batch=32, peak=3e-3, warmup=20, seed=0, evaluate_every=25)
QUICK = Recipe(steps=60, batch=32, peak=1e-2, warmup=10, seed=0, evaluate_every=30)


def without_mask(q, k, v, visible, *, xp, tap=ops.untapped):
    """Attention in which every position sees every other."""
    return ops.attention(q, k, v, xp.ones_like(visible), xp=xp, tap=tap)


def not_shifted(windows):
    """Return the windows with each id as its own target."""
    return windows._replace(targets=windows.ids)


def windows():
    """Return windows to train on and to validate with; the stream is split before it is cut."""
    stream = np.random.default_rng(0).integers(0, CONFIG.vocab_size, 20_000)
    return [cut_windows(part, T) for part in split_stream(stream, 0.1)]


def runs(xp, recipe):
    """Return the reports of each run: step, loss, validation loss."""
    parts = windows()
    cases = {
        "honest": (parts, None),
        "no mask": (parts, {"attention": without_mask}),
        "targets not shifted": ([not_shifted(part) for part in parts], None),
    }
    return {
        name: [
            (report.step, report.loss, report.validation)
            for report in fit(tinyxp.init(CONFIG, xp=xp), train, validation, recipe, kernels=kernels)
            if report.validation is not None
        ]
        for name, ((train, validation), kernels) in cases.items()
    }


def main():
    given = show.arguments(__doc__)
    reports = runs(torch, QUICK if given.quick else RECIPE)
    uniform = math.log(CONFIG.vocab_size)
    print(f"Uniform random ids, V {CONFIG.vocab_size}, T {T}: ln V = {uniform:.4f}\n")
    show.table(
        ["run", "steps", "training loss", "validation loss", "below ln V"],
        [
            [name, step, f"{loss:.4f}", f"{validation:.4f}", "yes" if validation < uniform else "no"]
            for name, rows in reports.items()
            for step, loss, validation in rows[-1:]
        ],
    )
    print(
        f"\nThe last target of a window is outside it: without a mask ln V / T = {uniform / T:.4f} is left."
        "\nHolding text out finds neither leak: validation leaks as training does. Only ln V gives them away."
    )
    draw(given.plot, reports, uniform)


def draw(path, reports, uniform):
    made, (axes,) = show.figure()
    for name, rows in reports.items():
        axes.plot([row[0] for row in rows], [row[2] for row in rows], "o-", label=name)
    axes.axhline(uniform, color="black", linestyle="--", label="ln V")
    axes.set(xlabel="step", ylabel="validation loss, nats", title="Leaks on random tokens", ylim=(0, None))
    axes.legend()
    show.save(made, path)


if __name__ == "__main__":
    main()
