"""The report in words and in JSON: what the comparison found, and nothing else."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from tests.reference import drawn
from tinyxp import Config
from tinyxp.doctor import Comparison, compare
from tinyxp.doctor.points import points_of
from tinyxp.doctor.report import SHOWN, format_table, render, to_dict
from tinyxp.doctor.wording import summarize

from .models import IDS, at, edited, gpt2, llama, port, traced, with_weight


def different() -> Comparison:
    return compare(
        llama(), with_weight(llama(), "blocks.1.attn.k.weight", lambda x: x[::-1].copy()), IDS, generate=3
    )


def shaped() -> Comparison:
    return compare(llama(), edited(llama(), "blocks.0.mlp.up", lambda x: x[..., :-1]), IDS)


def broken() -> Comparison:
    def change(x: np.ndarray) -> None:
        x[1, 4, 5] = math.nan

    return compare(llama(), edited(llama(), "blocks.1.attn.out", change), IDS)


def alone() -> Comparison:
    return compare(port(llama()), port(llama(), at("blocks.1.mlp.hidden", lambda x: x * 2)), IDS)


def padded() -> Comparison:
    mask = np.arange(12) >= np.array([[0], [4]])
    return compare(gpt2(), port(gpt2().to(dtype="float64")), IDS, mask=mask)


FOUND = {f.__name__: f for f in (different, shaped, broken, alone, padded)}


def rows_of(text: list[str]) -> dict[str, str]:
    """The table's lines by point."""
    start = next(i for i, line in enumerate(text) if line.startswith("point "))
    rest = text[start + 1 :]
    end = rest.index("") if "" in rest else len(rest)
    return {line.split()[0]: line for line in rest[:end]}


@pytest.mark.parametrize("made", FOUND)
def test_json_parses_and_holds_what_the_comparison_found(made: str) -> None:
    found = FOUND[made]()

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    data = json.loads(json.dumps(to_dict(found), allow_nan=False), parse_constant=refuse)
    assert data["agrees"] == found.agrees
    assert data["answer"] == summarize(found)
    assert data["first"] == (found.first and found.first.point)
    assert data["matters"] == found.matters
    assert data["ids"] == found.batch.ids.tolist()
    assert data["mask"] == (None if found.batch.mask is None else found.batch.mask.tolist())
    assert data["generated"] == found.generated
    assert data["notes"] == list(found.notes)
    assert data["predictions"] == found.predictions
    assert (data["truth"] or "") == found.reference
    assert [p["point"] for p in data["points"]] == [row.point for row in found.rows]
    for point, row in zip(data["points"], found.rows, strict=True):
        assert point["verdict"] == row.verdict
        assert (point["at_fault"] or "") == row.at_fault
        assert point["times"] == (row.excess if math.isfinite(row.excess) else None)
        for name, distance in (("distance", row.distance), ("error_b", row.error_b), ("noise", row.noise)):
            assert (point[name] is None) == (distance is None)
            if distance is not None:
                assert point[name]["at"] == list(distance.at)
                assert point[name]["rms"] == (distance.rms if math.isfinite(distance.rms) else None)
    if found.token is not None:
        assert data["token"] == found.token._asdict()


@pytest.mark.parametrize("made", FOUND)
def test_the_text_says_what_json_says(made: str) -> None:
    found = FOUND[made]()
    text, data = render(found, everything=True), to_dict(found)
    assert text[0] == data["answer"]
    assert {line.removeprefix("note       ") for line in text if line.startswith("note ")} == set(
        data["notes"]
    )
    assert f"reference  {data['truth'] or 'none'}" in text
    rows = rows_of(text)
    assert list(rows) == [point["point"] for point in data["points"]]
    for point in data["points"]:
        line = rows[point["point"]]
        word = {"fault": "FAULT", "shape": "SHAPE", "exact": "equal"}.get(point["verdict"], point["verdict"])
        assert word in line
        assert line.endswith("<- first") == (point["point"] == data["first"])
        if point["verdict"] == "fault" and point["at_fault"]:
            assert f"FAULT of {point['at_fault']}" in line
        if point["distance"] is not None and point["distance"]["rms"]:
            assert f"{point['distance']['rms']:.2e}" in line


def test_the_answer_names_the_first_point_the_side_and_what_it_leads_to() -> None:
    first = summarize(different())
    assert first.startswith(
        "First difference at blocks.1.attn.k (the projection to k in block 1): B is wrong, its error is "
    )
    assert "It matters: logits differ too." in first
    assert "A has shape (2, 12, 64), B has (2, 12, 63)" in summarize(shaped())
    assert "B is wrong, its error is infinite; at row 1" in summarize(broken())
    assert "B has nan" in summarize(broken())
    assert "wrong" not in summarize(alone())  # who can say
    assert summarize(padded()).startswith("They agree: all ")
    silent = compare(llama(), edited(llama(), "blocks.0.attn.q", lambda x: -x), IDS)
    assert "It does not reach the end: logits agree," in summarize(silent)
    assert "equal to the last bit" in summarize(compare(llama(), llama(), IDS))


def test_the_head_says_what_went_in() -> None:
    assert "ids        2 x 12, 4 of them padding" in render(padded())
    assert "ids        2 x 15, the last 3 generated by A" in render(different())


def test_the_token_is_spelled_where_there_is_a_tokenizer() -> None:
    found = different()
    assert found.token is not None
    plain, spelled = render(found)[-1], render(found, decode=lambda i: f"<{i}>")[-1]
    for number in (found.token.a, found.token.b):
        assert f" {number} " in plain
        assert f"'<{number}>'" in spelled
    assert f"position {found.token.position}" in plain
    assert "not a tie" in plain
    same = render(compare(llama(), llama(), IDS))[-1]
    assert same == "All 24 next tokens are the same."
    partial = compare(llama(), lambda ids: {"embed": traced(llama(), ids)["embed"]}, IDS)
    assert "next token" not in "".join(render(partial))


def test_of_many_points_those_around_the_first_are_shown_and_the_ends() -> None:
    config = Config(vocab_size=61, n_layers=5)
    wrong = with_weight(drawn(config), "blocks.3.attn.o.weight", lambda x: x.T.copy())
    found = compare(drawn(config), wrong, IDS)
    names = points_of(config)
    assert len(names) > SHOWN
    shown = [line.split()[0] for line in format_table(found)[1:-1]]
    at = names.index("blocks.3.attn.out")
    assert [name for name in shown if name != "..."][:2] == names[:2]
    assert set(names[at - 3 : at + 10]) | set(names[-2:]) <= set(shown)
    hidden = [int(line.split()[1]) for line in format_table(found) if line.startswith("... ")]
    assert sum(hidden) == len(names) - len([name for name in shown if name != "..."])
    assert format_table(found)[-1] == f"({len(names)} points; --all shows every one)"
    everything = format_table(found, everything=True)
    assert [line.split()[0] for line in everything[1:]] == names


@pytest.mark.parametrize("made", FOUND)
def test_columns_are_aligned_and_lines_have_no_blanks_behind(made: str) -> None:
    text = format_table(FOUND[made](), everything=True)
    at = text[0].index("verdict")
    assert all(line == line.rstrip() for line in text)
    assert all(line[at - 1] == " " and line[at] != " " for line in text[1:])
