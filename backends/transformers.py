"""transformers' models and logits processors, as a reference to compare with.

The entry ``transformers`` of the group ``tinyxp.references`` is this module. Importing it needs torch and
transformers.
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
from tinyxp.formats.huggingface import list_rules
from tinyxp.params import Params
from tinyxp.registry import backend_of


def model(params: Params, dtype: str = "float32") -> Any:
    """Return transformers' model (GPT-2, Llama or Qwen2) with these parameters in ``dtype``, eager attention.

    Raise UnsupportedModelError if none of its classes computes the config.
    """
    network = _empty(params.config, dtype)
    backend = backend_of(params["embed.weight"])
    arrays = {name: backend.to_numpy(x) for name, x in params.items()}
    rules = list_rules(params.config)
    state = {
        rule.name: torch.tensor(rule.join([arrays[target] for target in rule.targets])).to(network.dtype)
        for rule in rules
    }
    missing, unexpected = network.load_state_dict(state, strict=False)
    if unexpected or missing not in ([], ["lm_head.weight"] * params.config.tie_embeddings):
        raise AssertionError(f"transformers misses {missing} and does not know {unexpected}")
    network.tie_weights()
    return network.eval()


def load(path: Path) -> Any:
    """Load transformers' model of a folder in its own dtype; raise AssertionError for a missing weight."""
    with hide_progress():
        answer: Any = transformers.AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
    network, report = answer
    if any(report.values()):
        raise AssertionError(f"transformers reports {report}")
    return network.eval()


def save(network: Any, path: Path) -> None:
    """Write a model of transformers as a folder."""
    with hide_progress():
        network.save_pretrained(path)


@contextmanager
def hide_progress() -> Iterator[None]:
    """Return a context in which transformers shows no progress bars."""
    bars: Any = logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def logits(network: Any, ids: Any, **arrays: Any) -> np.ndarray:
    """Return the logits (b, t, n) of a model of transformers for ids (b, t), in its dtype, on NumPy.

    ``arrays`` are further arguments of its forward, such as attention_mask and position_ids.
    """
    tensors = {name: torch.from_numpy(np.asarray(x)) for name, x in arrays.items()}
    with torch.no_grad():
        answer = network(input_ids=torch.from_numpy(np.asarray(ids)), use_cache=False, **tensors)
    return np.asarray(answer.logits.numpy())


def count(config: Config) -> int:
    """Count the parameters of transformers' model of this config, a tied head once, without memory."""
    with torch.device("meta"):
        network = _empty(config, "float32")
    return sum(x.numel() for x in network.parameters())


def processors(
    *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from logits (b, n) to probabilities: transformers' warpers, then softmax.

    The warpers run in the order of its generate, all in the dtype of the logits. They differ from
    ``tinyxp.sampling.probabilities`` in three ways:

    - TopKLogitsWarper keeps every token equal to the k-th, tinyxp exactly k. Of logits 1, 0, 0, -1 with
      top_k 2 it keeps three tokens, tinyxp two.
    - Of equal tokens TopPLogitsWarper may keep any, because its ascending sort is unstable; tinyxp keeps
      the lowest ids. Of four equals with top_p 0.5 it keeps the last two, tinyxp the first two.
    - If the mass before a token is top_p within rounding, rounding decides in transformers, a tolerance of
      5e-7 in tinyxp. Of .5, .3, .15, .05 with top_p 0.8 it keeps three tokens, tinyxp two.
    """
    chain: list[Any] = [transformers.TemperatureLogitsWarper(float(temperature))]
    if top_k is not None:
        chain.append(transformers.TopKLogitsWarper(top_k))
    if top_p is not None:
        chain.append(transformers.TopPLogitsWarper(top_p))

    def process(logits: np.ndarray) -> np.ndarray:
        scores = torch.from_numpy(logits)
        for processor in chain:
            scores = processor(None, scores)
        return np.asarray(torch.softmax(scores, dim=-1).numpy())

    return process


def _empty(config: Config, dtype: str) -> Any:
    """Return transformers' model of this config with arbitrary weights."""
    theirs = transformers.AutoConfig.for_model(**config.to_hf())
    make: Any = transformers.AutoModelForCausalLM.from_config
    return make(theirs, dtype=getattr(torch, dtype), attn_implementation="eager")
