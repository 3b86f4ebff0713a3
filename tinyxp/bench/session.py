"""The measurements of a plan, with all backends interleaved in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from tinyxp import registry
from tinyxp.bench import work
from tinyxp.bench.arithmetic import bytes_read, cache_bytes, prefill_flops, weight_bytes
from tinyxp.bench.limits import product, weights_pass
from tinyxp.bench.machine import describe_machine
from tinyxp.bench.memory import UNCOUNTED, Memory, peak_memory
from tinyxp.bench.plan import BATCHES, STEPS, WARMUP, Plan
from tinyxp.bench.timing import Times, interleave, time_call
from tinyxp.dtypes import dtype_name
from tinyxp.engine import engine_of
from tinyxp.params import Params

Piece = Callable[[Params], work.Work]


class Pair(NamedTuple):
    """Times of a prefill, and of one step with the cache after as many tokens."""

    prefill: Times
    step: Times


@dataclass
class Result:
    """The measurements of one backend in one dtype: seconds, bytes, operations."""

    backend: str
    dtype: str
    weight_bytes: int
    bytes_read: int  # of weights, by one token
    cache_bytes: int  # after the prompt
    prefill_flops: int  # of the prompt
    product_flops: int = 0  # of the matrix product that is the limit
    pass_bytes: int = 0  # read by a pass over all matrices, the limit
    first_prefill: float = 0.0  # seconds of the first call, compiling included
    first_step: float = 0.0
    times: dict[str, Times] = field(default_factory=dict)
    """At the prompt: prefill, step, first_token, head_all, head_last, and the limits product and pass."""
    lengths: dict[int, Pair] = field(default_factory=dict)
    batches: dict[int, Pair] = field(default_factory=dict)
    memory: Memory = UNCOUNTED

    @property
    def name(self) -> str:
        """The name in tables."""
        return f"{self.backend} {self.dtype}"

    @property
    def compile_seconds(self) -> float:
        """The seconds of the first prefill and step minus their medians."""
        first = self.first_prefill + self.first_step
        return max(0.0, first - self.times["prefill"].median - self.times["step"].median)

    @property
    def flops_per_second(self) -> dict[str, float]:
        """The rates of the prefill and of the product that is its limit."""
        amounts = {"prefill": self.prefill_flops, "product": self.product_flops}
        return {name: amount / self.times[name].median for name, amount in amounts.items()}

    @property
    def bytes_per_second(self) -> dict[str, float]:
        """The rates of reading weights in a step and in the pass that is its limit."""
        amounts = {"step": self.bytes_read, "pass": self.pass_bytes}
        return {name: amount / self.times[name].median for name, amount in amounts.items()}


class Bench(NamedTuple):
    """The results of a plan, and notes on what was left out."""

    plan: Plan
    machine: dict[str, Any]
    results: list[Result]
    notes: list[str]


def measure(plan: Plan, show: Callable[[int, int], None] | None = None) -> Bench:
    """Run all measurements of a plan; ``show(done, total)`` is called after each stage.

    Raise ValueError for an unknown backend or dtype, or if no backend has any of the dtypes. Raise
    ImportError for a backend that is not installed.
    """
    session = _Session(plan)
    facts = describe_machine(plan.backends, plan.threads)
    stages = session.stages()
    for done, stage in enumerate(stages, 1):
        stage()
        if show is not None:
            show(done, len(stages))
    return Bench(plan, facts, list(session.results.values()), session.notes)


class _Session:
    """The models of a plan, and their results so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.models: dict[str, Params] = {}
        self.results: dict[str, Result] = {}
        self.notes: list[str] = []
        self.subjects = self.available()

    def available(self) -> list[tuple[str, str]]:
        """Return the pairs of the plan's backends and dtypes that exist; the others become notes."""
        pairs = []
        for dtype in self.plan.dtypes:
            if dtype != "int8":
                dtype_name(dtype)
        for backend in self.plan.backends:
            adapter = registry.backend(backend)
            for dtype in self.plan.dtypes:
                try:
                    engine_of(adapter).check_int8() if dtype == "int8" else adapter.dtype(dtype)
                    pairs.append((backend, dtype))
                except ValueError as error:
                    self.notes.append(f"left out: {backend} {dtype}, since {error}")
        if not pairs:
            raise ValueError(self.notes[-1])
        return pairs

    def stages(self) -> list[Callable[[], None]]:
        """Return the parts of the work, in order."""
        prompt = self.plan.prompt_tokens
        return [
            *(partial(self.make, *one) for one in self.subjects),
            *(
                self.at_prompt if length == prompt else partial(self.at_length, length)
                for length in self.plan.lengths
            ),
            *(partial(self.at_batch, batch) for batch in BATCHES if batch != 1),
            *(partial(self.weigh, *one) for one in self.subjects),
        ]

    def make(self, backend: str, dtype: str) -> None:
        """Create the parameters and time the first calls, before anything is compiled."""
        plan = self.plan
        params = plan.params(registry.backend(backend), dtype)
        result = Result(
            backend=backend,
            dtype=dtype,
            weight_bytes=weight_bytes(params),
            bytes_read=bytes_read(params),
            cache_bytes=cache_bytes(params, 1, plan.prompt_tokens),
            prefill_flops=prefill_flops(params.config, plan.prompt_tokens),
            first_prefill=time_call(work.prefill(params, 1, plan.prompt_tokens)),
            first_step=time_call(work.step(params, 1, plan.prompt_tokens, plan.steps)),
        )
        self.models[result.name], self.results[result.name] = params, result

    def turns(self, repeats: int, pieces: Mapping[str, Piece]) -> dict[str, dict[str, Times]]:
        """Measure each piece of work of each model, interleaved; return times by model and name."""
        functions = {
            (model, name): make(params)
            for model, params in self.models.items()
            for name, make in pieces.items()
        }
        times = interleave(functions, repeats=repeats, warmup=WARMUP, rest=self.plan.rest)
        return {model: {name: times[model, name] for name in pieces} for model in self.models}

    def pairs(
        self, batch: int, tokens: int, with_prefill: Mapping[str, Piece], with_step: Mapping[str, Piece]
    ) -> dict[str, dict[str, Times]]:
        """Measure prefill and step, each in the same rounds as the other pieces of work that go with it."""
        plan = self.plan
        long = self.turns(
            plan.repeats, {"prefill": lambda params: work.prefill(params, batch, tokens), **with_prefill}
        )
        short = self.turns(
            STEPS * plan.repeats,
            {"step": lambda params: work.step(params, batch, tokens, plan.steps), **with_step},
        )
        return {model: long[model] | short[model] for model in self.models}

    def at_prompt(self) -> None:
        """Measure everything at the prompt's length, each limit in the rounds of what it is compared with."""
        prompt = self.plan.prompt_tokens
        limits = {params: (product(params), weights_pass(params)) for params in self.models.values()}
        with_prefill: dict[str, Piece] = {
            "first_token": lambda params: work.first_token(params, prompt),
            "head_all": lambda params: work.head(params, prompt, last=False),
            "head_last": lambda params: work.head(params, prompt, last=True),
            "product": lambda params: limits[params][0].work,
        }
        measured = self.pairs(1, prompt, with_prefill, {"pass": lambda params: limits[params][1].work})
        for model, times in measured.items():
            result, params = self.results[model], self.models[model]
            result.product_flops, result.pass_bytes = (limit.amount for limit in limits[params])
            result.times = times
            result.lengths[prompt] = result.batches[1] = Pair(times["prefill"], times["step"])

    def at_length(self, length: int) -> None:
        """Measure one row at another length."""
        for model, times in self.pairs(1, length, {}, {}).items():
            self.results[model].lengths[length] = Pair(**times)

    def at_batch(self, batch: int) -> None:
        """Measure several rows at the prompt's length."""
        for model, times in self.pairs(batch, self.plan.prompt_tokens, {}, {}).items():
            self.results[model].batches[batch] = Pair(**times)

    def weigh(self, backend: str, dtype: str) -> None:
        """Measure memory in another process; its failure becomes a note, so that the times are not lost."""
        try:
            self.results[f"{backend} {dtype}"].memory = peak_memory(self.plan, backend, dtype)
        except RuntimeError as error:
            self.notes.append(str(error))
