"""``tinyxp generate``: reference texts, options, prompts, streams that close, and bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .running import Call, command, run


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_generate_writes_the_reference_text_and_nothing_else(stories: Path, name: str) -> None:
    pytest.importorskip(name)
    reference = json.loads((stories / "reference.json").read_text())
    done = run("generate", "", "-m", stories, "-n", 100, "--backend", name)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == reference["greedy_text"] + "\n"


def test_generate_without_a_model_draws_from_the_one_that_comes_with_the_package() -> None:
    first, again, other = (run("generate", "Holmes looked at", "-n", 8, "--seed", i) for i in (1, 1, 2))
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == again.stdout != other.stdout
    greedy = [run("generate", "Holmes", "-n", 8, "--temperature", 0, "--seed", i).stdout for i in (1, 2)]
    assert (
        greedy[0]
        == greedy[1]
        == run("generate", "Holmes", "-m", "holmes", "-n", 8, "--temperature", 0).stdout
    )


def test_generate_json_holds_what_a_program_needs(stories: Path) -> None:
    reference = json.loads((stories / "reference.json").read_text())
    done = run("generate", "Once upon a time", "-m", stories / "stories260K.bin", "-n", 8, "--json")
    record = json.loads(done.stdout)
    assert record["prompt_ids"] == [1, 403, 407, 261, 378]
    assert record["ids"] == reference["greedy_ids_from_bos"][5:13]
    assert record["text"] == ", there was a little girl"
    assert (record["backend"], record["dtype"], record["new_tokens"]) == ("numpy", "float32", 8)
    assert record["tokens_per_second"] > 0


def test_generate_options_reach_the_model(stories: Path) -> None:
    plain = ["generate", "Once", "-m", stories, "-n", 12]
    greedy = run(*plain).stdout
    assert run(*plain, "--no-cache").stdout == greedy
    assert run(*plain, "--temperature", 0.7, "--top-k", 1, "--seed", 3).stdout == greedy
    assert run(*plain, "--temperature", 0.7, "--top-p", 0.0, "--seed", 3).stdout == greedy
    assert run(*plain, "--dtype", "float64", "--threads", 1).stdout == greedy
    first, again, other = (run(*plain, "--temperature", 1.5, "--seed", s).stdout for s in (1, 1, 2))
    assert first == again
    assert first != other


def test_generate_reads_a_prompt_from_standard_input(stories: Path) -> None:
    plain = run("generate", "Once upon a time", "-m", stories, "-n", 5)
    assert run("generate", "-", "-m", stories, "-n", 5, text="Once upon a time").stdout == plain.stdout


def test_stats_go_to_standard_error(stories: Path) -> None:
    done = run("generate", "Once", "-m", stories, "-n", 5, "--stats")
    assert "numpy float32: 2 prompt tokens" in done.stderr
    assert "tokens/s" in done.stderr
    assert "tokens/s" not in done.stdout


def test_control_c_keeps_what_was_written_and_exits_130(stories: Path) -> None:
    # A shell starts what it runs in the background, such as this suite, with Ctrl-C switched off.
    program = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program += "; runpy.run_module('tinyxp', run_name='__main__')"
    arguments = [sys.executable, "-c", program, "generate", "Once upon", "-m", str(stories)]
    process = subprocess.Popen(
        [*arguments, "-n", "1000000", "--ignore-eos", "--no-cache", "--slide"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    seen = process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert seen == " a time, there was a"
    assert rest.endswith("\n")
    assert "Traceback" not in errors


def test_a_reader_that_leaves_gets_no_traceback(stories: Path) -> None:
    arguments = command("generate", "Once", "-m", stories, "-n", 200)
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(5)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode != 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["-m", "/no/such/model"], "/no/such/model: no such file or folder (a hub id has the form org/name)"),
        (
            ["-m", "{stories}", "--backend", "cupy"],
            "backend is 'cupy'; known are array_api_strict, dask, jax",
        ),
        (["-m", "{stories}", "--device", "cuda:7"], "device is 'cuda:7'; numpy has cpu"),
        (
            ["-m", "{stories}", "--device", "cuda:7", "--backend", "torch"],
            "device is 'cuda:7'; torch has cpu",
        ),
        (["-m", "{stories}", "--device", "meta", "--backend", "torch"], "params have no values here"),
        (["-m", "{stories}", "--dtype", "float8"], "dtype is 'float8'; known are float64, float32"),
        (["-m", "/no/such/model", "--dtype", "float8"], "dtype is 'float8'"),
        (["-m", "/no/such/model", "--device", "cuda:7"], "device is 'cuda:7'"),
        (
            ["-m", "{stories}", "--dtype", "bfloat16"],
            "dtype is 'bfloat16'; numpy has float64, float32, float16",
        ),
        (["-m", "{stories}", "--dtype", "float64", "--backend", "jax"], "jax_enable_x64"),
        (
            ["-m", "{stories}", "--temperature", "-1"],
            "temperature is -1.0; it must be a finite number of 0 or",
        ),
        (["-m", "{stories}", "--temperature", "nan"], "temperature is nan"),
        (["-m", "{stories}", "--top-k", "0"], "top_k is 0; it must be an integer of 1 or more"),
        (["-m", "{stories}", "--top-p", "1.5"], "top_p is 1.5; it must be a number from 0 to 1"),
        (["-m", "{stories}", "--seed", "-3"], "seed is -3; it must be an integer of 0 or more"),
        (["-m", "{stories}", "-n", "-1"], "-1"),
        (["-m", "{stories}", "--threads", "0"], "0"),
        (["-m", "{tiny}"], "name the one to use (--tokenizer)"),
    ],
)
def test_bad_input_gets_one_line_and_exit_status_2(
    call: Call, stories: Path, tiny: Path, arguments: list[str], line: str
) -> None:
    for library in {"torch", "jax"} & set(arguments):
        pytest.importorskip(library)
    filled = [a.format(stories=stories, tiny=tiny) for a in arguments]
    done = call("generate", "Once", *filled)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tinyxp: ")
    assert done.stderr.count("\n") == 1
    assert line in done.stderr


def test_an_empty_prompt_is_rejected_if_the_tokenizer_adds_nothing(smollm2_gguf: Path) -> None:
    done = run("generate", "", "-m", smollm2_gguf)
    assert done.returncode == 2
    assert "PROMPT is empty" in done.stderr


def test_closed_streams_get_one_line(stories: Path) -> None:
    line = f"{sys.executable} -m tinyxp generate - -m {stories} -n 3"
    for closed in ("<&-", ">&- </dev/null"):
        done = subprocess.run(f"{line} {closed}", shell=True, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert done.stderr.startswith("tinyxp: ")
        assert done.stderr.count("\n") == 1
