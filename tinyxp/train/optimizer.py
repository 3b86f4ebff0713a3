"""AdamW in the array API standard: the same steps on every backend."""

from __future__ import annotations

from typing import NamedTuple

from tinyxp.params import Params
from tinyxp.train.recipe import Recipe
from tinyxp.typing import Array, Namespace

Arrays = dict[str, Array]


class State(NamedTuple):
    """All that a run needs to go on: the parameters, the two moments of each, and the updates made."""

    params: Params
    first: Arrays
    second: Arrays
    step: int = 0


def initial(params: Params) -> State:
    """The state before the first update: moments of 0, and parameters that no graph goes back from."""
    xp, backend = params.xp, params.backend
    params = params.replace({name: backend.detach(x) for name, x in params.items()})
    first, second = ({name: xp.zeros_like(x) for name, x in params.items()} for _ in range(2))
    return State(params, first, second)


def global_norm(gradients: Params, *, xp: Namespace) -> Array:
    """sqrt of the sum of all squares, over all parameters. () in their dtype."""
    squares = [xp.sum(g * g) for g in gradients.values()]
    norm: Array = xp.sqrt(xp.sum(xp.stack(squares)))
    return norm


class Scalars(NamedTuple):
    """The numbers of one update: the learning rate, and 1 - beta^t for the beta of each moment."""

    rate: float
    first: float
    second: float


def scalars(recipe: Recipe, step: int) -> Scalars:
    """Those of update ``step``, counted from 0."""
    first, second = recipe.betas
    return Scalars(recipe.rate(step), 1.0 - first ** (step + 1), 1.0 - second ** (step + 1))


def adamw(
    params: Params, first: Arrays, second: Arrays, gradients: Params, now: Scalars, *, recipe: Recipe
) -> tuple[Params, Arrays, Arrays, Array]:
    """One update, and the norm of the gradient g before it is clipped to ``recipe.clip``:

    m <- b1 m + (1 - b1) g; v <- b2 v + (1 - b2) g^2;
    p <- p - rate decay p - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps),

    decay for matrices alone, tables among them, a tied one once. (Loshchilov & Hutter, 2019.)
    """
    xp, (b1, b2) = params.xp, recipe.betas
    norm = global_norm(gradients, xp=xp)
    kept = recipe.clip / xp.where(norm > recipe.clip, norm, recipe.clip)
    new: tuple[Arrays, Arrays, Arrays] = {}, {}, {}
    for name, p in params.items():
        g = gradients[name] * kept
        m = b1 * first[name] + (1.0 - b1) * g
        v = b2 * second[name] + (1.0 - b2) * g * g
        if len(p.shape) > 1:
            p = p * (1.0 - now.rate * recipe.decay)
        # sqrt(v / c2) = sqrt(v) / sqrt(c2); the correction of v joins its scale
        root = xp.sqrt(v) * (1.0 / now.second**0.5) + recipe.eps
        p = p - (now.rate / now.first) * m / root
        for there, x in zip(new, (p, m, v), strict=True):
            there[name] = x
    updated, first, second = new
    return params.replace(updated), first, second, norm
