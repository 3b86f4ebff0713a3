"""Open checkpoints: tensors against the config's layout, weights read once, and what is described."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tinyxp import CheckpointError, Config
from tinyxp.formats.checkpoint import Checkpoint, Tensor, Weight, list_names, match_rules
from tinyxp.formats.rules import Rule

CONFIG = Config(n_layers=1, tie_embeddings=True)
PATH = Path("some.file")
D = CONFIG.d_model


def lay_out(config: Config) -> Iterator[Rule]:
    yield Rule("table", ("embed.weight",))
    yield Rule("qk", ("blocks.0.attn.q.weight", "blocks.0.attn.k.weight"))
    yield Rule("cosines", skipped="rotary table")


def tensor(*shape: int, kind: str = "float32") -> Tensor:
    return Tensor(shape, "F32", kind, 4, lambda: np.arange(np.prod(shape)).reshape(shape))


TENSORS = {"cosines": tensor(1, kind=""), "qk": tensor(48, D), "table": tensor(128, D)}


def test_a_rule_for_every_tensor() -> None:
    extra = TENSORS | {"buffer": tensor(3)}
    rules = match_rules(PATH, CONFIG, lay_out, extra, lambda name: "a reason" if name == "buffer" else "")
    assert rules == (*lay_out(CONFIG), Rule("buffer", skipped="a reason"))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"qk": None}, "the tensors do not fit the config: missing qk"),
        ({"new": tensor(1)}, "the tensors do not fit the config: unknown new"),
        ({"qk": None, "new": tensor(1)}, "the tensors do not fit the config: missing qk; unknown new"),
        ({"qk": tensor(D, 48)}, f"tensor qk has shape ({D}, 48); the config says (48, {D})"),
        ({"table": tensor(128, D, kind="")}, "tensor table has dtype F32, which is not read as weights"),
    ],
)
def test_tensors_that_do_not_fit(changes: dict[str, Tensor | None], message: str) -> None:
    tensors = {name: x for name, x in (TENSORS | changes).items() if x is not None}
    with pytest.raises(CheckpointError, match=f"^{re.escape(f'some.file: {message}')}$"):
        match_rules(PATH, CONFIG, lay_out, tensors)


def test_more_layers_than_tensors_are_rejected_before_the_layout() -> None:
    def never(config: Config) -> Iterator[Rule]:
        raise AssertionError

    with pytest.raises(CheckpointError, match="the config says 4 layers; there are only 3 tensors"):
        match_rules(PATH, Config(n_layers=4), never, TENSORS)
    match_rules(PATH, Config(n_layers=3, tie_embeddings=True), lay_out, TENSORS)


def test_a_fused_tensor_is_read_once() -> None:
    reads = 0

    def read() -> np.ndarray:
        nonlocal reads
        reads += 1
        return np.arange(48 * D).reshape(48, D)

    tensors = TENSORS | {"qk": TENSORS["qk"]._replace(read=read)}
    weights = Checkpoint(PATH, CONFIG, tuple(lay_out(CONFIG)), tensors).weights()
    assert list(weights) == ["embed.weight", "blocks.0.attn.q.weight", "blocks.0.attn.k.weight"]
    q, k = weights["blocks.0.attn.q.weight"], weights["blocks.0.attn.k.weight"]
    assert (q.shape, k.shape, k.nbytes) == ((32, D), (16, D), 4 * 16 * D)
    assert np.array_equal(np.concatenate([q.read(), k.read()]), np.arange(48 * D).reshape(48, D))
    assert reads == 1


def test_descriptions_are_in_the_order_of_the_file() -> None:
    tensors = {name: x._replace(steps=("dequantised",)) for name, x in TENSORS.items()}
    infos = Checkpoint(PATH, CONFIG, tuple(lay_out(CONFIG)), tensors).describe()
    assert [(info.name, info.steps) for info in infos] == [
        ("cosines", ("skipped: rotary table",)),
        ("qk", ("dequantised", "split in 2")),
        ("table", ("dequantised",)),
    ]
    assert infos[1].ours == ("blocks.0.attn.q.weight", "blocks.0.attn.k.weight")


@pytest.mark.parametrize("kind, size", [("float64", 8), ("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_bytes_of_a_weight(kind: str, size: int) -> None:
    assert Weight((3, 5), kind, lambda: np.zeros(1)).nbytes == 15 * size


def test_twenty_names_are_listed() -> None:
    names = [f"n{i}" for i in range(1022)]
    assert list_names(names[:20]) == ", ".join(names[:20])
    assert list_names(names[:21]).endswith("n19 and 1 more")
    assert list_names(names).endswith("n19 and 1,002 more")
