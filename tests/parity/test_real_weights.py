"""Trained models against what other code computes of them: ids, texts, logits, every value on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tinyxp
from tests.reference import distance, host, libraries
from tinyxp import Config, Params, load_tokenizer

LOGITS = 2e-4
"""Float32 logits up to 22 after up to 30 layers, summed in two orders: some hundred roundings of 1e-6."""

ALL = libraries("numpy", "torch", "jax")


class Model(NamedTuple):
    params: Params
    tokenizer: Any
    reference: dict[str, Any]


def check_top(logits: np.ndarray, expected: list[Any]) -> None:
    """The five largest logits (n,): their ids in order, and their values."""
    top = np.argsort(-logits, kind="stable")[:5]
    assert top.tolist() == [token for token, *_ in expected]
    assert distance(logits[top], np.array([value for _, value, *_ in expected])) <= LOGITS


# A Llama of 260,032 numbers, in both its formats


@pytest.fixture(scope="module", params=["", "stories260K.bin"], ids=["folder", "bin"])
def story_file(request: pytest.FixtureRequest, test_data: Path) -> Path:
    return test_data / "stories260k" / request.param


@pytest.fixture(scope="module", params=ALL)
def story(request: pytest.FixtureRequest, story_file: Path, test_data: Path) -> Model:
    folder = test_data / "stories260k"
    params = tinyxp.load(story_file, xp=tinyxp.backend(request.param).xp)
    reference = json.loads((folder / "reference.json").read_text())
    return Model(params, load_tokenizer(folder / "tok512.bin"), reference)


def test_story_is_told(story: Model) -> None:
    assert sum(host(x).size for x in story.params.values()) == 260_032
    bos, *expected = story.reference["greedy_ids_from_bos"]
    found = host(tinyxp.generate(story.params, [[bos]], len(expected)))[0].tolist()
    assert found == expected
    # Read from the first id on: the space before the first word is the tokenizer's own.
    assert story.tokenizer.decode([bos, *found]) == story.reference["greedy_text"]


def test_story_logits(story: Model, test_data: Path) -> None:
    ids = story.reference["greedy_ids_from_bos"]
    logits = host(tinyxp.forward(story.params, [ids]))[0]
    check_top(logits[0], story.reference["top5_after_bos"])
    check_top(logits[-1], story.reference["top5_last"])
    whole = np.load(test_data / "stories260k" / "stories260K_logits_bos100_f32.npy")
    assert distance(logits, whole) <= LOGITS


# SmolLM2-135M, quantised


@pytest.fixture(scope="module", params=ALL)
def smollm2(request: pytest.FixtureRequest, smollm2_gguf: Path, test_data: Path) -> Model:
    params = tinyxp.load(smollm2_gguf, xp=tinyxp.backend(request.param).xp)
    reference = json.loads((test_data / "smollm2" / "reference.json").read_text())
    return Model(params, load_tokenizer(smollm2_gguf), reference)


def test_smollm2_is_its_preset(smollm2: Model) -> None:
    assert smollm2.params.config == Config.preset("smollm2-135m")
    assert sum(host(x).size for x in smollm2.params.values()) == 134_515_008


@pytest.mark.parametrize("number", range(3))
def test_smollm2_logits(smollm2: Model, number: int) -> None:
    case = smollm2.reference["prompts"][number]
    ids = smollm2.tokenizer.encode(case["prompt"])
    assert ids == case["ids"]
    check_top(host(tinyxp.forward(smollm2.params, [ids]))[0, -1], case["top5"])


@pytest.mark.parametrize("number", range(2))
def test_smollm2_goes_on(smollm2: Model, number: int) -> None:
    """Two prompts only: the third's first two logits lie 0.04 apart, where kernels may differ."""
    case = smollm2.reference["prompts"][number]
    found = host(tinyxp.generate(smollm2.params, [case["ids"]], 30))[0].tolist()
    assert found == case["greedy30_ids"]
    assert smollm2.tokenizer.decode(found) == case["greedy30_text"]


# A GPT-2 that sorts, with every intermediate value of one forward pass

NANO_TOLERANCE = 1e-5
"""Float32, values up to 8, three blocks: a few roundings of 1e-6; the other form of GELU is 2e-4 off."""

NANO_POINTS = {
    "x": "embed",
    "ln1": "blocks.0.attn_norm",
    "att": "blocks.0.attn.scores",
    "attSm": "blocks.0.attn.weights",
    "y": "blocks.0.attn.heads",
    "yProj": "blocks.0.attn.out",
    "attnResid": "blocks.0.attn_residual",
    "ln2": "blocks.0.mlp_norm",
    "fc": "blocks.0.mlp.up",
    "gelu": "blocks.0.mlp.hidden",
    "mlp": "blocks.0.mlp.out",
    "mlpResid": "blocks.0.residual",
    "block0": "blocks.0.residual",
    "block1": "blocks.1.residual",
    "block2": "blocks.2.residual",
    "ln_f": "final_norm",
    "lm_head": "logits",
}


class Sorter(NamedTuple):
    theirs: dict[str, np.ndarray]
    ours: dict[str, np.ndarray]


@pytest.fixture(scope="module", params=ALL)
def sorter(request: pytest.FixtureRequest, test_data: Path) -> Sorter:
    folder = test_data / "gpt-nano-sort"
    with np.load(folder / "gpt_nano_sort_partials.npz") as archive:
        theirs = dict(archive)
    params = tinyxp.load(folder, xp=tinyxp.backend(request.param).xp)
    ids = theirs["idx"].astype(np.int64)
    ours = {name: host(x) for name, x in tinyxp.trace(params, ids).items()}
    by_their_names = {name: ours[point] for name, point in NANO_POINTS.items()}
    above = np.triu(np.ones((11, 11), dtype=bool), 1)
    by_their_names["att"] = np.where(above, -np.inf, ours["blocks.0.attn.scores"])
    parts = [ours[f"blocks.0.attn.{part}"] for part in "qkv"]
    by_their_names["qkv"] = np.concatenate(parts, axis=-1)
    for part, x in zip("qkv", parts, strict=True):
        by_their_names[part] = x.reshape(3, 11, 3, 16).swapaxes(1, 2)
    by_their_names["tok_emb"] = host(params["embed.weight"])[ids]
    by_their_names["pos_emb"] = host(params["pos_embed.weight"])[None]
    by_their_names["probs"] = host(tinyxp.ops.softmax(tinyxp.forward(params, ids), xp=params.xp))
    return Sorter(theirs, by_their_names)


def test_sorter_names_are_all_compared(sorter: Sorter) -> None:
    assert set(sorter.ours) | {"idx"} == set(sorter.theirs)


@pytest.mark.parametrize("name", [*NANO_POINTS, "tok_emb", "pos_emb", "qkv", "q", "k", "v", "probs"])
def test_sorter_intermediates(sorter: Sorter, name: str) -> None:
    np.testing.assert_allclose(sorter.ours[name], sorter.theirs[name], rtol=0.0, atol=NANO_TOLERANCE)


def test_sorter_sorts(test_data: Path) -> None:
    params = tinyxp.load(test_data / "gpt-nano-sort")
    unsorted = [[0, 2, 1, 0, 1, 2], [2, 2, 1, 1, 0, 0]]
    assert tinyxp.generate(params, unsorted, 6).tolist() == [[0, 0, 1, 1, 2, 2]] * 2
