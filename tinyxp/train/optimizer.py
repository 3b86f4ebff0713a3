"""AdamW in the array API standard, so that every backend takes the same steps."""

from __future__ import annotations

from typing import NamedTuple

from tinyxp.params import Params
from tinyxp.train.recipe import Recipe
from tinyxp.typing import Array, Namespace

Arrays = dict[str, Array]


class State(NamedTuple):
    """What training continues from: parameters, two moments of each, and the number of updates so far."""

    params: Params
    first: Arrays
    second: Arrays
    step: int = 0


def initial_state(params: Params) -> State:
    """Return the state before the first update: moments of 0, parameters detached from any graph."""
    xp, backend = params.xp, params.backend
    params = params.replace({name: backend.detach(x) for name, x in params.items()})
    first, second = ({name: xp.zeros_like(x) for name, x in params.items()} for _ in range(2))
    return State(params, first, second)


def global_norm(gradients: Params, *, xp: Namespace) -> Array:
    """sqrt(sum(g^2)) over all numbers of all parameters. Returns () in their dtype."""
    squares = [xp.sum(g * g) for g in gradients.values()]
    norm: Array = xp.sqrt(xp.sum(xp.stack(squares)))
    return norm


class Scalars(NamedTuple):
    """The numbers of one update: the learning rate, and 1 - beta^t for both betas."""

    rate: float
    first: float
    second: float


def update_scalars(recipe: Recipe, step: int) -> Scalars:
    """Return the scalars of update ``step``, counted from 0."""
    first, second = recipe.betas
    return Scalars(recipe.rate(step), 1.0 - first ** (step + 1), 1.0 - second ** (step + 1))


def adamw(
    params: Params, first: Arrays, second: Arrays, gradients: Params, now: Scalars, *, recipe: Recipe
) -> tuple[Params, Arrays, Arrays, Array]:
    """m <- b1 m + (1 - b1) g; v <- b2 v + (1 - b2) g^2;
    p <- p - rate decay p - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).

    The gradient g is first clipped to the global norm ``recipe.clip``. Decay applies to matrices only, tables
    included, and to a tied table once. Return p, m, v and the norm of g before clipping.
    (Loshchilov & Hutter, 2019.)
    """
    xp, (b1, b2) = params.xp, recipe.betas
    norm = global_norm(gradients, xp=xp)
    scale = recipe.clip / xp.where(norm > recipe.clip, norm, recipe.clip)
    new: tuple[Arrays, Arrays, Arrays] = {}, {}, {}
    for name, p in params.items():
        g = gradients[name] * scale
        m = b1 * first[name] + (1.0 - b1) * g
        v = b2 * second[name] + (1.0 - b2) * g * g
        if len(p.shape) > 1:
            p = p * (1.0 - now.rate * recipe.decay)
        # sqrt(v / c2) = sqrt(v) / sqrt(c2): the correction becomes part of a scalar
        root = xp.sqrt(v) * (1.0 / now.second**0.5) + recipe.eps
        p = p - (now.rate / now.first) * m / root
        for arrays, x in zip(new, (p, m, v), strict=True):
            arrays[name] = x
    updated, first, second = new
    return params.replace(updated), first, second, norm
