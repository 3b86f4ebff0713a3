"""The loop: from windows to gradients, an update and a report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tinyxp.dtypes import dtype_name
from tinyxp.inputs import as_params
from tinyxp.ops import IGNORED
from tinyxp.params import Params
from tinyxp.text.windows import Windows
from tinyxp.train.evaluation import evaluate
from tinyxp.train.objective import (
    batch_loss,
    check_windows,
    compile_unless_eager,
    draw_dropout,
    on_device,
    training_kernels,
)
from tinyxp.train.optimizer import Arrays, State, adamw, initial_state, update_scalars
from tinyxp.train.recipe import Recipe
from tinyxp.typing import Array


class Report(NamedTuple):
    """What one update reports. Before the first one, ``loss``, ``rate`` and ``norm`` are None."""

    step: int  # updates so far
    loss: float | None  # of the batch, before its update, in nats
    rate: float | None  # learning rate
    norm: float | None  # of the gradient, before clipping
    validation: float | None  # loss of the held-out windows, if they were evaluated
    state: State

    @property
    def params(self) -> Params:
        """The parameters after the update."""
        return self.state.params


def fit(
    start: Params | State,
    train: Windows,
    validation: Windows | None,
    recipe: Recipe,
    *,
    kernels: Mapping[str, Any] | None = None,
) -> Iterator[Report]:
    """Train by ``recipe``; yield a report before the first update and after each one.

    ``start`` is parameters in float32 or float64, or the state of an earlier report: then the run continues
    as if it had not been interrupted. Each epoch takes the windows of ``train`` in a new order. No argument
    is changed. ``kernels`` as for ``tinyxp.forward``, instead of the backend's.

    Raise ValueError at the call, naming the field, or if the backend has no gradients. During the run, raise
    ValueError naming the step if a loss is not finite.
    """
    if not isinstance(recipe, Recipe):
        raise ValueError(f"recipe is a {type(recipe).__name__}; it must be tinyxp.train.Recipe")
    state = start if isinstance(start, State) else initial_state(as_params(start, None))
    params = state.params
    backend, dtype = params.backend, dtype_name(params.dtype)
    if dtype not in ("float32", "float64"):
        raise ValueError(f"params are {dtype}; they must be float32 or float64, to hold small updates")
    if recipe.dtype is not None:
        backend.dtype(recipe.dtype)
    windows = check_windows("train", train, params)
    held_out = None if validation is None else check_windows("validation", validation, params)
    compute = partial(batch_loss, kernels=training_kernels(backend, kernels), recipe=recipe)
    gradient = compile_unless_eager(backend, backend.value_and_grad(compute))
    update = compile_unless_eager(backend, partial(adamw, recipe=recipe))
    measure = None if held_out is None else partial(evaluate, windows=held_out, kernels=kernels)
    return _reports(state, windows, recipe, _Functions(gradient, update, measure))


class _Functions(NamedTuple):
    gradient: Callable[..., Any]
    update: Callable[..., Any]
    measure: Callable[[Params], float] | None


def _reports(state: State, windows: Windows, recipe: Recipe, functions: _Functions) -> Iterator[Report]:
    gradient, update, measure = functions
    if state.step == 0:
        yield Report(0, None, None, None, None if measure is None else measure(state.params), state)
    for step in range(state.step, recipe.steps):
        rows = batch_rows(recipe, step, len(windows.ids))
        batch = Windows(windows.ids[rows], windows.targets[rows])
        loss, gradients = accumulate(state.params, batch, step, recipe, gradient)
        now = update_scalars(recipe, step)
        params, first, second, norm = update(state.params, state.first, state.second, gradients, now)
        state = State(params, first, second, step + 1)
        value, norm_value = (float(params.backend.to_numpy(x)) for x in (loss, norm))
        if not math.isfinite(value) or not math.isfinite(norm_value):
            raise _diverged(
                f"the loss at step {step} is {value} and the norm of its gradient {norm_value}", recipe
            )
        is_due = step + 1 == recipe.steps or (step + 1) % recipe.evaluate_every == 0
        held_out = measure(params) if measure is not None and is_due else None
        if held_out is not None and not math.isfinite(held_out):
            raise _diverged(f"the held-out loss after step {step + 1} is {held_out}", recipe)
        yield Report(step + 1, value, now.rate, norm_value, held_out, state)


def _diverged(what: str, recipe: Recipe) -> ValueError:
    return ValueError(f"{what}; a lower peak learning rate than {recipe.peak} may help")


def batch_rows(recipe: Recipe, step: int, count: int) -> np.ndarray:
    """Return the windows of a batch, (batch,): each epoch takes all windows once, in its own order."""
    places = np.arange(step * recipe.batch, (step + 1) * recipe.batch)
    epochs = {
        int(epoch): np.random.default_rng([recipe.seed, int(epoch)]).permutation(count)
        for epoch in np.unique(places // count)
    }
    return np.array([epochs[place // count][place % count] for place in places.tolist()])


def accumulate(
    params: Params, batch: Windows, step: int, recipe: Recipe, gradient: Callable[..., Any]
) -> tuple[Array, Params | Arrays]:
    """Return the mean loss of a batch and its gradients, computed ``micro_batch`` windows at a time.

    Each micro-batch is weighted by its number of targets, so that the result is that of the whole batch.
    """
    size = recipe.micro_batch or recipe.batch
    keep = draw_dropout(recipe, step, batch.ids.shape, params)
    count = max(int((batch.targets != IGNORED).sum()), 1)
    loss: Any = 0.0
    total: dict[str, Any] = {}
    for start in range(0, len(batch.ids), size):
        part = slice(start, start + size)
        ids, targets = batch.ids[part], batch.targets[part]
        mask = None if keep is None else params.backend.from_numpy(keep[:, part], device=params.device)
        value, gradients = gradient(params, on_device(params, ids), on_device(params, targets), mask)
        if size >= len(batch.ids):
            return value, gradients
        weight = int((targets != IGNORED).sum()) / count
        loss = loss + weight * value
        total = {name: weight * g + total.get(name, 0.0) for name, g in gradients.items()}
    return loss, params.replace(total)
