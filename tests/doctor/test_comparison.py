"""What agrees passes, what is wrong is found where it is, and rounding is told from faults."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import drawn, libraries
from tinyxp import Config, Params, ops
from tinyxp.doctor import Batch, Comparison, Side, Trace, as_side, compare, write_trace
from tinyxp.doctor.comparison import _find_first, _judge_by_tolerance, judge_errors
from tinyxp.doctor.distance import RELATIVE, Distance
from tinyxp.doctor.points import points_of
from tinyxp.doctor.rounding import Error
from tinyxp.doctor.verdicts import AtFault, Row, Verdict
from tinyxp.dtypes import EPSILON

from .models import (
    CONFIGS,
    IDS,
    LLAMA_SMALL,
    at,
    edited,
    gpt2,
    llama,
    port,
    traced,
    with_weight,
)

RUNS = [
    *("numpy", "numpy:float64", "numpy:float16", "numpy+kernels"),
    *("torch", "torch:float64", "torch:float16", "torch:bfloat16", "torch+kernels", "torch+kernels:bfloat16"),
    *("jax:float32", "jax:float16", "jax:bfloat16", "jax+jit", "jax+jit+kernels", "jax+jit+kernels:bfloat16"),
]
TRAINED = ("stories260k", "gpt-nano-sort", "holmes")


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Drawn models of each family as Hugging Face has them."""
    found = {}
    for name, config in CONFIGS.items():
        found[name] = tmp_path_factory.mktemp("models") / name
        tinyxp.save(drawn(config), found[name])
    return found


@pytest.fixture(params=["gpt2", "llama", *TRAINED])
def weights(request: pytest.FixtureRequest) -> Params:
    """float32 models, drawn and trained."""
    if request.param in CONFIGS:
        return drawn(CONFIGS[request.param])
    if request.param == "holmes":
        return tinyxp.load("holmes", dtype="float32")
    return tinyxp.load(request.getfixturevalue("test_data") / request.param, dtype="float32")


def ids_for(params: Params) -> np.ndarray:
    return np.random.default_rng(7).integers(0, params.config.vocab_size, (2, 11))


def marks(run: str) -> Any:
    """Skips a run whose library is not installed."""
    return libraries(re.split("[:+]", run)[0])[0].marks


def words(found: Comparison) -> dict[str, str]:
    return {row.point: row.verdict for row in found.rows}


def report(found: Comparison) -> str:
    """What a failure prints."""
    worst = max(found.rows, key=lambda row: row.excess)
    return f"{found.first and found.first.point}; {worst.point} {worst.excess:.3g}"


# What agrees


@pytest.mark.parametrize("run", [pytest.param(run, marks=marks(run)) for run in RUNS])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_every_library_dtype_and_kernel_agrees(family: str, run: str, folders: dict[str, Path]) -> None:
    found = compare(str(folders[family]), f"{folders[family]}@{run}", IDS)
    assert found.agrees, report(found)
    assert found.matters is None
    if "kernels" not in run:
        assert [row.point for row in found.rows] == points_of(CONFIGS[family])
    assert {row.verdict for row in found.rows} <= {"exact", "noise"}
    assert max(row.excess for row in found.rows) < 0.5  # far from a false alarm
    assert not found.notes or "kernels" in run
    assert found.token is None or found.token.is_tie


@pytest.mark.parametrize("mask", [None, np.arange(12) >= np.array([[0], [4]])], ids=["whole", "padded"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("family", CONFIGS)
def test_transformers_agrees_at_every_point(
    family: str, dtype: str, mask: Any, folders: dict[str, Path]
) -> None:
    pytest.importorskip("transformers")
    ours, theirs = str(folders[family]), f"hf:{folders[family]}@:{dtype}"
    for sides in ((ours, theirs), (theirs, ours)):
        found = compare(*sides, IDS, mask=mask)
        assert found.agrees, report(found)
        assert [row.point for row in found.rows] == points_of(CONFIGS[family])
        assert max(row.excess for row in found.rows) < 0.5


def test_a_mistral_folder_agrees_at_every_point(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    tinyxp.save(drawn(LLAMA_SMALL), tmp_path)
    config = tmp_path / "config.json"
    text = (
        config.read_text().replace("LlamaForCausalLM", "MistralForCausalLM").replace('"llama"', '"mistral"')
    )
    config.write_text(text)
    found = compare(str(tmp_path), f"hf:{tmp_path}", IDS)
    assert type(found.b.opened).__name__ == "MistralForCausalLM"  # type: ignore[attr-defined]
    assert found.agrees, report(found)
    assert len(found.rows) == len(points_of(LLAMA_SMALL))


def test_norms_in_float32_are_no_float64(folders: dict[str, Path]) -> None:
    """Which transformers' Llama computes whatever its dtype, and its GPT-2 does not."""
    pytest.importorskip("transformers")
    assert compare(str(folders["gpt2"]), f"hf:{folders['gpt2']}@:float64", IDS).agrees
    found = compare(str(folders["llama"]), f"hf:{folders['llama']}@:float64", IDS)
    assert found.first is not None
    assert (found.first.point, found.first.at_fault) == ("blocks.0.attn_norm", "B")
    assert found.first.excess > 1e6


SMOLLM2_RUNS = ("torch", "jax", "torch+kernels", "jax+jit", "torch:bfloat16", "jax:bfloat16")


@pytest.mark.parametrize("run", [pytest.param(run, marks=marks(run)) for run in SMOLLM2_RUNS])
def test_smollm2_raises_no_false_alarm(run: str, smollm2_gguf: Path) -> None:
    run += "" if ":" in run else ":float32"
    found = compare(
        f"{smollm2_gguf}@numpy:float32",
        f"{smollm2_gguf}@{run}",
        [[504, 3575, 282, 4649, 314, 260, 2240, 282]],
    )
    assert found.agrees, report(found)
    assert len(found.rows) == (513 if "kernels" not in run else 453)
    assert found.token is None or found.token.is_tie


# What rounding is, and what it is not


def as_bfloat16(x: Any, *, up: bool) -> Any:
    """float32 of torch in bfloat16, rounded towards zero or away from it."""
    import torch

    bits = x.float().contiguous().view(torch.int32)
    low = bits & 0xFFFF
    bits = bits - low
    if up:
        bits = bits + torch.where(low != 0, 1 << 16, 0).to(torch.int32)
    return bits.view(torch.float32).to(torch.bfloat16)


def truncating(x: Any, weight: Any, bias: Any = None, *, xp: Any) -> Any:
    """A product whose result loses its last digits."""
    wide = x.float() @ weight.float().T
    return as_bfloat16(wide if bias is None else wide + bias.float(), up=False)


def away(x: Any, weight: Any, bias: Any = None, *, xp: Any) -> Any:
    wide = x.float() @ weight.float().T
    return as_bfloat16(wide if bias is None else wide + bias.float(), up=True)


def halves(x: Any, weight: Any, bias: Any = None, *, xp: Any) -> Any:
    """A product in two parts, each rounded, and rounded again before the bias."""
    n = x.shape[-1] // 2
    y = x[..., :n] @ weight[:, :n].T + x[..., n:] @ weight[:, n:].T
    return y if bias is None else y + bias


def wide_rms_norm(x: Any, weight: Any, eps: float, *, xp: Any) -> Any:
    """A norm that does not round before it scales, as Llama's does."""
    return ops.rms_norm(x.float(), weight.float(), eps, xp=xp).to(x.dtype)


def rounded_layer_norm(x: Any, weight: Any, bias: Any, eps: float, *, xp: Any) -> Any:
    """A norm that rounds before it scales, and again before its bias."""
    return ops.layer_norm(x, xp.ones_like(weight), xp.zeros_like(bias), eps, xp=xp) * weight + bias


BFLOAT16_KERNELS: dict[str, dict[str, Callable[..., Any]]] = {
    "truncated": {"linear": truncating},
    "away from zero": {"linear": away},
    "in halves": {"linear": halves},
    "norm": {"rms_norm": wide_rms_norm, "layer_norm": rounded_layer_norm},
    "all of it": {"linear": truncating, "rms_norm": wide_rms_norm, "layer_norm": rounded_layer_norm},
}


@pytest.mark.parametrize("kernel", BFLOAT16_KERNELS)
def test_a_bfloat16_kernel_that_is_off_by_a_rounding_is_noise(kernel: str, weights: Params) -> None:
    torch = pytest.importorskip("torch")
    coarse = weights.to(torch, dtype="bfloat16")
    ids = ids_for(weights)
    plain = traced(coarse, ids)["logits"]
    found = compare(weights, port(coarse, kernels=BFLOAT16_KERNELS[kernel]), ids)
    assert not np.array_equal(found.trace_b.points["logits"], plain)  # type: ignore[misc]
    assert found.trace_b.dtype == "bfloat16"
    assert found.agrees, report(found)


def relative(x: np.ndarray) -> np.ndarray:
    return x * x.dtype.type(1.0 + 1e-4)


def near_one_value(x: np.ndarray) -> np.ndarray:
    return x + (1e-4 * np.exp(-(((x - 0.3) / 0.05) ** 2))).astype(x.dtype)


@pytest.mark.parametrize("slip", [relative, near_one_value])
@pytest.mark.parametrize("where", ["first", "middle", "last", "all"])
def test_a_slip_of_the_activation_by_1e_4_in_float32_is_a_fault(
    where: str, slip: Callable[[np.ndarray], np.ndarray], weights: Params
) -> None:
    n = weights.config.n_layers
    block = {"first": 0, "middle": n // 2, "last": n - 1, "all": 0}[where]
    point = f"blocks.{block}.mlp.hidden"
    found = compare(
        weights, port(weights, at("mlp.hidden" if where == "all" else point, slip)), ids_for(weights)
    )
    assert found.first is not None
    assert (found.first.point, found.first.verdict, found.first.at_fault) == (point, "fault", "B")
    faults = [row.point for row in found.rows if row.verdict == "fault"]
    assert all(name.endswith("mlp.hidden") for name in faults)  # all others are carried
    assert words(found)[f"blocks.{block}.mlp.up"] in ("exact", "noise")


def test_the_same_slip_in_bfloat16_is_noise(weights: Params) -> None:
    torch = pytest.importorskip("torch")
    coarse = weights.to(torch, dtype="bfloat16")
    found = compare(
        weights, port(coarse, at("mlp.hidden", lambda x: (x.float() * 1.0001).bfloat16())), ids_for(weights)
    )
    assert found.agrees, report(found)


# The truth


def test_the_truth_is_the_float64_run(folders: dict[str, Path]) -> None:
    """Its distance from A and from B is what is in the table."""
    found = compare(str(folders["llama"]), f"{folders['llama']}@:float64", IDS)
    a, truth = traced(llama(), IDS), traced(llama().to(dtype="float64"), IDS)
    for row in found.rows:
        assert row.error_b is not None
        assert row.error_a is not None
        assert row.error_b.worst == 0.0
        difference = a[row.point].astype(np.float64) - truth[row.point]
        if row.point.endswith("scores"):
            difference = np.where(np.tri(12, dtype=bool), difference, 0.0)
        assert row.error_a.worst == np.max(np.abs(difference)) == row.distance.worst  # type: ignore[union-attr]
    assert found.agrees
    assert found.reference == f"the float64 run of the weights of {folders['llama']}"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_side_is_judged_by_its_own_dtype(dtype: str, folders: dict[str, Path]) -> None:
    """A in few digits does not hide what B does in many."""
    pytest.importorskip("torch")
    a = f"{folders['llama']}@torch:{dtype}"
    assert compare(a, str(folders["llama"]), IDS).agrees
    found = compare(a, port(llama(), at("mlp.hidden", relative)), IDS)
    assert found.first is not None
    assert (found.first.point, found.first.at_fault) == ("blocks.0.mlp.hidden", "B")


def test_a_wrong_a_is_told_from_a_right_b() -> None:
    """B's model with weights judges an A without any."""
    wrong = port(llama(), at("blocks.1.mlp.hidden", relative))
    found = compare(wrong, llama(), IDS)
    assert found.judged == "A"
    assert found.first is not None
    assert (found.first.point, found.first.at_fault) == ("blocks.1.mlp.hidden", "A")


def test_two_sides_that_are_wrong_alike_agree_and_are_told_of_it() -> None:
    wrong = port(llama(), at("mlp.hidden", relative))

    class Wrong(Side):
        weights = as_side(llama()).weights

        def trace(self, batch: Batch, patch: Any = None) -> Any:
            return Trace(wrong(batch.ids), "float32")

    found = compare(Wrong("A", "float32"), wrong, IDS)
    assert found.agrees
    assert [row.verdict for row in found.rows] == ["exact"] * len(found.rows)
    (note,) = found.notes
    assert note.startswith("both sides have the same error at")
    assert "first at blocks.0.mlp.hidden" in note
    assert compare(wrong, wrong, IDS).notes == ()  # where there is no truth, none is claimed


def test_without_weights_there_is_no_truth_but_stated_tolerances() -> None:
    right = port(llama())
    found = compare(right, port(llama().to(dtype="float64")), IDS)
    assert found.agrees
    assert found.reference == ""
    assert "stated tolerances" in found.noise
    for row in found.rows:
        assert row.noise is row.error_a is row.error_b is None
        assert row.distance is not None
        assert row.excess == row.distance.rms / (2e-5 * row.distance.scale)
    found = compare(right, port(llama(), at("blocks.1.mlp.hidden", lambda x: x * np.float32(1.001))), IDS)
    assert found.first is not None
    assert (found.first.point, found.first.at_fault) == ("blocks.1.mlp.hidden", "A or B")
    assert found.matters


def test_two_traces_are_held_against_each_other(tmp_path: Path) -> None:
    write_trace(tmp_path / "a.npz", traced(gpt2(), IDS), ids=IDS)
    write_trace(tmp_path / "b.npz", edited(gpt2(), "logits", lambda x: -x)(IDS), ids=IDS)
    found = compare(str(tmp_path / "a.npz"), str(tmp_path / "b.npz"))
    assert np.array_equal(found.batch.ids, IDS)
    assert found.first is not None
    assert found.first.point == "logits"
    assert compare(str(tmp_path / "a.npz"), str(tmp_path / "a.npz")).agrees


def test_what_overflows_in_a_right_implementation_too_is_not_judged() -> None:
    """And is not called right."""
    params = with_weight(llama(), "blocks.0.mlp.up.weight", lambda x: x * np.float32(6e4))
    found = compare(params, params.to(tinyxp.backend("numpy").xp, dtype="float16"), IDS)
    assert found.agrees
    (note,) = found.notes
    assert "overflows too" in note
    assert "from blocks.0.mlp.up on" in note
    assert not any(math.isnan(row.excess) for row in found.rows)


def test_float32_numbers_in_float64_arrays_are_pointed_out(folders: dict[str, Path]) -> None:
    """As lists of numbers are, and what was converted to be recorded."""

    def wide(ids: np.ndarray) -> Any:
        return traced(llama(), ids)["logits"].tolist()

    found = compare(llama(), wide, IDS)
    assert found.trace_b.dtype == "float64"
    assert not found.agrees
    (note,) = found.notes
    assert note.startswith("nearly all values of B are float32 numbers; if it is meant to compute in float32")
    assert compare(llama(), replace(as_side(wide), dtype="float32"), IDS).agrees


# Where it is wrong


def test_only_the_operation_that_is_wrong_is_at_fault_and_the_rest_is_carried() -> None:
    found = compare(llama(), with_weight(llama(), "blocks.0.attn.k.weight", lambda x: x[::-1].copy()), IDS)
    wanted = dict.fromkeys(points_of(LLAMA_SMALL), "carried") | {"blocks.0.attn.k": "fault"}
    spared = ("embed", "blocks.0.attn_norm", "blocks.0.attn.q", "blocks.0.attn.v", "blocks.0.attn.q_rotated")
    verdicts = words(found)
    assert all(verdicts[name] in ("exact", "noise") for name in spared)
    assert {name: word for name, word in verdicts.items() if name not in spared} == {
        name: word for name, word in wanted.items() if name not in spared
    }
    assert found.first is found.row("blocks.0.attn.k")
    assert found.matters


def test_two_operations_that_are_wrong_are_both_at_fault() -> None:
    def change(name: str, x: Any) -> Any:
        if name in ("blocks.0.attn.out", "blocks.1.mlp.hidden"):
            return x * x.dtype.type(1.01)
        return x

    found = compare(gpt2(), port(gpt2(), change), IDS)
    faults = [name for name, word in words(found).items() if word == "fault"]
    assert faults == ["blocks.0.attn.out", "blocks.1.mlp.hidden"]


def test_what_is_wrong_on_the_way_alone_does_not_reach_the_end() -> None:
    found = compare(llama(), edited(llama(), "blocks.0.attn.q", lambda x: -x), IDS)
    assert found.first is not None
    assert found.first.point == "blocks.0.attn.q"
    assert found.matters is False
    assert found.token is None


def test_another_shape_is_told_with_both_shapes() -> None:
    found = compare(llama(), edited(llama(), "blocks.0.mlp.up", lambda x: x[..., :-1]), IDS)
    assert found.first is not None
    assert (found.first.point, found.first.verdict) == ("blocks.0.mlp.up", "shape")
    assert found.first.shapes == ((2, 12, LLAMA_SMALL.d_ff), (2, 12, LLAMA_SMALL.d_ff - 1))
    assert found.first.excess == math.inf
    assert [row.point for row in found.rows if row.differs] == ["blocks.0.mlp.up"]
    longer = compare(llama(), edited(llama(), "logits", lambda x: np.concatenate([x, x[:, :1]], 1)), IDS)
    assert longer.first is not None
    assert longer.first.shapes == ((2, 12, 61), (2, 13, 61))
    assert longer.token is None
    assert longer.predictions == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("alone", [False, True])
def test_what_is_not_finite_parts_endlessly_and_stands_in_its_place(value: float, alone: bool) -> None:
    def change(x: np.ndarray) -> None:
        x[0, 3, 2] = value

    a = port(llama()) if alone else llama()
    found = compare(a, edited(llama(), "blocks.1.attn.out", change), IDS)
    first = found.first
    assert first is not None
    assert (first.point, first.verdict, first.excess) == ("blocks.1.attn.out", "fault", math.inf)
    assert first.distance is not None
    assert first.distance.at == (0, 3, 2)
    assert first.place == "row 0, position 3, unit 2"
    assert (first.value_b == value) or math.isnan(value)
    assert first.positions[3] == math.inf
    assert first.positions[4] < 1e-6


def test_logits_that_are_nan_break_no_tie() -> None:
    found = compare(llama(), edited(llama(), "logits", lambda x: np.full_like(x, np.nan)), IDS)
    assert found.first is not None
    assert found.token is None or not found.token.is_tie


# What counts


def test_what_stands_on_padding_does_not_matter() -> None:
    mask = np.ones(IDS.shape, bool)
    mask[0, :3] = mask[1, 9:] = False

    def spoil(name: str, x: np.ndarray, *, real: bool) -> np.ndarray:
        y = np.array(x)
        where = mask if real else ~mask
        if y.ndim == 4:
            y = y.swapaxes(1, 2)
        y[where] = 99.0
        return y.swapaxes(1, 2) if x.ndim == 4 else y

    def padded(ids: np.ndarray, mask: Any) -> Any:
        return {name: spoil(name, x, real=False) for name, x in traced(llama(), ids, mask).items()}

    found = compare(llama(), padded, IDS, mask=mask)
    assert found.agrees, report(found)
    assert found.predictions == int(mask.sum())

    def wrong(ids: np.ndarray, mask: Any) -> Any:
        return padded(ids, mask) | {"logits": spoil("", traced(llama(), ids, mask)["logits"], real=True)}

    assert not compare(llama(), wrong, IDS, mask=mask).agrees


def test_ignoring_the_mask_is_a_fault_that_padding_shows() -> None:
    mask = np.arange(12) >= np.array([[0], [4]])

    def ignoring(ids: np.ndarray, mask: Any = None) -> Any:
        return traced(gpt2(), ids)

    found = compare(gpt2(), ignoring, IDS, mask=mask)
    assert found.first is not None
    assert found.first.point == "embed"
    assert found.first.distance is not None
    assert found.first.distance.at[0] == 1  # the row with padding
    with pytest.raises(ValueError, match=r"takes no mask, and there is padding"):
        compare(gpt2(), lambda ids: traced(gpt2(), ids), IDS, mask=mask)


def test_scores_that_no_query_may_see_do_not_matter() -> None:
    future = ~np.tri(12, dtype=bool)

    def masked(x: np.ndarray) -> np.ndarray:
        return np.where(future, -np.inf, x)

    assert compare(llama(), edited(llama(), "blocks.0.attn.scores", masked), IDS).agrees
    past = compare(
        llama(), edited(llama(), "blocks.0.attn.scores", lambda x: np.where(future, x, -np.inf)), IDS
    )
    assert past.first is not None
    assert past.first.point == "blocks.0.attn.scores"

    def weights(x: np.ndarray) -> np.ndarray:
        return np.where(future, 1e-3, x)  # weights on the future do matter

    assert not compare(llama(), edited(llama(), "blocks.0.attn.weights", weights), IDS).agrees


# Partial traces, and those of other models


@pytest.mark.parametrize("kept", ["residual", "logits"])
def test_a_partial_trace_is_judged_at_what_it_holds(kept: str) -> None:
    def partial(params: Params) -> Callable[[np.ndarray], Any]:
        return lambda ids: {n: x for n, x in traced(params, ids).items() if n.endswith(kept)}

    right = compare(llama(), partial(llama()), IDS)
    assert right.agrees
    assert [row.point for row in right.rows] == [n for n in points_of(LLAMA_SMALL) if n.endswith(kept)]
    wrong = with_weight(llama(), "blocks.1.attn.o.weight", lambda x: x.T.copy())
    found = compare(llama(), partial(wrong), IDS)
    first = "blocks.1.attn_residual" if kept == "residual" else "logits"
    assert found.first is not None
    assert (found.first.point, found.first.verdict) == (first, "fault")
    missing = len(points_of(LLAMA_SMALL)) - len(found.rows)
    if kept == "residual":
        assert found.notes == (
            f"{missing} trace points of A are missing in B: embed, blocks.0.attn_norm, blocks.0.attn.q...",
        )
    assert found.predictions == (24 if kept == "logits" else 0)


def test_logits_alone_may_be_all_that_a_function_gives() -> None:
    found = compare(llama(), lambda ids: tinyxp.forward(llama(), ids), IDS)
    assert found.agrees
    assert [row.point for row in found.rows] == ["logits"]


def test_points_of_another_model() -> None:
    longer = Config(**{**{f: getattr(LLAMA_SMALL, f) for f in ("vocab_size",)}, "n_layers": 3})
    found = compare(llama(), port(drawn(longer)), IDS)
    assert not found.agrees
    assert any("trace points of B are missing in A: blocks.2.attn_norm" in note for note in found.notes)
    with pytest.raises(ValueError, match=r"have no trace point in common"):
        compare(llama(), lambda ids: {"blocks.7.residual": np.zeros((2, 12, 32))}, IDS)
    rotated = gpt2_with(traced(llama(), IDS))
    with pytest.raises(
        ValueError, match=r"trace point blocks\.0\.attn\.q_rotated is not a point of this model: embed"
    ):
        compare(port(llama()), rotated, IDS)


def gpt2_with(points: dict[str, np.ndarray]) -> Side:
    """A side whose weights are GPT-2's and whose trace is another's."""

    class Odd(Side):
        weights = as_side(gpt2()).weights

        def trace(self, batch: Batch, patch: Any = None) -> Any:
            return Trace(points, "float32")

    return Odd("odd", "float32")


# The limit itself

EVEN = Distance(0.0, 0.0, (0, 0, 0), 1.0, 1.0)


FAR = EVEN._replace(rms=1.0, worst=1.0)


def judged(a: float, b: float, distance: Distance = FAR, **more: Any) -> Row:
    """A row judged by two errors of that many times the limit."""
    row = Row(point="logits", shape=(1, 1, 1), verdict=Verdict.NOISE, distance=distance)
    errors = (Error(EVEN, EVEN, a), Error(EVEN._replace(rms=0.5), EVEN, b))
    return judge_errors(row, errors, **{"dtypes": ("float32", "float32"), "judged": AtFault.B} | more)


@pytest.mark.parametrize(
    ("a", "b", "at_fault", "excess"),
    [
        (1.0, 1.0, "", 1.0),
        (0.9, 0.3, "", 0.3),  # of the side in doubt
        (1.5, 0.5, "A", 1.5),
        (0.5, 1.5, "B", 1.5),
        (1.5, 2.5, "A and B", 2.5),
        (2.5, 1.5, "A and B", 2.5),
    ],
)
def test_a_side_is_at_fault_above_the_limit(a: float, b: float, at_fault: str, excess: float) -> None:
    row = judged(a, b)
    assert (row.verdict, row.at_fault, row.excess) == ("fault" if at_fault else "noise", at_fault, excess)
    assert (row.error_a, row.error_b) == (EVEN, EVEN._replace(rms=0.5))


def test_two_errors_that_are_the_same_are_no_fault() -> None:
    """Up to one rounding, here, in the coarser of the two dtypes."""
    one = EVEN._replace(rms=EPSILON["float32"], worst=EPSILON["float32"])
    assert judged(2.0, 3.0, one).verdict == "noise"
    assert judged(2.0, 3.0, one).excess == 3.0
    more = one._replace(rms=one.rms * 1.01)
    assert judged(2.0, 3.0, more).at_fault == "A and B"
    for dtypes in (("float32", "bfloat16"), ("bfloat16", "float32")):
        assert judged(2.0, 3.0, more, dtypes=dtypes).verdict == "noise"


def test_noise_is_that_of_the_side_in_doubt_and_logits_move_by_the_larger() -> None:
    coarse, fine = EVEN._replace(worst=3.0), EVEN._replace(worst=0.5)
    row = Row(point="logits", shape=(1, 1, 1), verdict=Verdict.NOISE, distance=EVEN)
    for noises in ((coarse, fine), (fine, coarse)):
        errors = (Error(EVEN, noises[0], 0.5), Error(EVEN, noises[1], 0.25))
        of_a = judge_errors(row, errors, ("float32", "float32"), AtFault.A)
        of_b = judge_errors(row, errors, ("float32", "float32"), AtFault.B)
        assert (of_a.noise, of_b.noise) == noises
        assert (of_a.excess, of_b.excess) == (0.5, 0.25)
        assert of_a.moved == of_b.moved == 12.0


@pytest.mark.parametrize(("times", "at_fault"), [(1.0, ""), (1.01, "A or B")])
def test_the_tolerance_may_be_reached(times: float, at_fault: str) -> None:
    distance = EVEN._replace(rms=RELATIVE["float32"] * times)
    row = Row(point="logits", shape=(1, 1, 1), verdict=Verdict.NOISE, distance=distance)
    row = _judge_by_tolerance(row, "float32")
    assert (row.verdict, row.at_fault) == ("fault" if at_fault else "noise", at_fault)
    assert row.excess == pytest.approx(times, rel=1e-12)


def test_without_a_reference_the_coarser_dtype_sets_the_tolerance() -> None:
    logits = traced(llama(), IDS)["logits"]
    half = logits.astype(np.float16)
    for sides in ((lambda ids: logits, lambda ids: half), (lambda ids: half, lambda ids: logits)):
        assert compare(*sides, IDS).agrees
    assert not compare(lambda ids: logits, lambda ids: half.astype(np.float32), IDS).agrees


def rows(verdicts: str) -> list[Row]:
    """A row for each letter: a fault (F), noise (N) or a shape (S)."""
    kinds = {"F": Verdict.FAULT, "N": Verdict.NOISE, "S": Verdict.SHAPE}
    return [
        Row(
            point=f"blocks.{i}.residual",
            shape=(1, 1, 1),
            verdict=kinds[letter],
            at_fault=AtFault.NONE if letter == "N" else AtFault.B,
        )
        for i, letter in enumerate(verdicts)
    ]


@pytest.mark.parametrize(
    ("verdicts", "own", "first", "marked"),
    [
        ("NN", "", None, ["noise", "noise"]),
        ("NFF", "1", 1, ["noise", "fault", "carried"]),
        ("NFF", "12", 1, ["noise", "fault", "fault"]),
        ("NFF", "", 1, ["noise", "fault", "carried"]),  # nothing is wrong by itself: the first is named
        ("NNF", "0", 0, ["fault", "noise", "carried"]),  # it adds more than rounding before the first fault
        ("NFN", "2", 1, ["noise", "fault", "noise"]),  # too late
        ("SFN", "", 0, ["shape", "carried", "noise"]),
        ("FSF", "", 0, ["fault", "shape", "carried"]),
    ],
)
def test_the_first_difference_and_what_it_carries(
    verdicts: str, own: str, first: int | None, marked: list[str]
) -> None:
    found, first_row = _find_first(rows(verdicts), frozenset(f"blocks.{i}.residual" for i in own))
    assert [row.verdict for row in found] == marked
    assert first_row is (None if first is None else found[first])
    assert first_row is None or first_row.at_fault == "B"
