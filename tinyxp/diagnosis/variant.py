"""A model with faults put in: what it computes, block by block, on the ids and on given values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tinyxp.cache import Layout, lay_out
from tinyxp.comparison.points import Batch
from tinyxp.comparison.referee import Weights, widening_linear
from tinyxp.config import Config
from tinyxp.diagnosis.choices import Choices, F, Values, normed
from tinyxp.inputs import prepare
from tinyxp.model import NORMS, Context, block, embed, rotation
from tinyxp.ops import Kernels
from tinyxp.params import Params, block_shapes
from tinyxp.registry import backend

Change = Callable[[str, F, "Variant"], F]
"""A parameter's name, its value and the model it is of -> the value it has with a fault."""
Seen = Callable[[str, F], F]
"""A trace point and its value -> the value that the pass goes on with."""


@dataclass(frozen=True)
class Variant:
    """The trusted weights, the choices of each block, and what has become of the parameters."""

    weights: Weights
    batch: Batch
    choices: Choices = field(default_factory=Choices)
    changes: tuple[Change, ...] = ()
    layers: tuple[int, ...] | None = None  # which of the weights' blocks each block has
    local: Mapping[int, tuple[Choices, tuple[Change, ...]]] = field(default_factory=dict)  # of single blocks
    kept: tuple[int | None, int | None] = (None, None)  # the columns of the logits that are answered
    untied: bool = False

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(range(self.weights.config.n_layers)) if self.layers is None else self.layers

    def chosen(self, i: int) -> Choices:
        return self.local[i][0] if i in self.local else self.choices

    def parameter(self, name: str, i: int | None = None) -> F:
        """A parameter by its name in the model; ``i`` is the block that asks."""
        x = self.weights.read(name)
        for change in self.local[i][1] if i is not None and i in self.local else self.changes:
            x = change(name, x, self)
        return x

    def narrowed(self, blocks: Iterable[int], before: Variant) -> Variant:
        """This fault in some blocks only, the others as they were before it."""
        chosen = set(blocks)
        local = {i: (self.chosen(i), self._changes(i)) for i in chosen}
        return replace(before, local={**before.local, **local})

    def _changes(self, i: int) -> tuple[Change, ...]:
        return self.local[i][1] if i in self.local else self.changes

    def edited(self, edit: Callable[[Choices], Choices], change: Change | None = None) -> Variant:
        """Other choices, and one more change of parameters, in every block."""
        more = () if change is None else (change,)
        local = {i: (edit(c), (*changes, *more)) for i, (c, changes) in self.local.items()}
        return replace(self, choices=edit(self.choices), changes=(*self.changes, *more), local=local)


class Passes:
    """Passes of variants of one model over one batch, in float64 on NumPy."""

    def __init__(self, weights: Weights, batch: Batch) -> None:
        self.weights, self.batch = weights, batch
        self.xp: Any = backend("numpy").xp
        self._contexts: dict[tuple[int, Config], tuple[Context, Batch]] = {}  # a batch is kept with its id

    def _context(self, v: Variant) -> Context:
        """What the right model's blocks share."""
        config, batch = v.weights.config, v.batch
        key = (id(batch), config)
        if key not in self._contexts:
            shown = {"embed.weight": np.zeros((1, 1))}  # of which only the library and the dtype are asked
            params = Params.made_when_asked(shown, config, backend("numpy"))
            layout: Layout = lay_out(prepare(params, batch.ids, None, batch.mask, None), None)
            angles = rotation(config, layout.positions, np.dtype(np.float64), xp=self.xp, device=None)
            kernels = Kernels(linear=widening_linear)
            self._contexts[key] = Context(config, kernels, layout, angles, self.xp), batch
        return self._contexts[key][0]

    def embed(self, v: Variant, see: Seen) -> F:
        ctx = self._context(v)
        table = v.parameter("embed.weight")
        params: Any = {"embed.weight": np.asarray(table[v.batch.ids.ravel()], np.float64)}
        if v.weights.config.position == "learned":
            params["pos_embed.weight"] = np.asarray(v.parameter("pos_embed.weight"), np.float64)
        numbered = np.arange(v.batch.ids.size).reshape(v.batch.ids.shape)
        right = embed(params, numbered, ctx)
        values = Values(v.choices, v.weights.config, v.batch, lambda name: v.parameter(name))
        return see("embed", values.again("embed", right))

    def block(self, v: Variant, i: int, x: F, see: Seen) -> F:
        """Block i from its input; ``see`` hears each point's whole name, and may replace its value."""
        ctx, j = self._context(v), v.order[i]
        names = block_shapes(v.weights.config)
        asked = _Asked(lambda name: v.parameter(f"blocks.{j}.{name}", i), names)
        values = Values(v.chosen(i), v.weights.config, v.batch, asked.get)
        values.points["input"] = x

        def tap(kind: str, right: Any) -> Any:
            if values.choices.post_norm and kind in ("attn_norm", "mlp_norm"):
                return values.points["input" if kind == "attn_norm" else "attn_residual"]
            y = see(f"blocks.{i}.{kind}", values.again(kind, right))
            if values.choices.post_norm and kind in ("attn_residual", "residual"):
                norm = "attn_norm" if kind == "attn_residual" else "mlp_norm"
                y = see(f"blocks.{i}.{norm}", normed(values, norm, y))
            values.points[kind] = y
            return y

        y, _ = block(asked, x, None, ctx, tap)
        return y

    def final(self, v: Variant, x: F, see: Seen, *, logits: bool = True) -> None:
        ctx, config = self._context(v), v.weights.config
        asked = _Asked(v.parameter, dict.fromkeys(("final_norm.weight", "final_norm.bias"), ()))
        values = Values(
            v.choices, config, v.batch, asked.get if config.norm == "layer" else _without_bias(asked)
        )
        values.points["input"] = x
        right: Any = NORMS[config.norm](asked, "final_norm", x, ctx)
        x = see("final_norm", values.again("final_norm", right))
        if logits:
            name = "embed.weight" if config.tie_embeddings and not v.untied else "head.weight"
            y: Any = widening_linear(x, v.parameter(name), None, xp=self.xp)
            see("logits", values.again("logits", y))


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


def _without_bias(asked: Mapping[str, F]) -> Callable[[str], F | None]:
    return lambda name: asked[name] if name.endswith("weight") else None
