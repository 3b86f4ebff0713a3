"""The loss on windows that are not trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tinyxp.checks import as_integer
from tinyxp.inputs import as_params
from tinyxp.ops import IGNORED
from tinyxp.params import Params
from tinyxp.text.windows import Windows
from tinyxp.train.objective import check_windows, compile_loss, on_device, training_kernels


def evaluate(
    params: Params, windows: Windows, *, batch: int = 16, kernels: Mapping[str, Any] | None = None
) -> float:
    """Mean of -log softmax(logits)[target] over all targets of the windows that are not -100, in nats.

    Windows are (count, t), ``batch`` of them at a time, without dropout. ``kernels`` as for
    ``tinyxp.forward``, instead of the backend's.

    Raise ValueError naming what is wrong with the windows, or if they have no target.
    """
    params = as_params(params, None)
    ids, targets = check_windows("windows", windows, params)
    batch = min(as_integer("batch", batch, low=1), len(ids))
    count = int((targets != IGNORED).sum())
    backend = params.backend
    loss = compile_loss(backend, training_kernels(backend, kernels))
    total = 0.0
    for start in range(0, len(ids), batch):
        # The last batch is padded, so that a compiler sees one shape only.
        batch_ids, batch_targets = np.zeros((2, batch, ids.shape[1]), dtype=np.int64)
        batch_targets[:] = IGNORED
        part = slice(start, start + batch)
        batch_ids[: len(ids[part])], batch_targets[: len(ids[part])] = ids[part], targets[part]
        with backend.inference():
            mean = loss(params, on_device(params, batch_ids), on_device(params, batch_targets))
        total += float(backend.to_numpy(mean)) * int((batch_targets != IGNORED).sum())
    return total / count
