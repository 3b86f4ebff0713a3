"""The registry of laws: names, patterns, and replaying a recorded example."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference import libraries
from tinyxp import Config
from tinyxp.testing import LAWS, Draw, Law, Subject, law, replay, select, subject
from tinyxp.testing.law_registry import laws_of

BROKEN = {"config": Config(vocab_size=4), "ids": [[3]], "limit": np.array([2.0])}
"""An example that breaks the law ``small-ids``."""


def test_laws_of_a_file_share_arguments_and_may_replace_them(laws: None) -> None:
    one_of = laws_of("op", "here", "nowhere", "ops")

    @one_of("It is so.")
    def first(subject: Subject, draw: Draw) -> None: ...

    @one_of("It is so too.", region="there", needs="ops trace", examples=2)
    def second(subject: Subject, draw: Draw) -> None: ...

    assert (first.of, first.region, first.source, first.needs) == ("op", "here", "nowhere", {"ops"})
    assert (second.region, second.source, second.needs, second.examples) == (
        "there",
        "nowhere",
        {"ops", "trace"},
        2,
    )
    assert LAWS["second"] is second


@pytest.mark.parametrize("library", libraries("numpy", "torch", "strict", "jax"))
def test_an_example_is_seen_again_on_every_backend(small_ids: Law, library: str) -> None:
    with pytest.raises(AssertionError, match=r"^ids at \(0, 0\) is 3.0"):
        replay("small-ids", BROKEN, subject(library))
    replay("small-ids", {**BROKEN, "ids": [[2]]}, subject(library))


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
