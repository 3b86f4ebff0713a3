"""Fused and plain attention: the same numbers, with and without a score matrix in memory.

Plain attention writes all h t t scores, then as many weights, then reads them. A fused kernel processes the
keys in pieces with a running maximum and sum for each query, and never holds a whole row of scores (Dao et
al., 2022). Its largest array is the causal mask, t t floats for all heads together.
"""

import time

import numpy as np
import show
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import tinyxp
from tinyxp import ops

HEADS, HEAD_DIM = 8, 64
LENGTHS = (128, 256, 512, 1024, 2048)
BACKEND = tinyxp.backend("torch")
ATTENTIONS = {"plain": ops.attention, "fused": BACKEND.engine.kernels["attention"]}


class Largest(TorchDispatchMode):
    """Records the bytes of the largest tensor that any operation returns."""

    bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        self.bytes = max([self.bytes, *(x.untyped_storage().nbytes() for x in tensors)])
        return result


def inputs(t, dtype=torch.float32):
    """q, k and v (1, h, t, hd), normal, and the causal mask (1, 1, t, t)."""
    rng = np.random.default_rng(0)
    q, k, v = (torch.asarray(rng.normal(size=(1, HEADS, t, HEAD_DIM)), dtype=dtype) for _ in range(3))
    return q, k, v, torch.ones((1, 1, t, t), dtype=torch.bool).tril()


def largest_bytes(attention, t):
    arguments = inputs(t)
    with Largest() as mode:
        attention(*arguments, xp=BACKEND.xp)
    return mode.bytes


def seconds(attention, t, repeats):
    arguments, times = inputs(t), []
    for _ in range(repeats):
        start = time.perf_counter()
        attention(*arguments, xp=BACKEND.xp)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def differences(t):
    """Return the largest difference of plain and fused, and of each and the plain one in float64."""
    plain, fused = (attention(*inputs(t), xp=BACKEND.xp) for attention in ATTENTIONS.values())
    right = ops.attention(*inputs(t, torch.float64), xp=BACKEND.xp)
    return [float((a - b).abs().max()) for a, b in ((plain, fused), (plain, right), (fused, right))]


def main():
    given = show.arguments(__doc__)
    lengths, repeats = (LENGTHS[:-1], 3) if given.quick else (LENGTHS, 7)
    print(f"{HEADS} heads of {HEAD_DIM}, float32, causal: the largest distances")
    show.table(
        ["t", "plain - fused", "plain - float64", "fused - float64"],
        [[t, *(f"{x:.1e}" for x in differences(t))] for t in lengths],
    )

    memory = {name: [largest_bytes(f, t) / 2**20 for t in lengths] for name, f in ATTENTIONS.items()}
    clock = {name: [1e3 * seconds(f, t, repeats) for t in lengths] for name, f in ATTENTIONS.items()}
    scores = [4 * HEADS * t**2 / 2**20 for t in lengths]
    print(f"\nThe h t^2 scores; the largest array that is made, in MiB; ms, medians of {repeats}")
    show.table(
        [
            "t",
            "scores, MiB",
            *(f"{name}, MiB" for name in memory),
            *(f"{name}, ms" for name in clock),
            "ratio",
        ],
        [
            [t, f"{size:.2f}", *(f"{memory[name][i]:.2f}" for name in memory)]
            + [f"{clock[name][i]:.2f}" for name in clock]
            + [f"{clock['plain'][i] / clock['fused'][i]:.1f}"]
            for i, (t, size) in enumerate(zip(lengths, scores, strict=True))
        ],
    )
    draw(given.plot, lengths, memory, clock)


def draw(path, lengths, memory, clock):
    made, axes = show.figure(2, size=(10, 4.2))
    for each, lines, what in zip(axes, (memory, clock), ("MiB, largest array", "ms"), strict=True):
        for name, values in lines.items():
            each.plot(lengths, values, "o-", label=name)
        each.set(xscale="log", yscale="log", xlabel="t, in tokens", ylabel=what)
        each.set_xticks(lengths, [str(t) for t in lengths])
        each.minorticks_off()
        each.yaxis.set_major_formatter("{x:g}")
    axes[0].set_title("Memory")
    axes[1].set_title("Time")
    axes[0].legend()
    show.save(made, path)


if __name__ == "__main__":
    main()
