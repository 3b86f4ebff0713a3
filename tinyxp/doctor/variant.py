"""A model with faults put in: what it computes, block by block, on the ids and on given values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tinyxp.cache import place
from tinyxp.config import Config
from tinyxp.doctor.choices import Choices, F, Values
from tinyxp.doctor.distance import round_to
from tinyxp.doctor.reference_run import WeightSource, widening_linear
from tinyxp.doctor.rules import again, normed
from tinyxp.doctor.traces import Batch
from tinyxp.inputs import check_inputs
from tinyxp.model import Context, block, embed, head, normalize
from tinyxp.ops import Kernels
from tinyxp.params import Params
from tinyxp.registry import backend
from tinyxp.rope import rotation
from tinyxp.shapes import block_shapes

Change = Callable[[str, F, "Variant"], F]
"""A parameter's name, its value and the model it is of -> the value it has with a fault."""
Seen = Callable[[str, F], F]
"""A trace point and its value -> the value that the pass goes on with."""


@dataclass(frozen=True)
class Variant:
    """The trusted weights, the choices of each block, and what has become of the parameters."""

    weights: WeightSource
    batch: Batch
    choices: Choices = field(default_factory=Choices)
    changes: tuple[Change, ...] = ()
    layers: tuple[int, ...] | None = None  # which of the weights' blocks each block has
    local: Mapping[int, tuple[Choices, tuple[Change, ...]]] = field(default_factory=dict)  # of single blocks
    single: Mapping[str, Choices] = field(default_factory=dict)  # of single kinds of points
    kept: tuple[int | None, int | None] = (None, None)  # the columns of the logits that are answered

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(range(self.weights.config.n_layers)) if self.layers is None else self.layers

    def chosen(self, i: int | None, kind: str) -> Choices:
        """The choices of a kind of point in a block, or outside of all."""
        if kind in self.single:
            return self.single[kind]
        return self.choices if i is None or i not in self.local else self.local[i][0]

    def parameter(self, name: str, i: int | None = None) -> F:
        """A parameter by its name in the model; ``i`` is the block that asks."""
        x = self.weights.read(name)
        for change in self.local[i][1] if i is not None and i in self.local else self.changes:
            x = change(name, x, self)
        return x

    def narrowed(self, blocks: Iterable[int], before: Variant) -> Variant:
        """This fault in some blocks only, the others as they were before it."""
        chosen = set(blocks)
        local = {i: (self.local[i][0] if i in self.local else self.choices, self._changes(i)) for i in chosen}
        return replace(before, local={**before.local, **local})

    def only_at(self, kind: str, before: Variant) -> Variant:
        """This fault at one kind of point only, the others as they were before it."""
        return replace(before, single={**before.single, kind: self.chosen(None, kind)})

    def _changes(self, i: int) -> tuple[Change, ...]:
        return self.local[i][1] if i in self.local else self.changes

    def edited(self, edit: Callable[[Choices], Choices], change: Change | None = None) -> Variant:
        """Other choices, and one more change of parameters, in every block."""
        more = () if change is None else (change,)
        local = {i: (edit(c), (*changes, *more)) for i, (c, changes) in self.local.items()}
        single = {kind: edit(c) for kind, c in self.single.items()}
        changes = (*self.changes, *more)
        return replace(self, choices=edit(self.choices), changes=changes, local=local, single=single)


class Passes:
    """Passes of variants of a model, in float64 on NumPy."""

    def __init__(self) -> None:
        self.xp: Any = backend("numpy").xp
        self._contexts: dict[tuple[int, Config], tuple[Context, Batch]] = {}  # a batch is kept with its id

    def _context(self, v: Variant, i: int | None, kind: str = "") -> Context:
        """What the right model's blocks share, with the matrix product of the variant's."""
        config, batch = v.weights.config, v.batch
        key = (id(batch), config)
        if key not in self._contexts:
            shown = {"embed.weight": np.zeros((1, 1))}  # of which only the library and the dtype are asked
            params = Params.lazy(shown, config, backend("numpy"))
            placement = place(check_inputs(params, batch.ids, None, batch.mask, None), None)
            angles = rotation(config, placement.positions, np.dtype(np.float64), xp=self.xp, device=None)
            kernels = Kernels(linear=widening_linear)
            self._contexts[key] = Context(config, kernels, placement, angles, self.xp), batch
        digits = v.chosen(i, kind).product_dtype
        found = self._contexts[key][0]
        return found if digits is None else found._replace(kernels=Kernels(linear=partial(linear, digits)))

    def embed(self, v: Variant, see: Seen) -> F:
        ctx = self._context(v, None)
        table = v.parameter("embed.weight")
        params: Any = {"embed.weight": np.asarray(table[v.batch.ids.ravel()], np.float64)}
        if v.weights.config.position == "learned":
            params["pos_embed.weight"] = np.asarray(v.parameter("pos_embed.weight"), np.float64)
        numbered = np.arange(v.batch.ids.size).reshape(v.batch.ids.shape)
        right = embed(params, numbered, ctx)
        values = Values(v.chosen(None, "embed"), v.weights.config, v.batch, v.parameter)
        return see("embed", again(values, "embed", right))

    def block(self, v: Variant, i: int, x: F, see: Seen) -> F:
        """Block i from its input; ``see`` hears each point's whole name, and may replace its value."""
        ctx, j = self._context(v, i), v.order[i]
        names = block_shapes(v.weights.config)
        asked = _Asked(lambda name: v.parameter(f"blocks.{j}.{name}", i), names)
        values = Values(v.chosen(i, ""), v.weights.config, v.batch, asked.get)
        values.points["input"] = x

        def tap(kind: str, right: Any) -> Any:
            values.choices = v.chosen(i, kind)
            if values.choices.post_norm and kind in ("attn_norm", "mlp_norm"):
                values.points[kind] = values.points["input" if kind == "attn_norm" else "attn_residual"]
                return values.points[kind]
            y = see(f"blocks.{i}.{kind}", again(values, kind, right))
            if values.choices.post_norm and kind in ("attn_residual", "residual"):
                norm = "attn_norm" if kind == "attn_residual" else "mlp_norm"
                y = see(f"blocks.{i}.{norm}", normed(values, norm, y))
            values.points[kind] = y
            return y

        y, _ = block(asked, x, None, ctx, tap)
        return y

    def final(self, v: Variant, x: F, see: Seen, *, logits: bool = True) -> None:
        ctx, config = self._context(v, None), v.weights.config
        ends = ("weight", "bias") if config.norm == "layer" else ("weight",)
        asked = _Asked(v.parameter, [f"final_norm.{end}" for end in ends])
        values = Values(v.chosen(None, "final_norm"), config, v.batch, asked.get)
        values.points["input"] = x
        right: Any = normalize(asked, "final_norm", x, ctx)
        x = see("final_norm", again(values, "final_norm", right))
        if logits:
            values.choices = v.chosen(None, "logits")
            names = ["embed.weight" if config.tie_embeddings else "head.weight"]
            asked = _Asked(v.parameter, [*names, *(["head.bias"] if config.head_bias else [])])
            ctx = self._context(v, None, "logits")
            see("logits", again(values, "logits", ctx.kernels.linear(x, *head(asked, config), xp=self.xp)))


class _Asked(Mapping[str, F]):
    """The parameters of a block, each changed and kept once it is asked for."""

    def __init__(self, read: Callable[[str], F], names: Iterable[str]) -> None:
        self.read, self.names = read, dict.fromkeys(names)
        self.kept: dict[str, F] = {}

    def __getitem__(self, name: str) -> F:
        if name not in self.names:
            raise KeyError(name)
        if name not in self.kept:
            self.kept[name] = self.read(name)
        return self.kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def linear(digits: str, x: Any, weight: Any, bias: Any = None, *, xp: Any) -> Any:
    """``widening_linear`` of operands rounded to ``digits``."""
    return widening_linear(round_to(x, digits), round_to(np.asarray(weight, np.float64), digits), bias, xp=xp)
