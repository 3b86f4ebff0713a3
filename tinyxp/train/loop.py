"""The loop: windows in, gradients, an update, a report."""

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
    check_windows,
    compiled,
    drawn_kept,
    objective,
    on_device,
    training_kernels,
)
from tinyxp.train.optimizer import Arrays, State, adamw, initial, scalars
from tinyxp.train.recipe import Recipe
from tinyxp.typing import Array


class Report(NamedTuple):
    """One step: ``step`` updates are made; the loss of the batch before the last one, in nats; its learning
    rate; the norm of its gradient before it was clipped; the loss of the held-out windows, where evaluated.
    """

    step: int
    loss: float | None
    rate: float | None
    norm: float | None
    validation: float | None
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
    """Trains by ``recipe``, and reports before the first update and after each one.

    ``start``: parameters in float32 or float64, or the state of an earlier report, which is gone on from as
    if the run had not stopped. Each epoch takes the windows of ``train`` in an order of its own. Nothing
    that is given is changed. ``kernels`` as for ``tinyxp.forward``, in the place of the backend's.

    The arguments are checked at the call: ValueError naming the field, or saying what to install where the
    backend has no gradients. In the run, ValueError where a loss is not finite, naming the step.
    """
    if not isinstance(recipe, Recipe):
        raise ValueError(f"recipe is a {type(recipe).__name__}; it must be tinyxp.train.Recipe")
    state = start if isinstance(start, State) else initial(as_params(start, None))
    params = state.params
    backend, dtype = params.backend, dtype_name(params.dtype)
    if dtype not in ("float32", "float64"):
        raise ValueError(f"params are {dtype}; they must be float32 or float64, to hold small updates")
    if recipe.dtype is not None:
        backend.dtype(recipe.dtype)
    windows = check_windows("train", train, params)
    held_out = None if validation is None else check_windows("validation", validation, params)
    computed = partial(objective, kernels=training_kernels(backend, kernels), recipe=recipe)
    gradient = compiled(backend, backend.value_and_grad(computed))
    update = compiled(backend, partial(adamw, recipe=recipe))
    measure = None if held_out is None else partial(evaluate, windows=held_out, kernels=kernels)
    return _reports(state, windows, recipe, gradient, update, measure)


def _reports(
    state: State,
    windows: Windows,
    recipe: Recipe,
    gradient: Callable[..., Any],
    update: Callable[..., Any],
    measure: Callable[[Params], float] | None,
) -> Iterator[Report]:
    if state.step == 0:
        yield Report(0, None, None, None, None if measure is None else measure(state.params), state)
    for step in range(state.step, recipe.steps):
        rows = batch_rows(recipe, step, len(windows.ids))
        batch = Windows(windows.ids[rows], windows.targets[rows])
        loss, gradients = accumulated(state.params, batch, step, recipe, gradient)
        now = scalars(recipe, step)
        params, first, second, norm = update(state.params, state.first, state.second, gradients, now)
        state = State(params, first, second, step + 1)
        value, size = (float(params.backend.to_numpy(x)) for x in (loss, norm))
        if not math.isfinite(value) or not math.isfinite(size):
            raise ValueError(
                f"the loss at step {step} is {value} and the norm of its gradient {size}; "
                f"a lower peak learning rate than {recipe.peak} may help"
            )
        at_end = step + 1 == recipe.steps
        due = at_end or (step + 1) % recipe.evaluate_every == 0
        found = measure(params) if measure is not None and due else None
        if found is not None and not math.isfinite(found):
            raise ValueError(
                f"the held-out loss after step {step + 1} is {found}; "
                f"a lower peak learning rate than {recipe.peak} may help"
            )
        yield Report(step + 1, value, now.rate, size, found, state)


def batch_rows(recipe: Recipe, step: int, count: int) -> np.ndarray:
    """The windows of a batch, (batch,): all windows of an epoch, in its own order, before any of the next."""
    places = np.arange(step * recipe.batch, (step + 1) * recipe.batch)
    epochs = {
        int(epoch): np.random.default_rng([recipe.seed, int(epoch)]).permutation(count)
        for epoch in np.unique(places // count)
    }
    return np.array([epochs[place // count][place % count] for place in places.tolist()])


def accumulated(
    params: Params, batch: Windows, step: int, recipe: Recipe, gradient: Callable[..., Any]
) -> tuple[Array, Params | Arrays]:
    """The mean loss of a batch and its gradients, ``micro_batch`` windows at a time.

    Each micro-batch weighs as many targets as it has, so that the result is that of the batch at once.
    """
    size = recipe.micro_batch or recipe.batch
    kept = drawn_kept(recipe, step, batch.ids.shape, params)
    count = max(int((batch.targets != IGNORED).sum()), 1)
    loss: Any = 0.0
    total: dict[str, Any] = {}
    for start in range(0, len(batch.ids), size):
        part = slice(start, start + size)
        ids, targets = batch.ids[part], batch.targets[part]
        mask = None if kept is None else params.backend.from_numpy(kept[:, part], device=params.device)
        value, gradients = gradient(params, on_device(params, ids), on_device(params, targets), mask)
        if size >= len(batch.ids):
            return value, gradients
        weight = int((targets != IGNORED).sum()) / count
        loss = loss + weight * value
        total = {name: weight * g + total.get(name, 0.0) for name, g in gradients.items()}
    return loss, params.replace(total)
