"""``tinyxp train``: reports, checkpoints, resuming, options and bad input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tinyxp
from tinyxp.cli.train import printable, settings_of, training_backend
from tinyxp.train.checkpoint import load_run

from .running import SMALL, Call, command, run

pytest.importorskip("torch")


def test_a_run_reports_and_learns(trained: tuple[Path, str]) -> None:
    folder, output = trained
    history = json.loads((folder / "history.json").read_text())
    assert [e["step"] for e in history] == list(range(25))
    held_out = {e["step"]: e["validation"] for e in history if e["validation"] is not None}
    assert list(held_out) == list(range(0, 25, 3))
    assert held_out[0] == pytest.approx(np.log(280), abs=0.05)
    assert held_out[24] < held_out[0] - 0.1
    assert f"step 24/24: loss {history[-1]['loss']:.4f}, validation {held_out[24]:.4f}" in output
    assert output.count("a sample: ") == 9
    last = [e["loss"] for e in history[1:]]
    assert f"mean of the last 24 training losses: {sum(last) / 24:.4f}" in output
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_folder_is_a_model_that_transformers_loads(trained: tuple[Path, str]) -> None:
    transformers = pytest.importorskip("transformers")
    import torch

    folder, _ = trained
    params, text = tinyxp.load(folder), tinyxp.load_tokenizer(folder)
    ids = text.encode("the dog ran into the house")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    assert words("the dog ran into the house")["input_ids"] == ids
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits.numpy()
    assert np.allclose(tinyxp.forward(params, [ids]), expected, atol=2e-5)
    assert run("generate", "the dog", "-m", folder, "-n", 5).returncode == 0


def test_a_killed_run_resumes_bit_for_bit(trained: tuple[Path, str], corpus: Path, tmp_path: Path) -> None:
    whole, _ = trained
    folder = tmp_path / "model"
    arguments = ["train", corpus, "-o", folder, "--steps", 24, "--seed", 3, *SMALL]
    with subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert any(line.startswith("step 9/24") for line in process.stdout)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    again = run("train", corpus, "-o", folder, "--resume")
    assert again.returncode == 0, again.stderr
    assert "step 3/24:" not in again.stdout
    for name in ("model.safetensors", "history.json", "training.npz"):
        ours, theirs = (np.frombuffer((f / name).read_bytes(), np.uint8) for f in (folder, whole))
        if name != "training.npz":  # a zip, with the time of its writing
            assert np.array_equal(ours, theirs), name
        else:
            with np.load(folder / name) as one, np.load(whole / name) as other:
                assert one.files == other.files
                assert all(np.array_equal(one[part], other[part]) for part in one.files if part != "run")
    assert not list(folder.glob("*.tmp"))


def test_a_vocabulary_of_gpt2s_is_kept_as_far_as_it_is_used(
    test_data: Path, corpus: Path, tmp_path: Path
) -> None:
    where = ["-o", tmp_path / "model", "--vocab", test_data / "gpt2-bpe", "--steps", 2]
    done = run("train", corpus, *SMALL[:-2], *where, "--family", "llama", "--kv-heads", 1, "--untied")
    assert done.returncode == 0, done.stderr
    text = tinyxp.load_tokenizer(tmp_path / "model")
    params = tinyxp.load(tmp_path / "model")
    assert text.vocab_size == params.config.vocab_size < 40
    assert (params.config.norm, params.config.n_kv_heads, params.config.tie_embeddings) == ("rms", 1, False)
    with pytest.raises(ValueError, match="compact vocabulary"):
        text.encode("zebra")


@pytest.mark.parametrize(
    "options, message",
    [
        (["--steps", 0], "steps is 0; it must be an integer of 1 or more"),
        (["--lr", "nan"], "lr is nan; it must be a finite number above 0"),
        (["--heads", 3], "d_model is 128; without a head_dim, n_heads, 3, must divide it"),
        (["--dtype", "float64", "--backend", "jax"], "jax_enable_x64"),
        (["--vocab", "nowhere"], "nowhere: no such file or folder"),
        (["--backend", "numpy"], "backend is 'numpy', which has no gradients"),
        (["--resume"], "has no training.npz, so there is no run to resume"),
        (["--resume", "--lr", 1e-3], "--lr cannot change in a run that resumes"),
        (["--dtype", "int8"], "dtype is 'int8'"),
    ],
)
def test_bad_options_are_one_line_and_leave_nothing(
    call: Call, corpus: Path, tmp_path: Path, options: list[object], message: str
) -> None:
    done = call("train", corpus, "-o", tmp_path / "model", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "is empty"),
        (b"ab", "the corpus is too short: in its training part, ids has 1 tokens"),
        (b"ab\0cd", "is not a text: it has a NUL byte at offset 2"),
        (b"caf\xe9", "is not UTF-8: byte 0xe9 at offset 3"),
    ],
)
def test_bad_texts_are_one_line(call: Call, tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "text.txt").write_bytes(content)
    done = call("train", tmp_path / "text.txt", "-o", tmp_path / "model")
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "model").exists()


def test_a_file_in_the_folders_place_is_one_line(call: Call, corpus: Path) -> None:
    done = call("train", corpus, "-o", corpus)
    assert f"{corpus}: is a file; the output must be a folder" in done.stderr


def test_a_run_is_not_overwritten_nor_resumed_on_another_text(
    call: Call, trained: tuple[Path, str], tmp_path: Path
) -> None:
    folder, _ = trained
    other = tmp_path / "other.txt"
    other.write_text("another text " * 500)
    assert "has a training run" in call("train", other, "-o", folder).stderr
    assert "is not the text that the run" in call("train", other, "-o", folder, "--resume").stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_one_line(corpus: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = run("train", corpus, "-o", tmp_path / "model", *SMALL)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_an_update_that_diverges_leaves_the_last_good_checkpoint(
    call: Call, corpus: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    run_away = ["--steps", 1, "--every", 1, "--lr", 1e30, "--warmup", 0]
    done = call("train", corpus, "-o", folder, *SMALL, *run_away)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "the held-out loss after step 1 is" in done.stderr
    assert load_run(folder, xp=np).state.step == 0
    assert call("evaluate", folder, corpus).returncode == 0
    # ... and resuming from the start does not add an entry twice.
    assert call("train", corpus, "-o", folder, "--resume").returncode == 2
    assert [e["step"] for e in load_run(folder, xp=np).history] == [0]


def test_an_output_that_lacks_characters_ends_no_run(corpus: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        command("train", corpus, "-o", tmp_path / "model", *SMALL, "--steps", 1, "--prompt", "the ☂ dog"),
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
    )
    assert (done.returncode, done.stderr.count(b"\n")) == (0, 1)
    assert b"a sample: the ? dog" in done.stdout


def test_control_characters_of_a_sample_do_not_reach_the_terminal() -> None:
    assert printable("a\x1b[2J\nb\x00☂") == "a\ufffd[2J\nb\ufffd☂"


def test_the_default_backend_has_gradients_and_the_cheapest_start() -> None:
    assert training_backend(None).name == "torch"
    assert training_backend("jax").name == "jax"


def test_without_a_library_with_gradients_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tinyxp.engine.engine_names", lambda: ("numpy",))
    with pytest.raises(ValueError, match=re.escape("none is installed: pip install 'tinyxp[torch]'")):
        training_backend(None)


def test_options_become_settings() -> None:
    options = dict.fromkeys(("warmup", "every", "micro_batch", "dtype", "prompt", "kv_heads"))
    options |= {
        "steps": 40,
        "batch": 2,
        "lr": 0.5,
        "dropout": 0.25,
        "seed": 3,
        "vocab": "gpt2",
        "held_out": 0.2,
    }
    options |= {"family": "llama", "width": 8, "layers": 2, "heads": 2, "context": 9, "untied": True}
    settings = settings_of(options)
    recipe = settings.recipe
    assert (recipe.steps, recipe.warmup, recipe.evaluate_every, recipe.peak, recipe.seed) == (
        40,
        4,
        5,
        0.5,
        3,
    )
    assert (settings.vocabulary, settings.family, settings.held_out) == ("gpt2", "llama", 0.2)
    assert settings.config(50).tie_embeddings is False
    assert settings_of(options | {"warmup": 0, "every": 7}).recipe.evaluate_every == 7
    assert settings_of(options | {"warmup": 0, "every": 7}).recipe.warmup == 0
