"""Other people's models: right ones pass, broken ones raise what names the law that they break."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import GPT2_CONFIG, LLAMA_CONFIG, drawn, host, kind, libraries
from tinyxp import ops
from tinyxp.testing import LawBroken, Subject, check_model, foreign, parametrize_with_laws

LIMITS = {"vocab_size": 11, "max_seq_len": 16}
MODELS = {
    name: drawn(replace(config, n_layers=1), std=0.5)
    for name, config in (("gpt2", GPT2_CONFIG), ("llama", LLAMA_CONFIG))
}


class Model:
    """A decoder as anybody might have one; its methods are what can go wrong with it."""

    def __init__(self, params: tinyxp.Params) -> None:
        self.params = params
        self.kernels: dict[str, Any] = {}

    def __call__(self, ids: Any, **named: Any) -> Any:
        return tinyxp.forward(self.params, ids, kernels=self.kernels, **named)

    def step(self, ids: Any, cache: Any, mask: Any = None) -> Any:
        cache = cache or tinyxp.new_cache(self.params, len(ids), 16)
        return tinyxp.extend(self.params, ids, cache, mask=mask)


def check(model: Model, **settings: Any) -> list[Any]:
    abilities: dict[str, Any] = {"mask": True, "positions": True, "step": model.step} | settings
    return check_model(model, **LIMITS, max_examples=15, **abilities)


@pytest.mark.parametrize("name", MODELS)
def test_a_right_model_passes(name: str) -> None:
    verdicts = check(Model(MODELS[name]), rotary=name == "llama")
    assert {verdict.status for verdict in verdicts} == {"pass"}
    names = [verdict.law.name for verdict in verdicts]
    assert {"causality", "padding-invariance", "cache-equals-full-pass", "positions-count-from-0"} <= set(
        names
    )
    assert ("shift-invariance" in names) is (name == "llama")


def test_only_what_it_can_is_asked_of_a_model() -> None:
    params = MODELS["llama"]
    verdicts = check_model(lambda ids: tinyxp.forward(params, ids), **LIMITS, max_examples=3)
    assert {"causality", "prefix-invariance", "rows-are-independent"} <= {v.law.name for v in verdicts}
    assert {frozenset()} == {v.law.needs for v in verdicts}
    (only,) = check(Model(params), laws="causality", step=None)[:1]
    assert only.law.name == "causality"


def sees_everything(q: Any, k: Any, v: Any, visible: Any, *, xp: Any, tap: Any) -> Any:
    return ops.attention(q, k, v, np.ones_like(visible), xp=xp, tap=tap)


class NoCausalMask(Model):
    def __init__(self, params: tinyxp.Params) -> None:
        super().__init__(params)
        self.kernels = {"attention": sees_everything}


class MixesRows(Model):
    def __call__(self, ids: Any, **named: Any) -> Any:
        logits = super().__call__(ids, **named)
        return logits + 0.1 * np.mean(logits, axis=0, keepdims=True)


class PositionsOffByOne(Model):
    """Every step but the first counts from one too many."""

    def step(self, ids: Any, cache: Any, mask: Any = None) -> Any:
        if cache is not None:
            cache = cache._replace(next_position=cache.next_position + 1)
        return super().step(ids, cache, mask)


class AttendsToPadding(Model):
    """Positions are right, but padding is seen."""

    def __call__(self, ids: Any, mask: Any = None, positions: Any = None) -> Any:
        if mask is not None:
            positions = np.maximum(np.cumsum(mask, axis=-1) - 1, 0)
        return super().__call__(ids, positions=positions)


class CountsPadding(Model):
    """Padding is not seen, but takes positions."""

    def __call__(self, ids: Any, mask: Any = None, positions: Any = None) -> Any:
        if mask is not None:
            positions = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
        return super().__call__(ids, mask=mask, positions=positions)


class PositionsFromOne(Model):
    def __call__(self, ids: Any, mask: Any = None, positions: Any = None) -> Any:
        return super().__call__(ids, mask=mask, positions=None if positions is None else positions + 1)


class CacheForgetsTheMask(Model):
    def step(self, ids: Any, cache: Any, mask: Any = None) -> Any:
        return super().step(ids, cache)


class StretchesPositions(Model):
    """Rotary angles that do not grow in step with positions: shifts are seen."""

    def __call__(self, ids: Any, mask: Any = None, positions: Any = None) -> Any:
        return super().__call__(ids, mask=mask, positions=None if positions is None else positions**2)


BROKEN = [
    (NoCausalMask, "causality prefix-invariance", "rows-are-independent positions-count-from-0"),
    (MixesRows, "rows-are-independent", "causality prefix-invariance"),
    (PositionsOffByOne, "cache-equals-full-pass", "causality padding-invariance"),
    (AttendsToPadding, "padding-invariance padding-is-unseen", "causality cache-equals-full-pass"),
    (CountsPadding, "padding-invariance", "causality padding-is-unseen cache-equals-full-pass"),
    (PositionsFromOne, "positions-count-from-0", "causality padding-invariance cache-equals-full-pass"),
    (CacheForgetsTheMask, "padded-cache-equals-full-pass", "padding-invariance cache-equals-full-pass"),
]


@pytest.mark.parametrize("model, broken, kept", BROKEN, ids=[model.__name__ for model, _, _ in BROKEN])
def test_a_broken_model_is_told_which_laws_it_breaks(model: type[Model], broken: str, kept: str) -> None:
    with pytest.raises(LawBroken) as error:
        check(model(MODELS["gpt2"]), name="mine", laws=",".join([*broken.split(), *kept.split()]))
    text = str(error.value)
    told = set(re.findall(r"\n\n(\S+), by mine: ", text))
    assert told == set(broken.split())
    assert text.startswith(f"mine breaks {len(told)} of ")
    assert text.count("  To reproduce:") == len(told)


def test_rotary_positions_that_are_not_relative() -> None:
    with pytest.raises(LawBroken, match="shift-invariance, by"):
        check(StretchesPositions(MODELS["llama"]), rotary=True)


def test_the_lines_of_a_report_show_it_again() -> None:
    model = AttendsToPadding(MODELS["llama"])
    subject = foreign(model, **LIMITS, mask=True, positions=True, step=model.step)
    with pytest.raises(LawBroken) as broken:
        check(model, laws="padding-is-unseen")
    lines = [line.removeprefix("    ") for line in str(broken.value).splitlines() if line.startswith("    ")]
    assert subject.recipe in lines[-1]
    with pytest.raises(AssertionError, match="logits of real tokens"):
        exec("\n".join(lines), {"function": model, "step": model.step})


@pytest.mark.parametrize("library", libraries("numpy", "torch", "jax", "strict"))
def test_arrays_come_as_those_of_the_library_that_is_named(library: str) -> None:
    backend, seen = tinyxp.backend(library), set()

    def model(ids: Any, **named: Any) -> Any:
        arrays = {"ids": ids, **named}
        assert all(backend.is_array(x) for x in arrays.values())
        seen.update((name, kind(x)) for name, x in arrays.items())
        return tinyxp.forward(MODELS["llama"], **{name: host(x) for name, x in arrays.items()})

    check_model(model, **LIMITS, xp=backend.xp, mask=True, positions=True, max_examples=3)
    integers = backend.index_dtype
    assert seen == {("ids", integers), ("positions", integers), ("mask", "bool")}


def test_an_exception_and_a_wrong_shape_break_laws() -> None:
    def raises(ids: Any) -> Any:
        raise RuntimeError("no such expert")

    with pytest.raises(LawBroken, match="RuntimeError: no such expert"):
        check_model(raises, **LIMITS)

    def last_only(ids: Any) -> Any:
        return tinyxp.forward(MODELS["llama"], ids)[:, -1]

    with pytest.raises(LawBroken, match=r"logits have shape \(1, 11\); \(batch, time, vocabulary\) is"):
        check_model(last_only, **LIMITS)


def test_the_dtype_decides_what_rounding_may_do() -> None:
    def wobbles(ids: Any) -> Any:
        logits = tinyxp.forward(MODELS["llama"], ids)
        return logits + 1e-6 * ids[:, -1:, None]

    assert check_model(wobbles, **LIMITS, laws="causality", max_examples=20)
    with pytest.raises(LawBroken, match="causality"):
        check_model(wobbles, **LIMITS, laws="causality", max_examples=20, dtype="float64")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"max_seq_len": 2.5}, "max_seq_len is 2.5"),
        ({"dtype": "float8"}, "dtype is 'float8'"),
        ({"rotary": True}, "rotary is True, but positions is False"),
        ({"step": 3}, "each must be a function"),
        ({"laws": "no-such"}, "laws is 'no-such'"),
        ({"laws": "padding"}, "laws is 'padding', none of which applies to mine: it takes no mask"),
        ({"max_examples": 0}, "max_examples is 0"),
        ({"xp": "nunpy"}, "backend is 'nunpy'"),
    ],
)
def test_arguments_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_model(lambda ids: ids, **LIMITS | {"name": "mine"} | settings)


RIGHT, WRONG = (foreign(make(MODELS["llama"]), **LIMITS, name=make.__name__) for make in (Model, MixesRows))


@parametrize_with_laws([RIGHT, WRONG], "causality,batch")
def test_each_subject_by_each_law(subject: Subject, law: Any, request: pytest.FixtureRequest) -> None:
    assert request.node.name == f"test_each_subject_by_each_law[{subject.name}-{law.name}]"
    if subject is WRONG and law.region == "batch":
        with pytest.raises(LawBroken, match="MixesRows"):
            law(subject)
    else:
        law(subject, max_examples=10)


def test_laws_that_do_not_apply_are_no_cases() -> None:
    with pytest.raises(ValueError, match="none of which applies to Model"):
        parametrize_with_laws([RIGHT], "padding")
    with pytest.raises(ValueError, match="subjects is empty"):
        parametrize_with_laws([])
    cases = parametrize_with_laws([RIGHT]).args[1]
    assert all(law.needs == frozenset() for _, law in (case.values for case in cases))
