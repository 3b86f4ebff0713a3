"""What the model requests of an array library, found by running it on arrays that record every use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tinyxp import registry
from tinyxp.cache import new_cache
from tinyxp.config import GPT2, Config, RopeScaling
from tinyxp.engine import new_decoder
from tinyxp.generation import generate
from tinyxp.initialization import init
from tinyxp.model import extend, forward, loss
from tinyxp.sampling import draw, greedy, probabilities
from tinyxp.typing import Namespace

from .recorder import Recorder, Use, registered

STAGES = ("forward", "step", "loss", "sampling", "generate", "params")

_SMALL: dict[str, Any] = {"vocab_size": 11, "n_layers": 1, "d_model": 8, "n_heads": 2, "d_ff": 12}
_GPT2 = Config(**GPT2, **_SMALL, n_kv_heads=2, max_seq_len=16)
_LLAMA = Config(**_SMALL, n_kv_heads=1)
_LINEAR = RopeScaling(rope_type="linear", factor=2.0)
_LLAMA3 = RopeScaling(rope_type="llama3", factor=8.0, original_max_seq_len=16)

FAMILIES: dict[str, tuple[Config, ...]] = {
    "GPT-2": (_GPT2, replace(_GPT2, tie_embeddings=False)),
    "Llama": (
        _LLAMA,
        replace(_LLAMA, attn_bias=True, rope_scaling=_LINEAR),
        replace(_LLAMA, tie_embeddings=True, rope_scaling=_LLAMA3),
    ),
    "erf GELU": (replace(_GPT2, mlp="gelu"),),
}
"""Small models: heads tied and untied, rotary frequencies plain and scaled, with and without biases."""

IDS = [[3, 1, 4, 1], [5, 9, 2, 6]]
TARGETS = [[1, 4, 1, -100], [9, 2, 6, 5]]
MASK = [[False, True, True, True], [True, True, True, True]]
POSITIONS = [[0, 0, 1, 2], [0, 1, 2, 3]]


@dataclass(frozen=True)
class Usage:
    """What was requested of the library, each with the pairs of a stage and a family that requested it.

    Kinds of use: "function" (the standard's), "operator", "index", "attribute", "named dtype" and "constant"
    (of the namespace), "dtype" (of an array that it returned), "broadcasting", "promotion", "in place", and
    "outside" (what the standard does not have). Sampling belongs to the family "".
    """

    uses: Mapping[Use, frozenset[tuple[str, str]]]

    def names(self, kind: str, *, stage: str | None = None, family: str | None = None) -> set[str]:
        """Return the names of one kind that this stage of this family uses; None means any."""
        uses = [use for use in self.uses if use.kind == kind]
        return {
            use.name
            for use in uses
            if any(stage in (None, s) and family in (None, f) for s, f in self.uses[use])
        }


def array_api_usage(xp: Namespace | None = None) -> Usage:
    """Run every stage of every family, in all forms that their arguments take, and return what they used.

    ``xp`` computes; by default array_api_strict with its optional features off, or NumPy if that is not
    installed. NumPy computes in float16, which array_api_strict lacks.
    """
    if xp is None:
        installed = registry.available_backends().get("strict") is not None
        xp = registry.backend("strict").xp if installed else np
    uses: dict[Use, set[tuple[str, str]]] = defaultdict(set)
    for base, dtype in ((xp, "float32"), (xp, "float64"), (np, "float16")):
        recorder = Recorder(base)
        with registered(recorder):
            _run(recorder, dtype)
        for use, where in recorder.uses.items():
            uses[use] |= where
    return Usage({use: frozenset(where) for use, where in uses.items()})


def _run(recorder: Recorder, dtype: str) -> None:
    """Run every stage of every family in one dtype."""
    xp = recorder.namespace
    for family, config in ((family, config) for family, configs in FAMILIES.items() for config in configs):
        recorder.where = ("params", family)
        params = init(config, xp=xp, dtype=dtype)
        params.to(np)
        params.to(device=params.device)
        params.to(dtype="float64" if dtype == "float32" else "float32")
        for ids, targets, given in _inputs(recorder):
            recorder.where = ("forward", family)
            forward(params, ids, **given)
            recorder.where = ("loss", family)
            loss(params, ids, targets, **given)
            recorder.where = ("step", family)
            for last in (False, True):
                _, cache = extend(params, ids, new_cache(params, 2, 5), last=last, **given)
                extend(params, [[7], [8]], cache, last=last)
        recorder.where = ("generate", family)
        generate(params, IDS, 2, mask=MASK)
        new_decoder(params, 2, 2)(np.asarray(IDS))  # a cache that has to grow
    recorder.where = ("sampling", "")
    logits = recorder.array(np.linspace(-2.0, 2.0, 8).reshape(2, 4).astype(dtype))
    uniforms = recorder.array(np.asarray([0.25, 0.75], "float64" if dtype == "float64" else "float32"))
    greedy(logits, xp=xp)
    for top_k, top_p in ((None, None), (3, None), (None, 0.9), (3, 0.9)):
        draw(probabilities(logits, temperature=0.8, top_k=top_k, top_p=top_p, xp=xp), uniforms, xp=xp)


def _inputs(recorder: Recorder) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Yield ids and targets, with and without mask and positions, on NumPy and as arrays of the library."""
    for convert in (np.asarray, recorder.array):
        for positions in (None, POSITIONS):
            for mask in (None, MASK):
                given = {"positions": positions, "mask": mask}
                yield convert(IDS), convert(TARGETS), {k: v and convert(v) for k, v in given.items()}
    yield IDS, TARGETS, {"mask": recorder.array(np.asarray(MASK, dtype=np.int64))}
