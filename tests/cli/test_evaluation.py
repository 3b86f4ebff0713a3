"""``tinyxp evaluate``: the loss that training reported, and models that are not finite."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tinyxp

from .running import Call


def test_evaluate_gives_the_loss_that_the_run_reported(
    call: Call, trained: tuple[Path, str], corpus: Path
) -> None:
    folder, _ = trained
    reported = json.loads((folder / "history.json").read_text())[-1]["validation"]
    found = {
        backend: json.loads(
            call("evaluate", folder, corpus, "--held-out", 0.1, "--backend", backend, "--json").stdout
        )
        for backend in ("numpy", "torch")
    }
    assert found["torch"]["nats_per_token"] == reported
    assert found["numpy"]["nats_per_token"] == pytest.approx(reported, abs=1e-5)
    one = found["torch"]
    assert one["perplexity"] == pytest.approx(np.exp(reported))
    assert one["bits_per_byte"] == pytest.approx(reported / np.log(2) * one["tokens"] / one["bytes"])
    assert one["tokens"] == 16 * one["windows"]
    printed = call("evaluate", folder, corpus, "--held-out", 0.1).stdout
    assert printed.startswith(f"{reported:.4f} nats per token, perplexity ")


def test_a_model_of_nan_is_no_figure(
    call: Call, trained: tuple[Path, str], corpus: Path, tmp_path: Path
) -> None:
    params = tinyxp.load(trained[0])
    bad = params.replace({name: x * np.nan for name, x in params.items()})
    tinyxp.save(bad, tmp_path / "bad")
    done = call(
        "evaluate", tmp_path / "bad", corpus, "--tokenizer", trained[0], "--backend", "torch", "--json"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "its numbers are not finite" in done.stderr
    assert "/no/such: no such file or folder" in call("evaluate", "/no/such", corpus).stderr
