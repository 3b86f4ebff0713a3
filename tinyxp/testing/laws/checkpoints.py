"""Laws of checkpoints: a saved model is loaded bit for bit by tinyxp, and by transformers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tinyxp.config import Config
from tinyxp.dtypes import bare_name
from tinyxp.errors import UnsupportedModelError
from tinyxp.formats import convert, load, load_config, save
from tinyxp.params import Params
from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.references import reference
from tinyxp.testing.strategies import configs, random_arrays, seeds
from tinyxp.testing.subjects.decoder import POOL

OWN = "tinyxp's own contract: save and load"
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 65504.0, 2.0**-14)
"""Numbers that a careless copy changes; all exist in float16."""

law = laws_of("checkpoint", "checkpoint", OWN, "files params")


def model_type_of(config: Config) -> str | None:
    """Return the model_type of transformers' class for a config, or None if it has none.

    GPT-2's class has all biases and no grouped heads. Llama's needs a d_model that n_heads divides. Mistral's
    does not, and has no biases. Qwen2's has biases of q, k and v.
    """
    if config.head_bias:
        return None
    biases = (config.attn_bias, config.attn_out_bias, config.mlp_bias)
    if (config.norm, config.position) == ("layer", "learned") and config.mlp in ("gelu", "gelu_tanh"):
        plain = config.n_heads == config.n_kv_heads and config.n_heads * config.head_dim == config.d_model
        return "gpt2" if plain and all(biases) else None
    if (config.norm, config.position, config.mlp) != ("rms", "rope", "swiglu"):
        return None
    if config.attn_bias == config.attn_out_bias and config.d_model % config.n_heads == 0:
        return "llama"
    return {(False, False, False): "mistral", (True, False, False): "qwen2"}.get(biases)


@st.composite
def squares(draw: st.DrawFn, /, families: tuple[str, ...] = ("gpt2",), **fixed: Any) -> Config:
    """Draw configs whose d_model is the width of all query heads together, as in GPT-2."""
    config = draw(configs(families=families, **fixed))
    return replace(config, d_model=config.n_heads * config.head_dim)


def configs_with_a_class() -> st.SearchStrategy[Config]:
    """Return a strategy for small configs that transformers has a class for."""
    llama_like = partial(configs, families=["llama"], head_bias=False)
    llama = st.booleans().flatmap(
        lambda both: squares(("llama",), attn_bias=both, attn_out_bias=both, head_bias=False)
    )
    qwen2 = llama_like(attn_bias=True, attn_out_bias=False, mlp_bias=False)
    mistral = llama_like(attn_bias=False, attn_out_bias=False, mlp_bias=False)
    return squares() | llama | qwen2 | mistral


def draw_config(subject: Any, draw: Draw) -> Config:
    """Draw a small config, often one that transformers has a class for; one of the pool if pooled."""
    return draw("config", st.sampled_from(POOL) if subject.pooled else configs_with_a_class() | configs())


def draw_params(subject: Any, draw: Draw, config: Config) -> Params:
    """Draw parameters in the subject's library, in one dtype or several, with some special numbers."""
    dtypes = draw("dtypes", st.lists(st.sampled_from(subject.backend.dtypes()), min_size=1, max_size=3))
    arrays = random_arrays(config, draw("seed", seeds()))
    rng = np.random.default_rng(draw("seed of odd numbers", seeds()))
    kinds: dict[str, str] = {}
    for name, x in arrays.items():
        x.flat[int(rng.integers(x.size))] = rng.choice(SPECIAL)
        fused = re.sub(r"attn\.[kv]\.", "attn.q.", name)  # GPT-2 stores the three as one array
        kinds[name] = kinds.get(fused, dtypes[int(rng.integers(len(dtypes)))])
    return Params({name: subject.array(x, kinds[name]) for name, x in arrays.items()}, config)


def same(subject: Any, found: Params, expected: Params) -> None:
    """Raise AssertionError naming the array whose library, dtype, shape or bits differ."""
    same_config(found.config, expected.config)
    subject.equal(list(found), list(expected), "names")
    for name, x in expected.items():
        if not subject.backend.is_array(found[name]) or bare_name(found[name].dtype) != bare_name(x.dtype):
            kind = f"{type(found[name]).__name__} of {found[name].dtype}"
            raise AssertionError(f"{name} is a {kind}; a {type(x).__name__} of {x.dtype} was saved")
        a, b = (np.ascontiguousarray(subject.host(y)) for y in (found[name], x))
        subject.equal(np.isnan(a), np.isnan(b), f"whether {name} is NaN")  # whose bits may differ
        subject.equal(bits(a), bits(b), f"bytes of {name}")


def bits(x: np.ndarray) -> np.ndarray:
    """Return the bytes of numbers, with all NaN alike."""
    return np.where(np.isnan(x), np.asarray(np.nan, dtype=x.dtype), x).view(np.uint8)


def same_config(found: Config, expected: Config) -> None:
    """Raise AssertionError if they differ."""
    if found != expected:
        raise AssertionError(f"the config is {found}, expected {expected}")


def check_unsupported(f: Callable[[], Any]) -> None:
    """Raise AssertionError unless f raises UnsupportedModelError."""
    try:
        f()
    except UnsupportedModelError:
        return
    raise AssertionError("no class of transformers computes this mixture, and no error says so")


@law(
    "A model of any mixture that is saved as .npz is loaded with its config and every bit of every number.",
    examples=20,
)
def npz_keeps_every_bit(subject: Any, draw: Draw) -> None:
    params = draw_params(subject, draw, draw_config(subject, draw))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "new" / "model.npz"
        save(params, path)
        same(subject, load(path, xp=subject.backend.xp), params)
        same_config(load_config(path), params.config)
        with np.load(path) as archive:
            for name, x in params.items():
                subject.equal(archive[name].shape, x.shape, f"shape of {name}, as numpy reads it")


@law(
    "A model saved as a folder is loaded with its config and every bit of every number; a mixture that "
    "transformers has no class for is rejected, and nothing is written.",
    examples=20,
)
def folders_keep_every_bit(subject: Any, draw: Draw) -> None:
    params = draw_params(subject, draw, draw_config(subject, draw))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        if model_type_of(params.config) is None:
            check_unsupported(lambda: save(params, path))
            subject.equal(len(list(Path(folder).iterdir())), 0, "how many files there are")
            return
        save(params, path)
        written = sorted(file.name for file in path.iterdir())
        subject.equal(written, ["config.json", "model.safetensors"], "files")
        same(subject, load(path, xp=subject.backend.xp), params)
        same_config(load_config(path), params.config)


@law("Converting from .npz to a folder and back keeps every bit.", examples=10)
def converting_there_and_back(subject: Any, draw: Draw) -> None:
    params = draw_params(subject, draw, draw_config(subject, draw))
    assume(model_type_of(params.config) is not None)
    with TemporaryDirectory() as name:
        first, folder, second = (Path(name) / x for x in ("a.npz", "b", "c.npz"))
        save(params, first)
        convert(first, folder)
        convert(folder, second)
        same(subject, load(folder, xp=subject.backend.xp), params)
        same(subject, load(second, xp=subject.backend.xp), params)


@law(
    "A config written as Hugging Face's config.json is read back unchanged, with the keys of transformers 4 "
    "and of 5; a mixture without a class there is rejected.",
    source="transformers' GPT2Config, LlamaConfig, MistralConfig and Qwen2Config",
    needs="files",
)
def configs_round_trip(subject: Any, draw: Draw) -> None:
    config = draw_config(subject, draw)
    if model_type_of(config) is None:
        check_unsupported(config.to_hf)
        return
    written = json.loads(json.dumps(config.to_hf()))
    same_config(Config.from_hf(written), config)
    for left_out in (("rope_parameters",), ("rope_theta", "rope_scaling")):
        same_config(Config.from_hf({k: v for k, v in written.items() if k not in left_out}), config)
    subject.equal(written["model_type"], str(model_type_of(config)), "model_type")


@law(
    "transformers loads a saved folder without missing a weight and computes the same logits; what it saves "
    "in turn is the same model, bit for bit.",
    source="transformers' from_pretrained and save_pretrained",
    needs="files params reference-decoder",
    examples=6,
    is_reference=True,
)
def transformers_loads_what_is_saved(subject: Any, draw: Draw) -> None:
    config = draw_config(subject, draw)
    assume(model_type_of(config) is not None)
    model = subject.build(config, random_arrays(config, draw("seed", seeds())))
    ids = model.ids(draw)
    theirs = reference("decoder")
    with TemporaryDirectory() as name:
        ours, again = Path(name) / "ours", Path(name) / "again"
        save(model.params, ours)
        found = theirs.load(ours)
        same_config(Config.from_hf(found.config.to_dict()), config)
        # Its Llama computes rotations and norms in float32, whatever the dtype.
        subject.close(theirs.logits(found, ids), model.forward(ids), "logits of transformers", within=1e-3)
        theirs.save(found, again)
        same(subject, load(again, xp=subject.backend.xp), model.params)
