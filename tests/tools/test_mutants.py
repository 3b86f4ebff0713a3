"""Wrong decoders: each is wrong where it says, laws of that region see it, and loading one harms nothing."""

from __future__ import annotations

import ast
import types
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp import Config, Params
from tinyxp.config import GPT2
from tinyxp.testing import LAWS, judge
from tinyxp.testing.strategies import random_arrays
from tinyxp.testing.subjects.decoder import Modules
from tools import mutants
from tools.mutants import MUTANTS, Mutant, Patch, load, sources
from tools.mutants.loading import COPIED, CopiedImports, load_subject
from tools.mutants.matrix import breaks, is_reference, killers

NAMES = list(MUTANTS)
SMALL: dict[str, Any] = {
    "vocab_size": 11,
    "n_layers": 2,
    "d_model": 8,
    "d_ff": 12,
    "max_seq_len": 16,
    "norm_eps": 0.1,
}
SCALING = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
CONFIGS: dict[str, tuple[Config, ...]] = {
    "gpt2": (
        Config(**GPT2 | SMALL, n_heads=2, n_kv_heads=2),
        Config(**GPT2 | SMALL | {"mlp": "gelu", "tie_embeddings": False}, n_heads=2, n_kv_heads=2),
    ),
    "llama": (
        Config(**SMALL, n_heads=4, n_kv_heads=2, rope_scaling={"rope_type": "linear", "factor": 4.0}),
        Config(
            **SMALL,
            n_heads=2,
            n_kv_heads=1,
            rope_theta=100.0,
            tie_embeddings=True,
            attn_bias=True,
            attn_out_bias=True,
            mlp_bias=True,
            rope_scaling={"rope_type": "llama3", "factor": 8.0, **SCALING},
        ),
    ),
    "mixed": (
        Config(**SMALL, n_heads=2, n_kv_heads=2, mlp="relu2", norm="layer", head_bias=True, mlp_bias=True),
        Config(**GPT2 | SMALL | {"norm": "rms", "mlp": "relu2"}, n_heads=2, n_kv_heads=1, head_bias=True),
    ),
}
IDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
MASK = np.array([[False, True, False, True, True], [True, True, True, True, True]])
TARGETS = np.array([[-100, 4, -100, 5, 9], [2, 6, 5, 3, 0]])
POSITIONS = np.array([[0, 0, 1, 3, 4], [1, 2, 3, 4, 5]])
WHOLE = ("attention", "batch", "cache", "causality", "embedding", "head", "heads", "loss", "norm", "padding",
         "positions", "residual", "rotation", "structure")  # fmt: skip
"""Regions whose faults a pass in float64 shows, but for those that follow."""
HIDDEN = {
    "cache-changed-in-place", "cache-values-written-in-place", "full-mask-drops-causality", "kernels-ignored",
    "last-column-for-last-real", "loss-nan-of-nothing", "loss-unshifted", "rms-norm-rounded-last",
    "scores-in-half-precision", "up-traced-before-the-gate",
}  # fmt: skip


def params(config: Config, dtype: str = "float64") -> Params:
    return Params({name: x.astype(dtype) for name, x in random_arrays(config, 3).items()}, config)


def results(modules: Modules, family: str) -> list[np.ndarray]:
    """What models of a family compute: a pass with padding, one in chunks, one at given positions, a loss."""
    found = []
    for config in CONFIGS[family]:
        p = params(config)
        cache, chunks = modules.cache.new_cache(p, 2, 7), []
        for start, stop in ((0, 2), (2, 4), (4, 5)):
            piece = slice(start, stop)
            logits, cache = modules.model.extend(p, IDS[:, piece], cache, mask=MASK[:, piece])
            chunks.append(logits)
        found += [modules.model.forward(p, IDS, mask=MASK)[MASK], np.concatenate(chunks, axis=1)[MASK]]
        found += [
            modules.model.forward(p, IDS, positions=POSITIONS),
            modules.model.loss(p, IDS, TARGETS, mask=MASK),
        ]
    return [np.asarray(x) for x in found]


@cache
def expected(family: str) -> list[np.ndarray]:
    return results(load(), family)


# The list


def test_there_are_many_and_each_is_its_own() -> None:
    assert len(MUTANTS) >= 60
    assert all(name == mutant.name for name, mutant in MUTANTS.items())
    assert len({mutant.sentence for mutant in MUTANTS.values()}) == len(MUTANTS)
    assert len({tuple(sources(mutant.patches).values()) for mutant in MUTANTS.values()}) == len(MUTANTS)


@pytest.mark.parametrize("name", NAMES)
def test_patches_fit_and_change_the_module_that_they_name(name: str) -> None:
    mutant, unchanged = MUTANTS[name], sources()
    changed = sources(mutant.patches)
    for patch in mutant.patches:
        assert unchanged[patch.module].count(patch.before) == patch.count
    differing = {module for module in COPIED if changed[module] != unchanged[module]}
    assert differing == {patch.module for patch in mutant.patches}


@pytest.mark.parametrize("name", NAMES)
def test_expected_laws_exist_and_one_is_of_the_mutants_region(name: str) -> None:
    mutant = MUTANTS[name]
    assert set(mutant.killers) <= set(LAWS)
    assert any(LAWS[killer].region == mutant.region for killer in mutant.killers)


@pytest.mark.parametrize("name", NAMES)
def test_an_expected_law_of_its_own_region_sees_it(name: str) -> None:
    mutant = MUTANTS[name]
    assert killers(mutant, [LAWS[killer] for killer in mutant.killers], fast=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # mutants divide by 0 and overflow
@pytest.mark.parametrize("name", NAMES)
def test_a_mutant_harms_the_families_that_it_names_and_no_other(name: str) -> None:
    mutant, modules = MUTANTS[name], load(MUTANTS[name])
    for family in CONFIGS:
        if family == "mixed" and family not in mutant.families:
            continue  # it shares choices with both of the others
        if family not in mutant.families:
            for found, wanted in zip(results(modules, family), expected(family), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
        elif mutant.region in WHOLE and name not in HIDDEN:
            pairs = zip(results(modules, family), expected(family), strict=True)
            assert not all(np.allclose(found, wanted, rtol=1e-9, atol=1e-9) for found, wanted in pairs)


# The copy


@pytest.mark.parametrize("name", [name for name, law in LAWS.items() if not is_reference(law)])
def test_the_copy_without_a_change_keeps_every_law(name: str, unchanged: Any) -> None:
    assert not breaks(unchanged, LAWS[name], 5)


@pytest.fixture(scope="module")
def unchanged() -> Any:
    return load_subject(None)


def test_the_copy_computes_what_tinyxp_computes() -> None:
    own = Modules(**{name: import_module(f"tinyxp.{name}") for name in Modules._fields})
    for family in CONFIGS:
        for found, wanted in zip(results(load(), family), results(own, family), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_copy_imports_copies_and_otherwise_tinyxp_itself() -> None:
    copy, again = load(), load()
    for name in Modules._fields:
        own = import_module(f"tinyxp.{name}")
        assert len({id(module) for module in (own, getattr(copy, name), getattr(again, name))}) == 3
    assert copy.model.Kernels is copy.ops.Kernels
    assert copy.cache.ops is copy.ops
    assert copy.model.compute is copy.decoding.compute
    assert copy.model.rotation is copy.rope.rotation
    assert copy.engine.project is copy.joint.project
    assert copy.tracing.forward is copy.model.forward
    assert copy.generation.new_decoder is copy.engine.new_decoder
    assert copy.generation.Sampler is copy.sampling.Sampler
    assert copy.sampling.softmax is copy.ops.softmax
    assert copy.initialization.parameter_shapes is copy.shapes.parameter_shapes
    assert copy.cache.Cache is copy.decoding.Cache is copy.model.Cache is not tinyxp.Cache
    for name in ("model", "cache", "decoding", "engine", "generation", "initialization"):
        assert getattr(copy, name).Params is Params
    assert copy.initialization.registry is tinyxp.registry
    assert copy.model.Config is Config


@pytest.mark.parametrize("line", ["from tinyxp.ops import linear", "from .ops import linear"])
def test_imports_of_either_style_are_those_of_the_copy(line: str) -> None:
    tree = CopiedImports().visit(ast.parse(line))
    assert ast.unparse(tree) == "from .ops import linear"


@pytest.mark.parametrize("line", ["from tinyxp import ops, registry", "from . import ops, registry"])
def test_an_import_of_modules_is_divided(line: str) -> None:
    tree = CopiedImports().visit(ast.parse(line))
    assert ast.unparse(tree) == "from . import ops\nfrom tinyxp import registry"


def test_a_copys_records_are_whole() -> None:
    copy = load()
    assert copy.sampling.Sampler(temperature=0.5, seed=1) == copy.sampling.Sampler(temperature=0.5, seed=1)
    with pytest.raises(ValueError, match="temperature is -1"):
        copy.sampling.Sampler(temperature=-1)
    config = CONFIGS["llama"][0]
    cached = copy.cache.new_cache(params(config), 1, 3)
    assert cached._replace(used=np.asarray(2)).used == 2
    assert copy.sampling.Sampler.__module__ == copy.sampling.__name__
    assert isinstance(copy.initialization.init(config), Params)


def functions(module: types.ModuleType) -> dict[str, Any]:
    return {name: x for name, x in vars(module).items() if not name.startswith("__")}


def test_loading_a_mutant_leaves_tinyxp_as_it_was() -> None:
    modules = [import_module(f"tinyxp.{name}") for name in COPIED]
    before = [functions(module) for module in modules]
    p = params(CONFIGS["llama"][0])
    logits = tinyxp.forward(p, IDS)
    wrong = load(MUTANTS["rope-backwards"])
    assert not np.allclose(wrong.model.forward(p, IDS), logits)
    np.testing.assert_array_equal(tinyxp.forward(p, IDS), logits)
    after = [functions(module) for module in modules]
    assert all(
        b.keys() == a.keys() and all(b[k] is a[k] for k in b) for b, a in zip(before, after, strict=True)
    )


@pytest.mark.parametrize("name", ["scale-missing", "cache-not-advanced", "rope-on-values", "layer-skipped"])
def test_a_mutants_generation_is_its_own(name: str) -> None:
    modules = load(MUTANTS[name])
    p = params(CONFIGS["llama"][0])
    found = modules.generation.generate(p, IDS, 6)
    assert not np.array_equal(found, tinyxp.generate(p, IDS, 6))
    if name != "cache-not-advanced":
        np.testing.assert_array_equal(found, modules.generation.generate(p, IDS, 6, cache=False))


def test_a_mutant_of_sampling_chooses_wrongly_in_its_generation() -> None:
    wrong = load(MUTANTS["always-greedy"]).generation.generate
    p = params(CONFIGS["gpt2"][0])
    drawn = {"temperature": 5.0, "seed": 0}
    np.testing.assert_array_equal(wrong(p, IDS, 6, **drawn), tinyxp.generate(p, IDS, 6))
    assert not np.array_equal(tinyxp.generate(p, IDS, 6, **drawn), tinyxp.generate(p, IDS, 6))


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_mutants_are_judged_on_other_backends_too(backend: str) -> None:
    pytest.importorskip(backend)
    law = LAWS["causality"]
    assert judge(law, load_subject(None, backend), max_examples=3, derandomize=True).status == "pass"
    wrong = load_subject("mask-missing", backend)
    assert judge(law, wrong, max_examples=5, derandomize=True, shrink=False).status == "fail"


def test_a_mutant_generates_by_itself_where_a_backend_brings_its_own_decoder_and_kernels() -> None:
    pytest.importorskip("torch")
    p = params(CONFIGS["llama"][0]).to(tinyxp.backend("torch").xp)
    for name in ("scale-missing", "step-feeds-the-prompt"):
        found = load(MUTANTS[name]).generation.generate(p, IDS, 6)
        assert not np.array_equal(np.asarray(found), np.asarray(tinyxp.generate(p, IDS, 6)))
    np.testing.assert_array_equal(
        np.asarray(load().generation.generate(p, IDS, 6)), np.asarray(tinyxp.generate(p, IDS, 6))
    )


# What is refused


@pytest.mark.parametrize(
    "patch, message",
    [
        (Patch("ops", "no such line", ""), "its source contains 0 times; it must be 1"),
        (Patch("ops", "widen(x, xp=xp)", "x"), "it must be 1"),
        (Patch("config", "rope", ""), "only ops, rope"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(patch: Patch, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(Mutant("x", "x", (patch,), "norm", (), ("gpt2",)))


def test_unknown_and_double_names_are_refused() -> None:
    with pytest.raises(ValueError, match="mutant is 'nothing'; known are mask-missing, "):
        load_subject("nothing")
    patch = Patch("ops", "x", "y")
    with pytest.raises(ValueError, match="is registered already"):
        mutants.mutant("mask-missing", "Again.", patch, region="norm", killers="")
    with pytest.raises(ValueError, match="is of none of the families"):
        mutants.mutant("new", "New.", patch, region="norm", killers="", families="bert")
    assert "new" not in MUTANTS
