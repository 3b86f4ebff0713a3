"""A picture of a run: its losses and its learning rate."""

from __future__ import annotations

from pathlib import Path

from tinyxp.files import replacing
from tinyxp.train.checkpoint import Entry


def draw(history: list[Entry], path: Path) -> None:
    """Write a PNG of training and validation loss, in nats per token, and learning rate, by step."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)  # draws into memory, never into a window
    losses, rates = figure.subplots(1, 2, width_ratios=(2, 1))
    updates = [e for e in history if e["loss"] is not None]
    evaluations = [e for e in history if e["validation"] is not None]
    losses.plot([e["step"] for e in updates], [e["loss"] for e in updates], lw=0.8, label="training batch")
    losses.plot(
        [e["step"] for e in evaluations],
        [e["validation"] for e in evaluations],
        "o-",
        ms=3,
        label="held out",
    )
    losses.set(xlabel="step", ylabel="loss, nats per token", title="Loss")
    losses.legend()
    rates.plot([e["step"] for e in updates], [e["rate"] for e in updates])
    rates.set(xlabel="step", title="Learning rate", ylim=(0, None))
    with replacing(path) as file:
        figure.savefig(file, format="png")
