"""Judging: a counterexample is shrunk, reported, and reproduced by the reported source."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from tinyxp.testing import LAWS, Draw, Law, LawBroken, Subject, foreign, judge, law


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
