"""One picture of a bench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tinyxp.bench.report import digits
from tinyxp.bench.session import Bench
from tinyxp.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENDINGS = (".png", ".svg", ".pdf")


def need_matplotlib(path: str) -> None:
    """Check that a picture can be written, before anything is measured.

    Raise ImportError if matplotlib is not installed, and ValueError for a file of another kind.
    """
    if Path(path).suffix.lower() not in ENDINGS:
        raise ValueError(f"plot is {path!r}; it must end in one of {', '.join(ENDINGS)}")
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise ImportError("'matplotlib' is not installed: pip install 'tinyxp[plot]'") from error


def draw(bench: Bench, path: str) -> None:
    """Write the picture; each backend and dtype has a color.

    It shows the time per token by position with and without the cache, tokens/s, and the head at all
    positions and at the last.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4.8), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)  # draws into memory, never into a window
    growth, rates, head = figure.subplots(1, 3, width_ratios=(1.3, 1, 1))
    prompt, machine = bench.plan.prompt_tokens, bench.machine
    _growth(growth, bench)
    prefill, step = (
        [tokens / result.times[name].median for result in bench.results]
        for name, tokens in (("prefill", prompt), ("step", 1))
    )
    _bars(rates, bench, {f"prefill of {prompt}": prefill, "decode": step})
    rates.set(yscale="log", ylabel="tokens/s", title="Tokens per second, more is better")
    _plain(rates)
    every, last = (
        [1e3 * result.times[name].median for result in bench.results] for name in ("head_all", "head_last")
    )
    _bars(head, bench, {"head at all positions": every, "at the last only": last})
    head.set(ylabel="ms", title=f"Prefill of {prompt} tokens, less is better")
    figure.suptitle(
        f"{bench.plan.model} on {machine['cpu']}, {machine['cores']} cores: "
        f"batch 1, medians of {bench.plan.repeats}"
    )
    with replacing(Path(path)) as file:
        figure.savefig(file, format=Path(path).suffix[1:].lower())


def _growth(axes: Axes, bench: Bench) -> None:
    """Draw medians by position, with and without the cache, in bands from quartile to quartile."""
    lengths = bench.plan.lengths
    for i, result in enumerate(bench.results):
        for kind, style, what in (("prefill", "--", "no cache"), ("step", "-", "cache")):
            times = [getattr(result.lengths[length], kind) for length in lengths]
            low, median, high = (
                [1e3 * getattr(t, part) for t in times] for part in ("low", "median", "high")
            )
            axes.plot(lengths, median, style, marker="o", color=f"C{i}", label=f"{result.name}, {what}")
            axes.fill_between(lengths, low, high, color=f"C{i}", alpha=0.15)
    axes.set(xscale="log", yscale="log", xlabel="position, in tokens", ylabel="ms per token")
    axes.set_title("Time of a token by its position, less is better")
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.minorticks_off()
    _plain(axes)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def _bars(axes: Axes, bench: Bench, groups: dict[str, list[float]]) -> None:
    """Draw groups of bars, one for each result in its color, with their values on top."""
    width = 0.8 / len(bench.results)
    for i, result in enumerate(bench.results):
        places = [group + (i + 0.5) * width - 0.4 for group in range(len(groups))]
        heights = [values[i] for values in groups.values()]
        bars = axes.bar(places, heights, width, label=result.name)
        axes.bar_label(bars, list(map(digits, heights)), fontsize="small")
    axes.set_xticks(range(len(groups)), list(groups))
    axes.margins(y=0.25)  # room for the legend
    axes.legend(fontsize="small", loc="upper right")


def _plain(axes: Axes) -> None:
    """Label a logarithmic axis with numbers instead of powers."""
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_minor_formatter("")
