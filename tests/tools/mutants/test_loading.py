"""Copies of the core: each is its own, computes what tinyxp computes, and leaves tinyxp as it was."""

from __future__ import annotations

import ast
import types
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.tools.mutants.models import CONFIGS, IDS, params, results
from tinyxp import Config, Params
from tinyxp.testing import LAWS, judge
from tinyxp.testing.subjects.decoder import Modules
from tools.mutants import MUTANTS, Mutant, Patch, load
from tools.mutants.loading import COPIED, CopiedImports, load_subject
from tools.mutants.matrix import breaks, is_reference


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


def test_an_unknown_name_is_rejected() -> None:
    with pytest.raises(ValueError, match="mutant is 'nothing'; known are mask-missing, "):
        load_subject("nothing")
