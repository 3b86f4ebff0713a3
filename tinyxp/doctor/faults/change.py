"""What a fault changes in a model, in the model's own pieces: config, kernels, taps, parameters, inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from tinyxp.config import Config
from tinyxp.doctor.traces import Batch
from tinyxp.model import Context, normalize
from tinyxp.typing import Array, Namespace

Kernel = Callable[..., Any]
KernelEdit = Callable[[Kernel, Context], Kernel]
"""A kernel, and what the blocks share -> a kernel of the same signature that computes something else."""
Read = Callable[[str], np.ndarray]
"""The name of a parameter -> its value in the trusted model."""
ParameterEdit = Callable[[str, np.ndarray, Read], np.ndarray]
"""The name and the value of a parameter, and the trusted model's others -> the value with the fault."""
See = Callable[[str, Any], np.ndarray]
"""A trace point and its value -> the value with which the run continues."""


@dataclass(frozen=True)
class Place:
    """What a tap may read: the values computed so far, and what computes them.

    ``points`` maps the kind of a trace point to its value. It also has ``input``, which the block reads, and
    ``tokens``, the rows of the embedding.
    """

    ctx: Context
    weights: Mapping[str, Array]
    points: Mapping[str, np.ndarray]

    def norm(self, name: str, x: Array) -> Array:
        """The norm of that name applied to x."""
        return normalize(self.weights, name, x, self.ctx)


PointTap = Callable[[np.ndarray, Place], Any]
"""The value of a trace point, and its place -> the value with the fault."""


@dataclass(frozen=True, eq=False)
class Change:
    """What a fault changes; what is left out stays as it is.

    ``config``: the config that the block computes with; a parameter that it adds is neutral (bias 0).
    ``kernels``: edits of the functions in ``tinyxp.ops``, by name. ``taps``: edits of values, by the kind of
    their trace point. ``parameters``: an edit of each parameter as it is loaded. ``positions``: an edit of
    the positions (b or 1, t). ``inputs``: other ids and mask. ``layers``: which layer each block loads.
    ``answered``: the columns of the logits that are returned. ``reroute`` replaces the recording of a block's
    points, and ``stream_point`` is then the kind of point that the next block reads.
    """

    config: Callable[[Config], Config] | None = None
    kernels: Mapping[str, KernelEdit] = field(default_factory=lambda: MappingProxyType({}))
    taps: Mapping[str, PointTap] = field(default_factory=lambda: MappingProxyType({}))
    parameters: ParameterEdit | None = None
    positions: Callable[[np.ndarray, Batch], np.ndarray] | None = None
    inputs: Callable[[Batch], Batch] | None = None
    layers: tuple[int, ...] | None = None
    answered: slice | None = None
    reroute: Callable[[str, np.ndarray, Place, See], np.ndarray] | None = None
    stream_point: str = "residual"


def name_in_block(name: str) -> str:
    """``attn.q.weight`` of ``blocks.3.attn.q.weight``; names outside the blocks stay as they are."""
    return name.split(".", 2)[2] if name.startswith("blocks.") else name


def edit_parameters(names: Collection[str], edit: Callable[[np.ndarray], np.ndarray]) -> Change:
    """The change that edits the parameters of these names within a block, or outside of all blocks."""

    def change(name: str, x: np.ndarray, read: Read) -> np.ndarray:
        return edit(x) if name_in_block(name) in names else x

    return Change(parameters=change)


def load_from(sources: Mapping[str, str]) -> Change:
    """The change that loads parameters from others: stem -> the stem whose weight and bias it gets.

    Parameters of another shape stay as they are.
    """

    def change(name: str, x: np.ndarray, read: Read) -> np.ndarray:
        stem, _, end = name_in_block(name).rpartition(".")
        if stem not in sources:
            return x
        y = read(f"{name.removesuffix(f'{stem}.{end}')}{sources[stem]}.{end}")
        return y if y.shape == x.shape else x

    return Change(parameters=change)


def edit_attention(edit: Callable[[Array, Array, Array, Context], tuple[Any, Any, Any]]) -> KernelEdit:
    """The edit of attention that changes q, k and v before it."""

    def wrap(kernel: Kernel, ctx: Context) -> Kernel:
        def attention(q: Array, k: Array, v: Array, *rest: Any, **named: Any) -> Any:
            return kernel(*edit(q, k, v, ctx), *rest, **named)

        return attention

    return wrap


def replace_kernel(kernel: Kernel) -> KernelEdit:
    """The edit that puts another function in a kernel's place."""
    return lambda _kernel, _ctx: kernel


def edit_rotary(edit: Callable[[Kernel, Any, Any, Any, Namespace], Any]) -> Change:
    """The change of the rotation: edit(rotary, x, cos, sin, xp) -> rotated x."""

    def wrap(kernel: Kernel, ctx: Context) -> Kernel:
        def rotary(x: Array, cos: Array, sin: Array, *, xp: Namespace) -> Any:
            return edit(lambda *arrays: kernel(*arrays, xp=xp), x, cos, sin, xp)

        return rotary

    return Change(kernels={"rotary": wrap})
