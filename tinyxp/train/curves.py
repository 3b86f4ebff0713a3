"""A picture of a run: its losses and its learning rate."""

from __future__ import annotations

from pathlib import Path

from tinyxp.files import replacing
from tinyxp.train.checkpoint import Entry


def draw(history: list[Entry], path: Path) -> None:
    """Writes training and validation loss, in nats a token, and the learning rate, against the step (PNG)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)  # draws into memory: no window, whatever the machine has
    losses, rates = figure.subplots(1, 2, width_ratios=(2, 1))
    trained = [e for e in history if e["loss"] is not None]
    held_out = [e for e in history if e["validation"] is not None]
    losses.plot([e["step"] for e in trained], [e["loss"] for e in trained], lw=0.8, label="training batch")
    losses.plot(
        [e["step"] for e in held_out], [e["validation"] for e in held_out], "o-", ms=3, label="held out"
    )
    losses.set(xlabel="step", ylabel="loss, nats a token", title="Loss")
    losses.legend()
    rates.plot([e["step"] for e in trained], [e["rate"] for e in trained])
    rates.set(xlabel="step", title="Learning rate", ylim=(0, None))
    with replacing(path) as file:
        figure.savefig(file, format="png")
