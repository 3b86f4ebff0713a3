"""The measurements of a plan, all backends by turns in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from tinyxp import registry
from tinyxp.bench import work
from tinyxp.bench.arithmetic import bytes_read, cache_bytes, prefill_flops, weight_bytes
from tinyxp.bench.limits import product, weights_pass
from tinyxp.bench.machine import machine
from tinyxp.bench.memory import UNCOUNTED, Memory, memory
from tinyxp.bench.plan import BATCHES, STEPS, WARMUP, Plan
from tinyxp.bench.timing import Times, by_turns, timed
from tinyxp.dtypes import dtype_name
from tinyxp.engine import engine_of
from tinyxp.params import Params

Piece = Callable[[Params], work.Work]


class Pair(NamedTuple):
    """A prefill, and one step with the cache after as many tokens."""

    prefill: Times
    step: Times


@dataclass
class Result:
    """One backend in one dtype: seconds, bytes, operations."""

    backend: str
    dtype: str
    weight_bytes: int
    bytes_read: int  # of weights, by one token
    cache_bytes: int  # after the prompt
    prefill_flops: int  # of the prompt
    product_flops: int = 0  # of the product that shows the library's limit
    pass_bytes: int = 0  # of the weights that a pass over all matrices reads
    first_prefill: float = 0.0  # the first call, which compiles where the library does
    first_step: float = 0.0
    times: dict[str, Times] = field(default_factory=dict)
    """At the prompt: prefill, step, first_token, head_all, head_last, and the limits product and pass."""
    lengths: dict[int, Pair] = field(default_factory=dict)
    batches: dict[int, Pair] = field(default_factory=dict)
    memory: Memory = UNCOUNTED

    @property
    def name(self) -> str:
        """What a table calls it."""
        return f"{self.backend} {self.dtype}"

    @property
    def compile_seconds(self) -> float:
        """What the first prefill and the first step took beyond their medians."""
        first = self.first_prefill + self.first_step
        return max(0.0, first - self.times["prefill"].median - self.times["step"].median)

    @property
    def flops_per_second(self) -> dict[str, float]:
        """Of the prefill, and of the product that is its limit."""
        amounts = {"prefill": self.prefill_flops, "product": self.product_flops}
        return {name: amount / self.times[name].median for name, amount in amounts.items()}

    @property
    def bytes_per_second(self) -> dict[str, float]:
        """Of the weights in a step, and in the pass that is its limit."""
        amounts = {"step": self.bytes_read, "pass": self.pass_bytes}
        return {name: amount / self.times[name].median for name, amount in amounts.items()}


class Bench(NamedTuple):
    """All that the measurements of a plan gave, and what was left out."""

    plan: Plan
    machine: dict[str, Any]
    results: list[Result]
    notes: list[str]


def measure(plan: Plan, show: Callable[[int, int], None] | None = None) -> Bench:
    """Measures; ``show(done, total)`` hears how far it is.

    Raises ValueError for an unknown backend or dtype, and where no backend has any of the dtypes, and
    ImportError for a backend that is not installed.
    """
    session = _Session(plan)
    facts = machine(plan.backends, plan.threads)
    stages = session.stages()
    for done, stage in enumerate(stages, 1):
        stage()
        if show is not None:
            show(done, len(stages))
    return Bench(plan, facts, list(session.results.values()), session.notes)


class _Session:
    """The models of a plan, and what is known of each so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.models: dict[str, Params] = {}
        self.results: dict[str, Result] = {}
        self.notes: list[str] = []
        self.wanted = self.available()

    def available(self) -> list[tuple[str, str]]:
        """The plan's backends, each with those of its dtypes that it has."""
        found = []
        for dtype in self.plan.dtypes:
            if dtype != "int8":
                dtype_name(dtype)
        for backend in self.plan.backends:
            adapter = registry.backend(backend)
            for dtype in self.plan.dtypes:
                try:
                    engine_of(adapter).check_int8() if dtype == "int8" else adapter.dtype(dtype)
                    found.append((backend, dtype))
                except ValueError as error:
                    self.notes.append(f"left out: {backend} {dtype}, since {error}")
        if not found:
            raise ValueError(self.notes[-1])
        return found

    def stages(self) -> list[Callable[[], None]]:
        """The parts of the work, in order."""
        prompt = self.plan.prompt_tokens
        return [
            *(partial(self.make, *one) for one in self.wanted),
            *(
                self.at_prompt if length == prompt else partial(self.at_length, length)
                for length in self.plan.lengths
            ),
            *(partial(self.at_batch, batch) for batch in BATCHES if batch != 1),
            *(partial(self.weigh, *one) for one in self.wanted),
        ]

    def make(self, backend: str, dtype: str) -> None:
        """The parameters, and the first calls, before anything is compiled."""
        plan = self.plan
        params = plan.params(registry.backend(backend), dtype)
        result = Result(
            backend=backend,
            dtype=dtype,
            weight_bytes=weight_bytes(params),
            bytes_read=bytes_read(params),
            cache_bytes=cache_bytes(params, 1, plan.prompt_tokens),
            prefill_flops=prefill_flops(params.config, plan.prompt_tokens),
            first_prefill=timed(work.prefill(params, 1, plan.prompt_tokens)),
            first_step=timed(work.step(params, 1, plan.prompt_tokens, plan.steps)),
        )
        self.models[result.name], self.results[result.name] = params, result

    def turns(self, repeats: int, pieces: Mapping[str, Piece]) -> dict[str, dict[str, Times]]:
        """The times of each piece of work, by model, all of them by turns."""
        functions = {
            (model, name): make(params)
            for model, params in self.models.items()
            for name, make in pieces.items()
        }
        found = by_turns(functions, repeats=repeats, warmup=WARMUP, rest=self.plan.rest)
        return {model: {name: found[model, name] for name in pieces} for model in self.models}

    def pairs(
        self, batch: int, tokens: int, besides: Mapping[str, Piece], limit: Mapping[str, Piece]
    ) -> dict[str, dict[str, Times]]:
        """Prefill, with ``besides`` in the same rounds, and step, with ``limit``, by model."""
        plan = self.plan
        long = self.turns(
            plan.repeats, {"prefill": lambda params: work.prefill(params, batch, tokens), **besides}
        )
        short = self.turns(
            STEPS * plan.repeats,
            {"step": lambda params: work.step(params, batch, tokens, plan.steps), **limit},
        )
        return {model: long[model] | short[model] for model in self.models}

    def at_prompt(self) -> None:
        """All that is said of the prompt, each limit in the rounds of what is compared with it."""
        prompt = self.plan.prompt_tokens
        limits = {params: (product(params), weights_pass(params)) for params in self.models.values()}
        besides: dict[str, Piece] = {
            "first_token": lambda params: work.first_token(params, prompt),
            "head_all": lambda params: work.head(params, prompt, last=False),
            "head_last": lambda params: work.head(params, prompt, last=True),
            "product": lambda params: limits[params][0].work,
        }
        found = self.pairs(1, prompt, besides, {"pass": lambda params: limits[params][1].work})
        for model, times in found.items():
            result, params = self.results[model], self.models[model]
            result.product_flops, result.pass_bytes = (limit.amount for limit in limits[params])
            result.times = times
            result.lengths[prompt] = result.batches[1] = Pair(times["prefill"], times["step"])

    def at_length(self, length: int) -> None:
        """One row, after so many tokens."""
        for model, times in self.pairs(1, length, {}, {}).items():
            self.results[model].lengths[length] = Pair(**times)

    def at_batch(self, batch: int) -> None:
        """So many rows, after the prompt."""
        for model, times in self.pairs(batch, self.plan.prompt_tokens, {}, {}).items():
            self.results[model].batches[batch] = Pair(**times)

    def weigh(self, backend: str, dtype: str) -> None:
        """The memory, in another process; a failure there must not lose the times."""
        try:
            self.results[f"{backend} {dtype}"].memory = memory(self.plan, backend, dtype)
        except RuntimeError as error:
            self.notes.append(str(error))
