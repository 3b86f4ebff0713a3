"""The comparisons: each function builds the models that it needs and returns a Contest."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from tinyxp.backends import transformers as peer

import tinyxp
from tinyxp import Config, Params
from tinyxp.bench.limits import product, weights_pass
from tinyxp.bench.work import draw_ids
from tinyxp.engine import engine_of, new_decoder
from tinyxp.text.windows import Windows
from tinyxp.train import Recipe, fit

from .contest import Contest, Ratio
from .plain import plain_step

PROMPT = 128
FORWARD = inspect.signature(transformers.LlamaForCausalLM.forward).parameters
ARGUMENT = (
    "cache" if "cache" in FORWARD else "past_key_values"
)  # its name from transformers 5.24 on, and before
LIBRARIES = ("numpy", "torch", "jax")


def params_by_library(config: Config, dtype: str = "float32") -> dict[str, Params]:
    """Return equal random parameters in each library, prepared for decoding."""
    params = tinyxp.init(config)
    adapters = {name: tinyxp.backend(name) for name in LIBRARIES}
    return {name: engine_of(b).prepare(params.to(b.xp, dtype=dtype)) for name, b in adapters.items()}


def peer_model(params: Params, attention: str) -> Any:
    """Return transformers' model with these parameters."""
    model = peer.model(params)
    model.set_attn_implementation(attention)
    return model


@torch.no_grad()
def peer_logits(model: Any, ids: torch.Tensor, **more: Any) -> Any:
    return model(input_ids=ids, **more)


def tiny(rows: int, columns: int) -> dict[str, Callable[[], Any]]:
    """Return forward, compiled forward and transformers on the default model of 26,784 parameters."""
    params = tinyxp.init(Config())
    ids = draw_ids(params, rows, columns)
    here = {"numpy": ids, "torch": torch.from_numpy(ids), "jax": jnp.asarray(ids, jnp.int32)}
    functions: dict[str, Callable[[], Any]] = {}
    for attention in ("eager", "sdpa"):
        model = peer_model(params, attention)
        functions[f"transformers {attention}"] = lambda model=model: peer_logits(
            model, here["torch"], use_cache=False
        )
    jitted = jax.jit(tinyxp.forward)
    for name in LIBRARIES:
        backend = tinyxp.backend(name)
        there, x = params.to(backend.xp), here[name]
        fast = backend.compile(there)
        pure = jitted if name == "jax" else tinyxp.forward
        functions[f"{name} forward"] = lambda b=backend, f=pure, p=there, x=x: b.synchronize(f(p, x))
        functions[f"{name} compiled"] = lambda b=backend, f=fast, x=x: b.synchronize(f(x))
        if name == "torch":
            functions["torch compiled, torch.compile"] = partial(backend.jit(fast), x)
    return functions


def tiny_short() -> Contest:
    """Tiny model, ids (2, 5): overhead only."""
    functions = tiny(2, 5)
    goals = {
        "numpy forward": 0.40,
        "torch forward": 0.50,
        "jax forward": 0.18,
        "numpy compiled": 0.25,
        "torch compiled": 0.40,
        "torch compiled, torch.compile": 0.40,
        "jax compiled": 0.10,
    }
    ratios = [Ratio(name, "transformers eager", goal) for name, goal in goals.items()]
    return Contest(functions, ratios, calls=300)


def tiny_long() -> Contest:
    """Tiny model, ids (8, 64)."""
    functions = tiny(8, 64)
    goals = {"numpy": 1.5, "torch": 0.8, "jax": 0.5}
    ratios = [
        Ratio(f"{name} {form}", "transformers sdpa", goal)
        for name, goal in goals.items()
        for form in ("forward", "compiled")
    ]
    ratios.append(Ratio("torch compiled, torch.compile", "transformers sdpa", goals["torch"]))
    return Contest(functions, ratios, calls=100)


def prefill(preset: str, goals: dict[str, float]) -> Contest:
    """Prefill of 128 tokens, the head at the last position only."""
    config = Config.preset(preset)
    found = params_by_library(config)
    ids = draw_ids(found["numpy"], 1, PROMPT)
    there = torch.from_numpy(ids)
    functions: dict[str, Callable[[], Any]] = {}
    for attention in ("eager", "sdpa"):
        model = peer_model(found["numpy"], attention)
        functions[f"transformers {attention}"] = lambda model=model: peer_logits(
            model, there, use_cache=True, logits_to_keep=1
        )
    ratios = []
    operations = 2 * PROMPT * multiplied(config)
    for name, params in found.items():
        best = product(params)
        functions[name] = lambda params=params: new_decoder(params, 1, PROMPT)(ids)
        functions[f"{name} matrix product"] = best.work
        ratios.append(Ratio(name, "transformers sdpa", goals.get(name)))
        # Seconds per operation, of the prefill over the product: the inverse of its share of the rate.
        share = 1 / 0.6 if goals else None
        ratios.append(Ratio(name, f"{name} matrix product", share, best.amount / operations))
    return Contest(functions, ratios)


def multiplied(config: Config) -> int:
    """Return the size of the matrices that multiply every token; the head, for one token, is left out."""
    counts = tinyxp.count_parameters(config)
    return counts["attention"] + counts["mlp"]


def decode(preset: str, goals: dict[str, float]) -> Contest:
    """A token at position 128, with caches of 256 and of 2,048 slots."""
    config = Config.preset(preset)
    found = params_by_library(config)
    functions: dict[str, Callable[[], Any]] = {"transformers": peer_step(found["numpy"])}
    ratios = []
    for name, params in found.items():
        functions[f"{name} matrix-vector"] = vector_pass(params)
        for length in (256, 2048):
            functions[f"{name}, cache {length}"] = step(params, length)
            ratios.append(Ratio(f"{name}, cache {length}", f"{name} matrix-vector", goals.get("limit")))
        ratios.append(Ratio(f"{name}, cache 256", "transformers", goals.get(name)))
    return Contest(functions, ratios, calls=16)


def step(params: Params, length: int) -> Callable[[], Any]:
    """One token of a decoder whose cache has ``length`` slots, 128 or a few more of them in use."""
    prompt = draw_ids(params, 1, PROMPT)
    decoder = new_decoder(params, 1, length)
    decoder(prompt)

    def one() -> None:
        if decoder.used >= PROMPT + 64:
            start(decoder)
        decoder(prompt[:, :1])

    def start(decoder: Any) -> None:
        back = decoder.used - PROMPT
        cache = decoder.cache
        decoder.used = PROMPT
        decoder.cache = cache._replace(used=cache.used - back, next_position=cache.next_position - back)

    return one


def peer_step(params: Params) -> Callable[[], Any]:
    """One token of transformers with its cache, at the same position."""
    model = peer_model(params, "sdpa")
    prompt = torch.from_numpy(draw_ids(params, 1, PROMPT))
    first = peer_logits(model, prompt, use_cache=True).past_key_values
    cache = copy.deepcopy(first)

    def one() -> None:
        nonlocal cache
        if cache.get_seq_length() >= PROMPT + 64:
            cache = copy.deepcopy(first)
        peer_logits(model, prompt[:, :1], use_cache=True, **{ARGUMENT: cache})

    return one


def vector_pass(params: Params) -> Callable[[], Any]:
    """Return the library's own products of every matrix with a vector: what a token must read."""
    backend = params.backend
    matrices = []
    together = params.join()
    for i in range(params.config.n_layers):
        weights = {name: x for name, x in together.block(i).items() if x.ndim == 2}
        parts = {part for name in weights if "+" in name for part in name.removesuffix(".weight").split("+")}
        matrices += [x for name, x in weights.items() if name.removesuffix(".weight") not in parts]
    matrices.append(params["embed.weight"])
    dtype = tinyxp.dtype_name(params.dtype)
    vectors = {
        width: backend.from_numpy(np.ones(width), dtype=dtype) for width in {w.shape[1] for w in matrices}
    }
    if params.backend.name != "jax":
        multiply = torch.mv if backend.name == "torch" else np.matmul

        def eager() -> None:
            with backend.inference():
                for w in matrices:
                    multiply(w, vectors[w.shape[1]])

        return eager

    @jax.jit
    def one_after_another(matrices: list[Any], vectors: dict[int, Any]) -> list[Any]:
        results, wait = [], jnp.zeros((), vectors[min(vectors)].dtype)
        for w in matrices:
            results.append((vectors[w.shape[1]] + wait)[None] @ w.T)
            wait = 1e-30 * results[-1][0, 0]  # keeps XLA from running them in parallel
        return results

    return lambda: jax.block_until_ready(one_after_another(matrices, vectors))


def narrow() -> Contest:
    """bfloat16 and int8 compared with our own float32, on torch."""
    params = tinyxp.init(Config.preset("smollm2-135m"))
    backend = tinyxp.backend("torch")
    ids = draw_ids(params, 1, PROMPT)
    functions: dict[str, Callable[[], Any]] = {}
    wide = params.to(backend.xp)
    kinds = {
        "float32": engine_of(backend).prepare(wide),
        "bfloat16": engine_of(backend).prepare(wide.to(dtype="bfloat16")),
        "int8": engine_of(backend).quantize(wide),
    }
    for dtype, there in kinds.items():
        functions[f"{dtype} prefill"] = lambda there=there: new_decoder(there, 1, PROMPT)(ids)
        functions[f"{dtype} decode"] = step(there, 256)
        functions[f"{dtype} products of decode"] = weights_pass(there).work
    for dtype in ("float32", "bfloat16"):
        functions[f"{dtype} matrix product"] = product(kinds[dtype]).work
    ratios = [
        Ratio("bfloat16 prefill", "float32 prefill", 0.4),
        Ratio("bfloat16 decode", "float32 decode", 0.65),
        Ratio("int8 decode", "float32 decode", 0.45),
        Ratio("int8 prefill", "float32 prefill"),
        Ratio("bfloat16 matrix product", "float32 matrix product"),
        Ratio("bfloat16 products of decode", "float32 products of decode"),
        Ratio("int8 products of decode", "float32 products of decode"),
    ]
    return Contest(functions, ratios, calls=4)


def training() -> Contest:
    """A step of training, 16 windows of 128 tokens of the book model: loss, gradient, clipping and AdamW."""
    config = Config.preset("book")
    params = tinyxp.init(config)
    ids = draw_ids(params, 16, PROMPT)
    windows = Windows(ids, np.roll(ids, -1, axis=1))
    functions: dict[str, Callable[[], Any]] = {
        "plain torch": plain_step(config, *map(torch.from_numpy, windows))
    }
    for name in ("torch", "jax"):
        reports = fit(params.to(tinyxp.backend(name).xp), windows, None, Recipe(steps=10**9))
        next(reports)  # the report of step 0
        functions[name] = partial(next, reports)
    return Contest(functions, [Ratio(name, "plain torch", 1.0) for name in ("torch", "jax")])


CONTESTS: dict[str, Callable[[], Contest]] = {
    "tiny-2x5": tiny_short,
    "tiny-8x64": tiny_long,
    "smollm2-prefill": lambda: prefill("smollm2-135m", {"torch": 0.9, "jax": 0.9, "numpy": 1.3}),
    "smollm2-decode": lambda: decode("smollm2-135m", {"limit": 1.2, "torch": 0.75}),
    "gpt2-prefill": lambda: prefill("gpt2", {}),
    "gpt2-decode": lambda: decode("gpt2", {}),
    "narrow": narrow,
    "training": training,
}
