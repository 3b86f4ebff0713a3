"""Measurements in separate processes, made once: memory, first token, compilations, accuracy."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tinyxp.bench.memory import peak_memory
from tinyxp.bench.plan import Plan
from tinyxp.engine import engine_of

MODEL = "smollm2-135m"


def memories() -> list[dict[str, Any]]:
    """Measure the peak memory of prefill and steps."""
    rows = []
    for backend, dtype in (("numpy", "float32"), ("torch", "float32"), ("torch", "int8"), ("jax", "float32")):
        plan = Plan(model=MODEL, backends=(backend,), dtypes=(dtype,), repeats=5)
        memory = peak_memory(plan, backend, dtype)
        rows.append({"name": f"{backend} {dtype}", **memory._asdict()})
    return rows


def first_token(gguf: str, runs: int = 5) -> list[dict[str, Any]]:
    """Measure the seconds from the start of ``tinyxp generate`` to the first character of its output."""
    rows = []
    for backend in ("numpy", "torch", "jax"):
        command = [sys.executable, "-m", "tinyxp", "generate", "Once upon a time", "-m", gguf, "-n", "2"]
        seconds = []
        for _ in range(runs):
            start = time.perf_counter()
            with subprocess.Popen([*command, "--backend", backend], stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                process.stdout.read(1)
                seconds.append(time.perf_counter() - start)
        rows.append({"name": backend, "first": seconds[0], "median": statistics.median(seconds)})
    return rows


COUNT = """
import json, time
import jax, numpy as np
import tinyxp

compiled = []
def hear(event, seconds, **_):
    if event.endswith("backend_compile_duration"):
        compiled.append(seconds)
jax.monitoring.register_event_duration_secs_listener(hear)
params = tinyxp.init(tinyxp.Config.preset({model!r}), xp=jax.numpy)
prompts = np.random.default_rng(0).permutation({longest})[:100] + 1
del compiled[:]
start = time.perf_counter()
tinyxp.generate(params, [[1] * {first}], 2)
first, seconds = len(compiled), time.perf_counter() - start
spent = sum(compiled)
for length in prompts.tolist():
    tinyxp.generate(params, [[1] * length], 3)
print(json.dumps([first, seconds, spent, len(compiled)]))
"""


def compilations() -> list[dict[str, Any]]:
    """Count what XLA compiles, eager operations too, for the first prompt and for 100 lengths of prompt."""
    rows = []
    for model, first, longest in (("tiny", 10, 64), ("smollm2-135m", 128, 100), ("book", 20, 120)):
        code = COUNT.format(model=model, longest=longest, first=first)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        count, seconds, spent, total = json.loads(done.stdout.splitlines()[-1])
        rows.append({"name": model, "first": count, "seconds": seconds, "compiling": spent, "total": total})
    return rows


def accuracy(gguf: str, text: str, tokens: int = 1024) -> list[dict[str, Any]]:
    """Return mean KL(float32 || other) in nats over a text, and how often the likeliest token agrees.

    The other dtypes are bfloat16 and int8, on torch.
    """
    import torch

    import tinyxp

    backend = tinyxp.backend("torch")
    params = tinyxp.load(gguf, xp=torch)
    ids = [tinyxp.load_tokenizer(gguf).encode(Path(text).read_text())[:tokens]]

    def logs(f: Any) -> torch.Tensor:
        return torch.log_softmax(f(ids)[0].double(), -1)

    exact = logs(backend.compile(params))
    others = {"bfloat16": params.to(dtype="bfloat16"), "int8": engine_of(backend).quantize(params)}
    rows = []
    for name, other in others.items():
        narrow = logs(backend.compile(other))
        divergence = (exact.exp() * (exact - narrow)).sum(-1).mean().item()
        same = (exact.argmax(-1) == narrow.argmax(-1)).double().mean().item()
        rows.append({"name": name, "tokens": len(ids[0]), "kl": divergence, "same": same})
    return rows


def environment() -> tuple[str | None, str | None]:
    """Return the GGUF and the text that some of these need, if the environment variables name them."""
    data = os.environ.get("TINYXP_TEST_DATA")
    text = None if data is None else next(iter(sorted(Path(data).rglob("tinyshakespeare.txt"))), None)
    return os.environ.get("TINYXP_TEST_SMOLLM2"), None if text is None else str(text)
