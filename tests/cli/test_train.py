"""From a text to a model, and how well it predicts: the commands, run as a person runs them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import tinyxp
from tinyxp.cli.train import printable
from tinyxp.errors import CheckpointError
from tinyxp.train.checkpoint import load_run

pytest.importorskip("torch")

WORDS = ("the", "old", "door", "of", "house", "was", "open", "and", "dog", "ran", "out", "it", "into", "rain")
SMALL = ["--width", 16, "--heads", 2, "--layers", 1, "--context", 16, "--batch", 4, "--vocab", 280]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tinyxp", *map(str, arguments)]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drawn = np.random.default_rng(0).choice(WORDS, 3000)
    path = tmp_path_factory.mktemp("corpus") / "rain.txt"
    path.write_text(". ".join(" ".join(drawn[i : i + 9]) for i in range(0, len(drawn), 9)))
    return path


@pytest.fixture(scope="module")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("trained") / "model"
    done = run("train", corpus, "-o", folder, "--steps", 24, "--seed", 3, *SMALL)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    return folder, done.stdout


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


def test_evaluate_gives_the_loss_that_the_run_reported(trained: tuple[Path, str], corpus: Path) -> None:
    folder, _ = trained
    reported = json.loads((folder / "history.json").read_text())[-1]["validation"]
    found = {
        backend: json.loads(
            run("evaluate", folder, corpus, "--held-out", 0.1, "--backend", backend, "--json").stdout
        )
        for backend in ("numpy", "torch")
    }
    assert found["torch"]["nats_per_token"] == reported
    assert found["numpy"]["nats_per_token"] == pytest.approx(reported, abs=1e-5)
    one = found["torch"]
    assert one["perplexity"] == pytest.approx(np.exp(reported))
    assert one["bits_per_byte"] == pytest.approx(reported / np.log(2) * one["tokens"] / one["bytes"])
    assert one["tokens"] == 16 * one["windows"]
    printed = run("evaluate", folder, corpus, "--held-out", 0.1).stdout
    assert printed.startswith(f"{reported:.4f} nats per token, perplexity ")


def test_a_run_that_is_killed_goes_on_bit_for_bit(
    trained: tuple[Path, str], corpus: Path, tmp_path: Path
) -> None:
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
        (["--kv-heads", 1], "no class of transformers"),
        (["--dtype", "float64", "--backend", "jax"], "jax_enable_x64"),
        (["--vocab", "²"], "no such file or folder"),
        (["--kv-heads", 3], "n_kv_heads is 3; it must divide n_heads, 4"),
        (["--vocab", 100], "vocab_size is 100"),
        (["--vocab", "nowhere"], "nowhere: no such file or folder"),
        (["--context", 100_000], "the corpus is too short: in its training part, ids has"),
        (["--held-out", 0.0001], "the corpus is too short: in its held-out part, ids has"),
        (["--backend", "numpy"], "pip install 'tinyxp[torch]'"),
        (["--resume"], "has no training.npz, so there is no run to go on with"),
        (["--resume", "--lr", 1e-3], "--lr cannot change in a run that goes on"),
        (["--dtype", "int8"], "dtype is 'int8'"),
    ],
)
def test_bad_options_are_one_line_and_leave_nothing(
    corpus: Path, tmp_path: Path, options: list[object], message: str
) -> None:
    done = run("train", corpus, "-o", tmp_path / "model", *options)
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
def test_bad_texts_are_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "text.txt").write_bytes(content)
    done = run("train", tmp_path / "text.txt", "-o", tmp_path / "model")
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "model").exists()


def test_a_file_in_the_folders_place_is_one_line(corpus: Path) -> None:
    done = run("train", corpus, "-o", corpus)
    assert f"{corpus}: is a file; a folder is to be written there" in done.stderr


def test_a_run_is_not_overwritten_nor_gone_on_with_on_another_text(
    trained: tuple[Path, str], tmp_path: Path
) -> None:
    folder, _ = trained
    other = tmp_path / "other.txt"
    other.write_text("another text " * 500)
    assert "holds a training run" in run("train", other, "-o", folder).stderr
    assert "is not the text that the run" in run("train", other, "-o", folder, "--resume").stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_one_line(corpus: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = run("train", corpus, "-o", tmp_path / "model", *SMALL)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_an_update_that_diverges_leaves_the_last_good_checkpoint(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    run_away = ["--steps", 1, "--every", 1, "--lr", 1e30, "--warmup", 0]
    done = run("train", corpus, "-o", folder, *SMALL, *run_away)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "the held-out loss after step 1 is" in done.stderr
    assert load_run(folder, xp=np).state.step == 0
    assert run("evaluate", folder, corpus).returncode == 0
    # ... and going on from the start does not tell of it twice.
    assert run("train", corpus, "-o", folder, "--resume").returncode == 2
    assert [e["step"] for e in load_run(folder, xp=np).history] == [0]


def test_a_model_of_nan_is_no_figure(trained: tuple[Path, str], corpus: Path, tmp_path: Path) -> None:
    params = tinyxp.load(trained[0])
    bad = params.replace({name: x * np.nan for name, x in params.items()})
    tinyxp.save(bad, tmp_path / "bad")
    done = run(
        "evaluate", tmp_path / "bad", corpus, "--tokenizer", trained[0], "--backend", "torch", "--json"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "its numbers are not finite" in done.stderr
    assert "/no/such: no such file or folder" in run("evaluate", "/no/such", corpus).stderr


@pytest.mark.parametrize("at", [4, 30, 200, 1000, -60, -20, -10])
def test_a_corrupt_run_is_one_error_or_a_run(trained: tuple[Path, str], tmp_path: Path, at: int) -> None:
    data = bytearray((trained[0] / "training.npz").read_bytes())
    for value in (0x00, 0xFF, data[at] ^ 1, data[at] ^ 64):
        data[at] = value
        (tmp_path / "training.npz").write_bytes(data)
        with suppress(CheckpointError):  # and no other error
            assert load_run(tmp_path, xp=np).state.step == 24
    (tmp_path / "training.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match="training.npz"):
        load_run(tmp_path, xp=np)


def test_files_of_another_tokenizer_do_not_stay(
    trained: tuple[Path, str], corpus: Path, tmp_path: Path
) -> None:
    pair, folder = tmp_path / "pair", tmp_path / "model"
    for where, names in ((pair, ["vocab.json", "merges.txt"]), (folder, ["tokenizer.json"])):
        where.mkdir()
        for name in names:
            shutil.copy(trained[0] / name, where)
    (folder / "tokenizer.json").write_text("{}")
    done = run("train", corpus, "-o", folder, *SMALL[:-2], "--vocab", pair, "--steps", 1)
    assert done.returncode == 0, done.stderr
    assert not (folder / "tokenizer.json").exists()
    assert run("evaluate", folder, corpus).returncode == 0


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
