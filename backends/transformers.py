"""transformers' models and logits processors, as a reference: what they make of our parameters and settings.

No backend: torch is. Importing this needs torch and transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.utils import logging

from tinyxp.config import Config
from tinyxp.formats.huggingface import layout
from tinyxp.params import Params
from tinyxp.registry import backend_of


def model(params: Params, dtype: str = "float32") -> Any:
    """transformers' model (GPT-2, Llama or Qwen2) with these parameters, in ``dtype``, attention in the open.

    UnsupportedModelError where no class there computes the config.
    """
    found = _empty(params.config, dtype)
    backend = backend_of(params["embed.weight"])
    arrays = {name: backend.to_numpy(x) for name, x in params.items()}
    rules = layout(params.config)
    state = {
        rule.name: torch.tensor(rule.join([arrays[target] for target in rule.targets])).to(found.dtype)
        for rule in rules
    }
    missing, unexpected = found.load_state_dict(state, strict=False)
    if unexpected or missing not in ([], ["lm_head.weight"] * params.config.tie_embeddings):
        raise AssertionError(f"transformers misses {missing} and does not know {unexpected}")
    found.tie_weights()
    return found.eval()


def load(path: Path) -> Any:
    """transformers' model of a folder, in the folder's own dtype; AssertionError where it misses a weight."""
    with hide_progress():
        answer: Any = transformers.AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
    found, report = answer
    if any(report.values()):
        raise AssertionError(f"transformers reports {report}")
    return found.eval()


def save(found: Any, path: Path) -> None:
    """Writes a model of transformers as a folder."""
    with hide_progress():
        found.save_pretrained(path)


@contextmanager
def hide_progress() -> Iterator[None]:
    """Within it transformers shows no progress."""
    bars: Any = logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def logits(found: Any, ids: Any, **more: Any) -> np.ndarray:
    """What a model of transformers answers to ids (b, t): logits (b, t, n), in its dtype, on NumPy.

    ``more`` are arguments of its forward, such as attention_mask and position_ids, as NumPy arrays.
    """
    given = {name: torch.from_numpy(np.asarray(x)) for name, x in more.items()}
    with torch.no_grad():
        answer = found(input_ids=torch.from_numpy(np.asarray(ids)), use_cache=False, **given)
    return np.asarray(answer.logits.numpy())


def count(config: Config) -> int:
    """How many numbers transformers' model of this config holds, a tied head once; no memory is taken."""
    with torch.device("meta"):
        found = _empty(config, "float32")
    return sum(x.numel() for x in found.parameters())


def processors(
    *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Callable[[np.ndarray], np.ndarray]:
    """A function from logits (b, n) to probabilities: transformers' warpers, in the order of its generate,
    then softmax, all in the dtype of the logits.

    They part from ``tinyxp.sampling.probabilities`` in three ways. TopKLogitsWarper keeps every token that
    equals the k-th, we just k: logits 1, 0, 0, -1 with top_k 2 keep three tokens there, two here. Of equals
    TopPLogitsWarper keeps the higher ids, or others, since it sorts upwards and unstably: of four equals
    with top_p 0.5 it keeps the last two, we the first two. Where the mass before a token is top_p but for
    rounding, rounding decides there, and a tolerance of 5e-7 here: of .5, .3, .15, .05 with top_p 0.8 it
    keeps three tokens, we two. Elsewhere they agree.
    """
    chain: list[Any] = [transformers.TemperatureLogitsWarper(float(temperature))]
    if top_k is not None:
        chain.append(transformers.TopKLogitsWarper(top_k))
    if top_p is not None:
        chain.append(transformers.TopPLogitsWarper(top_p))

    def process(given: np.ndarray) -> np.ndarray:
        scores = torch.from_numpy(given)
        for processor in chain:
            scores = processor(None, scores)
        return np.asarray(torch.softmax(scores, dim=-1).numpy())

    return process


def _empty(config: Config, dtype: str) -> Any:
    """transformers' model of this config, its weights whatever they are."""
    theirs = transformers.AutoConfig.for_model(**config.to_hf())
    make: Any = transformers.AutoModelForCausalLM.from_config
    return make(theirs, dtype=getattr(torch, dtype), attn_implementation="eager")
