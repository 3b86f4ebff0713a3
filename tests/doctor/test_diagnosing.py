"""What a diagnosis says for every kind of side, what it proves, and what it does not pretend to know."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.doctor.models import (
    CONFIGS,
    IDS,
    LLAMA_SMALL,
    at,
    gpt2,
    llama,
    port,
    traced,
    with_weight,
)
from tests.reference import drawn, libraries
from tinyxp import Params
from tinyxp.doctor import Batch, Diagnosis, Recorded, Side, Trace, as_side, budget, diagnose, write_trace

MASK = np.arange(12) >= np.array([[0], [4]])


def transposed() -> Params:
    """The Llama model with one matrix left transposed."""
    return with_weight(llama(), "blocks.1.attn.o.weight", lambda x: x.T.copy())


def logits_of(params: Params) -> Callable[..., Any]:
    return lambda ids, mask=None: tinyxp.forward(params, ids, mask=mask)


def is_transposed(found: Diagnosis) -> bool:
    (cause,) = found.causes
    return "transposed" in cause.keys[0] and "attn.o" in cause.keys[0] and cause.blocks == (1,)


def confidence(found: Diagnosis) -> set[str]:
    return {cause.confidence for cause in found.causes}


# What it is told of


def test_where_the_sides_agree_there_is_nothing_to_explain() -> None:
    found = diagnose(llama(), llama().to(dtype="float64"), IDS)
    assert found.comparison.agrees
    assert (found.causes, found.proof, found.notes, found.explained) == ((), "", (), False)
    assert found.before is found.after is None


def test_a_recorded_trace(tmp_path: Path) -> None:
    write_trace(tmp_path / "port.npz", traced(transposed(), IDS), ids=IDS)
    found = diagnose(llama(), str(tmp_path / "port.npz"))
    assert is_transposed(found)
    assert found.causes[0].point == "blocks.1.attn.out"
    assert found.causes[0].points == ("blocks.1.attn.out",)
    assert found.explained
    assert found.agrees_after
    assert found.before is not None
    assert found.after is not None
    assert found.after.rms < 1e-5 < 0.1 < found.before.rms
    assert (found.proof, confidence(found)) == ("", {"certain"})  # it cannot be run again


def test_a_recorded_a_is_diagnosed_by_the_model_b() -> None:
    found = diagnose(Recorded(Batch(IDS), traced(transposed(), IDS)), llama())
    assert is_transposed(found)
    assert found.comparison.judged == "A"
    assert found.causes[0].sentence.startswith("A's")
    assert found.agrees_after


def test_a_function_of_logits_alone() -> None:
    found = diagnose(llama(), logits_of(transposed()), IDS)
    assert is_transposed(found)
    assert found.causes[0].point == "logits"
    assert found.agrees_after


def test_files_are_healed_with_parameters(tmp_path: Path) -> None:
    tinyxp.save(llama(), tmp_path / "right")
    tinyxp.save(transposed(), tmp_path / "wrong")
    found = diagnose(str(tmp_path / "right"), str(tmp_path / "wrong"), IDS)
    assert is_transposed(found)
    assert found.proof == "with A's own blocks.1.attn.o.weight in place of its own, B agrees from there on"
    assert confidence(found) == {"proved"}
    (note,) = found.notes
    assert note.startswith("1 of 21 parameters of B differ from the other side's: blocks.1.attn.o.weight")


@pytest.mark.parametrize("theirs", ["", "hf:"])
def test_a_config_is_healed_with_values(theirs: str, tmp_path: Path) -> None:
    if theirs:
        pytest.importorskip("transformers")
    tinyxp.save(llama(), tmp_path / "right")
    tinyxp.save(Params(dict(llama()), replace(LLAMA_SMALL, rope_theta=5e5)), tmp_path / "wrong")
    found = diagnose(f"{theirs}{tmp_path / 'right'}", f"{theirs}{tmp_path / 'wrong'}", IDS)
    (cause,) = found.causes
    assert "theta" in cause.keys[0]
    assert "500000" in cause.sentence
    assert (cause.confidence, cause.blocks) == ("proved", None)
    rotated = {f"blocks.{i}.attn.{part}_rotated" for i in range(2) for part in "qk"}
    assert set(cause.points) == rotated
    assert found.proof.startswith("with the right value put in at blocks.0.attn.q_rotated")
    assert found.notes == ("config: rope_theta of B is 500000.0, the other side's 10000.0",)


@pytest.mark.parametrize("library", libraries("torch", "jax"))
def test_a_side_of_another_library_is_healed_too(library: str) -> None:
    found = diagnose(llama(), transposed().to(tinyxp.backend(library).xp), IDS)
    assert is_transposed(found)
    assert confidence(found) == {"proved"}


def test_transformers_own_is_healed_with_values(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    tinyxp.save(llama(), tmp_path / "right")
    tinyxp.save(transposed(), tmp_path / "wrong")
    found = diagnose(str(tmp_path / "right"), f"hf:{tmp_path / 'wrong'}", IDS)
    assert is_transposed(found)
    assert found.proof == "with the right value put in at blocks.1.attn.out, B's own run agrees from there on"
    assert diagnose(f"hf:{tmp_path / 'right'}", f"hf:{tmp_path / 'right'}", IDS).comparison.agrees


def test_healing_that_does_not_heal_proves_nothing() -> None:
    """Two faults, of which the side undoes what is put in at one."""

    class Stubborn(Side):
        can_patch = True

        def trace(self, batch: Batch, patch: Any = None) -> Trace:
            return Trace(traced(transposed(), batch.ids), "float32")

    found = diagnose(llama(), Stubborn("B", "float32"), IDS)
    assert is_transposed(found)
    assert (found.proof, confidence(found)) == ("", {"certain"})


def test_without_weights_on_either_side_nothing_can_be_tried() -> None:
    with pytest.raises(
        ValueError, match=r"neither A nor B has weights, but a diagnosis needs a model: name one side's"
    ):
        diagnose(port(llama()), port(transposed()), IDS)


@pytest.mark.parametrize("seen", ["trace", "logits"])
def test_padding_that_is_seen(seen: str) -> None:
    def ignoring(ids: np.ndarray, mask: np.ndarray) -> Any:
        return traced(llama(), ids) if seen == "trace" else tinyxp.forward(llama(), ids)

    found = diagnose(llama(), ignoring, IDS, mask=MASK)
    assert found.causes
    keys = {key for cause in found.causes for key in (*cause.keys, *cause.alike)}
    assert "padding not masked" in keys
    assert found.explained


# More than one fault


def test_two_faults_in_different_operations() -> None:
    wrong = with_weight(gpt2(), "blocks.0.attn.o.bias", np.zeros_like)
    kept: dict[str, Any] = {}

    def relu(name: str, x: Any) -> Any:
        kept[name.rpartition(".")[2]] = x
        return np.maximum(kept["up"], 0) if name.endswith("mlp.hidden") else x

    found = diagnose(gpt2(), port(wrong, relu), IDS)
    assert len(found.causes) == 2
    assert (found.causes[0].point, found.causes[0].blocks) == ("blocks.0.attn.out", (0,))
    assert "bias" in found.causes[0].sentence
    assert found.causes[1].point == "blocks.0.mlp.hidden"
    assert "relu" in found.causes[1].keys[0]
    assert found.agrees_after


def test_two_faults_in_one_operation() -> None:
    """ReLU for SiLU, and of the wrong one of the two products."""
    kept: dict[str, Any] = {}

    def tap(name: str, x: Any) -> Any:
        kept[name.rpartition(".")[2]] = x
        return np.maximum(kept["up"], 0) * kept["gate"] if name.endswith("mlp.hidden") else x

    found = diagnose(llama(), port(llama(), tap), IDS)
    (cause,) = found.causes
    assert cause.point == "blocks.0.mlp.hidden"
    assert len(cause.keys) == 2
    assert "relu" in " ".join(cause.keys)
    assert "gate" in " ".join(cause.keys)
    assert found.agrees_after


# What it does not know


def noisy(share: float) -> Callable[[np.ndarray], Any]:
    """All values off by so much at random, the same each time."""

    def trace(ids: np.ndarray) -> Any:
        rng = np.random.default_rng(1)
        points = traced(llama(), ids)
        return {
            n: (x * (1.0 + share * rng.normal(size=x.shape))).astype(np.float32) for n, x in points.items()
        }

    return trace


def tuned(seed: int = 3) -> Params:
    """The model after some more training: every number is another one."""
    rng = np.random.default_rng(seed)
    arrays = {
        name: (x + 0.02 * np.std(x) * rng.normal(size=x.shape)).astype(np.float32)
        for name, x in llama().items()
    }
    return Params(arrays, LLAMA_SMALL)


UNKNOWN: dict[str, Any] = {
    "noise": noisy(0.01),
    "noise, logits": lambda ids: noisy(0.01)(ids)["logits"],
    "tuned, logits": logits_of(tuned()),
    "another activation": port(llama(), at("mlp.hidden", lambda x: np.sin(3 * x))),
    "zeros": lambda ids: np.zeros((*ids.shape, 61), np.float32),
}


@pytest.mark.parametrize("side", UNKNOWN)
def test_what_nothing_explains_is_called_unknown_and_nothing_is_certain(side: str) -> None:
    found = diagnose(llama(), UNKNOWN[side], IDS)
    assert not found.comparison.agrees
    assert not found.agrees_after
    assert not found.explained
    assert found.proof == ""
    assert confidence(found) <= {"unknown", "likely"}
    for cause in found.causes:
        assert all(key.startswith("other weights") for key in cause.keys), cause.keys
        if not cause.keys:
            assert cause.sentence.startswith(f"no known fault explains {cause.point}")
            assert (cause.confidence, cause.fix) == ("unknown", "")
            assert 0.0 <= cause.closed < 1.0
            assert ("the closest" in cause.sentence) == bool(cause.closest and cause.closed >= 0.1)


@pytest.mark.parametrize("kept", ["", "logits"])
def test_where_all_is_nan_many_causes_are_alike_and_none_is_certain(kept: str) -> None:
    def nan(ids: np.ndarray) -> Any:
        return {n: x * np.nan for n, x in traced(llama(), ids).items() if n.endswith(kept)}

    found = diagnose(llama(), nan, IDS)
    assert found.comparison.first is not None
    assert found.comparison.first.excess == np.inf
    assert confidence(found) <= {"unknown", "likely"}


def test_a_fine_tuned_file_is_told_by_its_parameters() -> None:
    found = diagnose(llama(), tuned(), IDS)
    assert any(note.startswith("21 of 21 parameters of B differ") for note in found.notes)
    assert [cause.keys for cause in found.causes] == [("other weights",)]
    assert found.proof.startswith("with A's own embed.weight")


def test_a_port_of_other_weights_is_told_so_in_one_sentence() -> None:
    found = diagnose(llama(), port(tuned()), IDS)
    assert [cause.keys for cause in found.causes] == [("other weights",)]
    assert confidence(found) == {"likely"}


def dropping(ids: np.ndarray) -> dict[str, np.ndarray]:
    """The GPT-2 model with dropout of 0.1 left on, another each time."""

    def drop(x: np.ndarray) -> np.ndarray:
        return np.where(rng.random(x.shape) < 0.1, 0.0, x / 0.9).astype(np.float32)

    rng = np.random.default_rng(next(seeds))
    return port(gpt2(), lambda name, x: drop(x) if name.endswith((".attn.out", ".mlp.out")) else x)(ids)


seeds = itertools.count()


def test_dropout_shows_in_logits_that_differ_each_time() -> None:
    found = diagnose(gpt2(), lambda ids: dropping(ids)["logits"], IDS)
    (cause,) = found.causes
    assert cause.keys == ("dropout",)
    assert "returns other logits for the same ids each time" in cause.sentence
    assert "eval()" in cause.fix
    assert cause.confidence == "likely"


def test_dropout_shows_in_a_trace_by_its_zeros() -> None:
    found = diagnose(gpt2(), Recorded(Batch(IDS), dropping(IDS)))
    (cause,) = found.causes
    assert cause.keys == ("dropout",)
    assert cause.points == tuple(f"blocks.{i}.{part}.out" for i in range(2) for part in ("attn", "mlp"))
    assert "p = 0.1)" in cause.sentence


# How long


def ticking(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that goes on by a second whenever it is looked at; the number of looks."""
    looks: list[int] = []

    def monotonic() -> float:
        looks.append(1)
        return float(len(looks))

    monkeypatch.setattr(budget, "time", SimpleNamespace(monotonic=monotonic))
    return looks


@pytest.mark.parametrize("side", ["another activation", "tuned, logits", "noise"])
def test_the_search_stops_when_its_time_is_up(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = ticking(monkeypatch)
    found = diagnose(llama(), UNKNOWN[side], IDS, seconds=20)
    assert found.ran_out
    assert len(looks) <= 25  # once it is up, nobody looks again
    assert not found.explained or all(c.confidence == "likely" for c in found.causes)


def test_a_search_that_ends_has_not_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not diagnose(llama(), transposed(), IDS).ran_out
    ticking(monkeypatch)
    assert not diagnose(llama(), transposed(), IDS, seconds=1e6).ran_out


# Shapes of other models


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("gpt2", {"d_ff": 40}),
        ("gpt2", {"n_layers": 3}),
        ("llama", {"n_layers": 3}),
        ("llama", {"vocab_size": 70}),
        ("qwen2", {"n_layers": 1}),
    ],
)
def test_another_model_altogether_is_survived(family: str, change: dict[str, Any]) -> None:
    found = diagnose(drawn(CONFIGS[family]), drawn(replace(CONFIGS[family], **change)), IDS)
    assert not found.comparison.agrees
    assert found.proof == ""
    assert any(note.startswith(f"config: {next(iter(change))} of B is") for note in found.notes)


def test_the_input_is_checked_as_for_compare() -> None:
    with pytest.raises(ValueError, match="ids holds 61"):
        diagnose(llama(), transposed(), [[61]])
    with pytest.raises(ValueError, match="a side is 3"):
        diagnose(llama(), 3)
    side = as_side(transposed())
    assert is_transposed(diagnose(as_side(llama()), side, IDS))
