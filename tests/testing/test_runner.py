"""Judging: what breaks a law is shrunk, told, and seen again by the lines that are printed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import libraries
from tinyxp import Config
from tinyxp.testing import LAWS, Draw, Law, LawBroken, Subject, foreign, judge, law, replay, select, subject
from tinyxp.testing.draws import as_source
from tinyxp.testing.strategies import configs, token_ids


@pytest.fixture
def laws() -> Iterator[None]:
    """Laws that are registered in a test are gone after it."""
    before = dict(LAWS)
    yield
    LAWS.clear()
    LAWS.update(before)


@pytest.fixture
def small_ids(laws: None) -> Law:
    """Broken by any id of 3 or more in a model of two blocks or more."""

    @law("In deep models ids are below 3.", of="model", region="here", source="nowhere", needs="params")
    def small_ids(subject: Subject, draw: Draw) -> None:
        config = draw("config", configs(n_layers=(1, 2)))
        ids = draw("ids", token_ids(config))
        limit = draw("limit", st.just(np.array([2.0])))
        if config.n_layers > 1:
            subject.equal(np.maximum(ids, limit), np.full(np.shape(ids), 2.0), "ids")

    return small_ids


BROKEN = {"config": Config(vocab_size=4), "ids": [[3]], "limit": np.array([2.0])}
"""An example that breaks it."""


@pytest.fixture
def numpy() -> Subject:
    return subject("numpy")


def test_a_law_that_holds(numpy: Subject) -> None:
    verdict = judge(LAWS["causality"], numpy, max_examples=5)
    assert (verdict.status, verdict.reason, verdict.example) == ("pass", "", None)
    LAWS["causality"](numpy, max_examples=5)


def test_a_broken_law_is_shrunk_to_its_smallest_example(small_ids: Law, numpy: Subject) -> None:
    verdict = judge(small_ids, numpy, derandomize=True)
    assert verdict.status == "fail"
    assert verdict.reason == "ids at (0, 0) is 3.0, expected exactly 2.0"
    assert verdict.example is not None
    example = dict(verdict.example)
    config = example.pop("config")
    assert example == {"ids": [[3]], "limit": np.array([2.0])}
    assert (config.vocab_size, config.n_layers, config.n_heads, config.d_ff) == (4, 2, 1, 1)
    report = verdict.report()
    assert report.startswith(
        "small-ids, by numpy: In deep models ids are below 3.\n  ids at (0, 0) is 3.0, exp"
    )
    assert report.count("\n") == 2 + 5
    with pytest.raises(LawBroken) as broken:
        small_ids(numpy, max_examples=200)
    assert "small-ids, by numpy" in str(broken.value)


def test_its_lines_show_it_again(small_ids: Law, numpy: Subject) -> None:
    verdict = judge(small_ids, numpy, derandomize=True)
    lines = verdict.snippet()
    assert lines.count("\n") == 4
    with pytest.raises(AssertionError, match=r"^ids at \(0, 0\) is 3.0, expected exactly 2.0$"):
        exec(lines, {})


@pytest.mark.parametrize("library", libraries("numpy", "torch", "strict", "jax"))
def test_an_example_is_seen_again_on_every_backend(small_ids: Law, library: str) -> None:
    with pytest.raises(AssertionError, match=r"^ids at \(0, 0\) is 3.0"):
        replay("small-ids", BROKEN, subject(library))
    replay("small-ids", {**BROKEN, "ids": [[2]]}, subject(library))


@pytest.mark.parametrize("library", libraries("torch", "strict", "jax"))
def test_a_model_is_drawn_once_for_all_backends(library: str) -> None:
    drawn = Draw(lambda name, strategy: DRAWN[name])
    expected = subject("numpy").model(drawn).forward([[1, 2, 0]])
    there = subject(library)
    with there.active():
        there.close(there.model(drawn).forward(np.array([[1, 2, 0]])), expected, "logits")


DRAWN = {"config": Config(vocab_size=3, d_model=6, n_heads=3, n_kv_heads=1, d_ff=5), "seed": 3}


def test_two_runs_draw_the_same(small_ids: Law, numpy: Subject) -> None:
    first, second = (judge(small_ids, numpy, max_examples=50, derandomize=True) for _ in range(2))
    assert first.report() == second.report()


def test_shrinking_can_be_left_out(laws: None, numpy: Subject) -> None:
    tried = []

    @law("Numbers are small.", of="op", region="here", source="nowhere")
    def numbers_are_small(subject: Subject, draw: Draw) -> None:
        tried.append(draw("x", st.integers(0, 10**6)))
        assert tried[-1] < 100

    whole = judge(numbers_are_small, numpy, derandomize=True)
    assert whole.example == {"x": 100}
    tried.clear()
    assert judge(numbers_are_small, numpy, derandomize=True, shrink=False).status == "fail"
    assert len([x for x in tried if x >= 100]) <= 2


def test_how_many_examples_are_drawn(laws: None, numpy: Subject) -> None:
    count = 0

    def counting(subject: Subject, draw: Draw) -> None:
        nonlocal count
        count += 1
        draw("x", st.integers())

    free = law("It counts.", of="op", region="here", source="nowhere")(counting)
    counting.__name__ = "few"
    few = law("It counts to 3.", of="op", region="here", source="nowhere", examples=3)(counting)
    for judged, asked, expected in ((free, 12, 12), (few, 12, 3), (few, 2, 2)):
        count = 0
        judge(judged, numpy, max_examples=asked)
        assert count == expected


def test_why_a_law_does_not_apply(numpy: Subject, laws: None) -> None:
    @law("It needs what is missing.", of="op", region="here", source="nowhere", needs="ops not_a_package")
    def missing(subject: Subject, draw: Draw) -> None:
        raise AssertionError("it is not run")

    verdict = judge(missing, numpy)
    assert (verdict.status, verdict.reason) == ("n/a", "not_a_package is not installed")
    theirs = foreign(lambda ids: ids, vocab_size=3, max_seq_len=4)
    assert judge(missing, theirs).reason == "not_a_package is not installed"
    masked = next(law for law in LAWS.values() if law.needs == {"mask"})
    assert judge(masked, theirs).reason == "it takes no mask"
    masked(theirs)  # what does not apply is not broken


def test_an_exception_breaks_a_law(laws: None, numpy: Subject) -> None:
    @law("Nothing is divided by zero.", of="op", region="here", source="nowhere")
    def divisors(subject: Subject, draw: Draw) -> None:
        1 / draw("x", st.integers(0, 5))

    verdict = judge(divisors, numpy)
    assert verdict.reason == "ZeroDivisionError: division by zero"
    assert verdict.example == {"x": 0}


def test_a_law_that_fails_only_once_is_told(laws: None, numpy: Subject) -> None:
    seen = []

    @law("It holds from the second time on.", of="op", region="here", source="nowhere")
    def unsteady(subject: Subject, draw: Draw) -> None:
        draw("x", st.integers())
        seen.append(1)
        if len(seen) == 1:
            raise AssertionError("the first time")

    verdict = judge(unsteady, numpy)
    assert verdict.status == "fail"
    assert verdict.reason == "the first time (FlakyFailure)"


def test_what_is_interrupted_is_no_verdict(laws: None, numpy: Subject) -> None:
    @law("It is never done.", of="op", region="here", source="nowhere")
    def interrupted(subject: Subject, draw: Draw) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(interrupted, numpy)


def test_errors_of_replay(numpy: Subject) -> None:
    with pytest.raises(ValueError, match="^law is 'no-such'; known are .*causality"):
        replay("no-such", {}, numpy)
    with pytest.raises(ValueError, match="^example lacks 'seed', which causality draws; it has config"):
        replay("causality", {"config": Config()}, numpy)


def test_laws_by_pattern(small_ids: Law) -> None:
    assert select("small-ids") == [small_ids]
    assert select("here, causality")[-1] is small_ids
    assert {x.name for x in select("causality")} == {"causality", "prefix-invariance"}
    assert select() == list(LAWS.values())
    assert {x.of for x in select("model")} == {"model"}
    for wrong in ("", ",", "no-such", "causality,no-such"):
        with pytest.raises(ValueError, match="^laws is '(no-such)?,?', which matches none of the"):
            select(wrong)


def test_a_law_s_name_is_used_once(small_ids: Law) -> None:
    with pytest.raises(ValueError, match="small-ids"):
        law("Again.", of="model", region="here", source="nowhere")(small_ids.check)
    with pytest.raises(ValueError, match="poetry"):
        law("Once.", of="poetry", region="here", source="nowhere")(lambda subject, draw: None)


def test_names_of_subjects() -> None:
    for wrong in ("numpy+x", "strict+kernels", "numpy+", "+kernels", "no_such_module", "json"):
        with pytest.raises(ValueError, match=r"^(subject|backend) is '"):
            subject(wrong)
    assert subject("numpy").recipe == "subject('numpy')"
    assert (
        subject("numpy", dtype="float32", pooled=True).recipe
        == "subject('numpy', dtype='float32', pooled=True)"
    )
    assert judge(LAWS["causality"], subject("numpy+kernels"), max_examples=2).status == "pass"


@given(config=configs())
def test_a_config_is_shown_as_source_that_makes_it_again(config: Config) -> None:
    assert eval(as_source(config), {"Config": Config}) == config


def test_values_are_shown_as_source() -> None:
    assert as_source(Config()) == "Config()"
    assert as_source(Config(d_model=64)) == "Config(d_model=64)"
    value = {"x": np.array([[1.5, 2.0]], "float32"), "ids": [[1]], "mask": (True, None)}
    assert as_source(value) == "{'x': np.array([[1.5, 2.0]], 'float32'), 'ids': [[1]], 'mask': (True, None)}"
