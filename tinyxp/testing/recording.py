"""What the model asks of an array library, found by running it on arrays that note every use of them.

``python -m tinyxp.testing.recording`` prints the page ``docs/array-api.md``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tinyxp import registry
from tinyxp.cache import new_cache
from tinyxp.config import GPT2, Config, RopeScaling
from tinyxp.engine import new_decoder
from tinyxp.generation import generate
from tinyxp.initialization import init
from tinyxp.model import extend, forward, loss
from tinyxp.sampling import draw, greedy, probabilities
from tinyxp.testing.recorder import FUNCTIONS, Recorder, Use, registered
from tinyxp.typing import Namespace

STAGES = ("forward", "step", "loss", "sampling", "generate", "params")

_SMALL: dict[str, Any] = {"vocab_size": 11, "n_layers": 1, "d_model": 8, "n_heads": 2, "d_ff": 12}
_GPT2 = Config(**GPT2, **_SMALL, n_kv_heads=2, max_seq_len=16)
_LLAMA = Config(**_SMALL, n_kv_heads=1)
_LINEAR = RopeScaling(rope_type="linear", factor=2.0)
_LLAMA3 = RopeScaling(rope_type="llama3", factor=8.0, original_max_seq_len=16)

FAMILIES: dict[str, tuple[Config, ...]] = {
    "GPT-2": (_GPT2, replace(_GPT2, tie_embeddings=False)),
    "Llama": (
        _LLAMA,
        replace(_LLAMA, attn_bias=True, rope_scaling=_LINEAR),
        replace(_LLAMA, tie_embeddings=True, rope_scaling=_LLAMA3),
    ),
    "erf GELU": (replace(_GPT2, mlp="gelu"),),
}
"""Small models: heads tied and not, rotary frequencies stretched and not, with biases and without."""

IDS = [[3, 1, 4, 1], [5, 9, 2, 6]]
TARGETS = [[1, 4, 1, -100], [9, 2, 6, 5]]
MASK = [[False, True, True, True], [True, True, True, True]]
POSITIONS = [[0, 0, 1, 2], [0, 1, 2, 3]]


@dataclass(frozen=True)
class Usage:
    """What was asked of the library, each with the pairs of a stage and a family that asked it.

    Kinds of use: "function" (the standard's), "operator", "index", "attribute", "named dtype" and "constant"
    (of the namespace), "dtype" (of an array that it returned), "broadcasting", "promotion", "in place", and
    "outside" (what the standard does not have). Sampling belongs to the family "".
    """

    uses: Mapping[Use, frozenset[tuple[str, str]]]

    def names(self, kind: str, *, stage: str | None = None, family: str | None = None) -> set[str]:
        """The names of one kind that this stage of this family uses; None stands for any."""
        wanted = [use for use in self.uses if use.kind == kind]
        return {
            use.name
            for use in wanted
            if any(stage in (None, s) and family in (None, f) for s, f in self.uses[use])
        }


def array_api_usage(xp: Namespace | None = None) -> Usage:
    """Runs every stage of both families, in all forms that their arguments take, and returns what they used.

    ``xp`` computes: where it is None, array_api_strict with its optional features off, or NumPy where that is
    not installed. What array_api_strict lacks, float16, NumPy computes.
    """
    if xp is None:
        installed = registry.available_backends().get("strict") is not None
        xp = registry.backend("strict").xp if installed else np
    uses: dict[Use, set[tuple[str, str]]] = defaultdict(set)
    for base, dtype in ((xp, "float32"), (xp, "float64"), (np, "float16")):
        recorder = Recorder(base)
        with registered(recorder):
            _run(recorder, dtype)
        for use, where in recorder.uses.items():
            uses[use] |= where
    return Usage({use: frozenset(where) for use, where in uses.items()})


def _run(recorder: Recorder, dtype: str) -> None:
    """Every stage of every family in one dtype."""
    xp = recorder.namespace
    for family, config in ((family, config) for family, configs in FAMILIES.items() for config in configs):
        recorder.where = ("params", family)
        params = init(config, xp=xp, dtype=dtype)
        params.to(np)
        params.to(device=params.device)
        params.to(dtype="float64" if dtype == "float32" else "float32")
        for ids, targets, given in _inputs(recorder):
            recorder.where = ("forward", family)
            forward(params, ids, **given)
            recorder.where = ("loss", family)
            loss(params, ids, targets, **given)
            recorder.where = ("step", family)
            for last in (False, True):
                _, cache = extend(params, ids, new_cache(params, 2, 5), last=last, **given)
                extend(params, [[7], [8]], cache, last=last)
        recorder.where = ("generate", family)
        generate(params, IDS, 2, mask=MASK)
        new_decoder(params, 2, 2)(np.asarray(IDS))  # a cache that has to grow
    recorder.where = ("sampling", "")
    logits = recorder.array(np.linspace(-2.0, 2.0, 8).reshape(2, 4).astype(dtype))
    uniforms = recorder.array(np.asarray([0.25, 0.75], "float64" if dtype == "float64" else "float32"))
    greedy(logits, xp=xp)
    for top_k, top_p in ((None, None), (3, None), (None, 0.9), (3, 0.9)):
        draw(probabilities(logits, temperature=0.8, top_k=top_k, top_p=top_p, xp=xp), uniforms, xp=xp)


def _inputs(recorder: Recorder) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """ids, targets, and mask and positions given or not: on NumPy, and as arrays of the library."""
    for convert in (np.asarray, recorder.array):
        for positions in (None, POSITIONS):
            for mask in (None, MASK):
                given = {"positions": positions, "mask": mask}
                yield convert(IDS), convert(TARGETS), {k: v and convert(v) for k, v in given.items()}
    yield IDS, TARGETS, {"mask": recorder.array(np.asarray(MASK, dtype=np.int64))}


def _named(kind: str, pattern: str) -> Callable[[Use], bool]:
    """Whether a use is of this kind and a name that matches all of ``pattern``."""
    return lambda use: use.kind == kind and re.fullmatch(pattern, use.name) is not None


def _formed(kind: str, pattern: str) -> Callable[[Use], bool]:
    """Whether a use is of this kind and its form holds ``pattern``."""
    return lambda use: use.kind == kind and re.search(pattern, use.form) is not None


FEATURES: dict[str, Callable[[Use], bool]] = {
    "an index that is a boolean array (`boolean_indexing`)": _named("index", r".*\bbool\b.*"),
    "shapes that depend on values (`data_dependent_shapes`)": _named("function", "nonzero|unique_.*|repeat"),
    "an index that is an array of integers": _named("index", r".*\bu?int\d+.*"),
    "writing in place": lambda use: use.kind == "in place" or "out=" in use.form,
    "the extension `linalg`": _named("function", r"linalg\..*"),
    "the extension `fft`": _named("function", r"fft\..*"),
    "complex dtypes": _named("dtype", "complex.*"),
    "unsigned integers": _named("dtype", "uint.*"),
    "integers other than int64": _named("dtype", "int(8|16|32)"),
    "promotion of arrays of different dtypes": _named("promotion", ".*"),
    "a Python scalar in place of an array (new in 2024.12)": _formed(
        "function", r"^(?!arange|full|linspace|eye).*\bpy "
    ),
    "`device=` on creation": _formed("function", "device=device"),
    "`x.to_device(...)`": _named("attribute", r"x\.to_device.*"),
    "`copy=`": _formed("function", "copy="),
    "DLPack": lambda use: "dlpack" in use.name,
    "the inspection API": _named("function", "__array_namespace_info__"),
    "reading a value: `int(x)`, `float(x)`, `bool(x)`": _named(
        "attribute", r"(int|float|bool|complex|index)\(x\)"
    ),
}
"""What the standard leaves to choice, or what not every library can do well, and the uses that ask for it."""


INTRODUCTION = """# What the model asks of an array library

`python -m tinyxp.testing.recording` generated this page. It runs small models over a namespace that notes
each function, operator, index, attribute and dtype that it and its arrays are asked for, and prints them.

The page is for the author of a library that conforms to the Python array API standard, version 2024.12, and
whose adapter is `tinyxp.Backend("mylib", mylib)` and no more. Beneath the recorder array_api_strict computes,
its optional features off, and NumPy in float16, which the standard does not have. bfloat16 was not run.

- **forward**: `tinyxp.forward`
- **step**: `tinyxp.new_cache` and `tinyxp.extend`, for a prompt and for one token after it
- **loss**: `tinyxp.loss`, with the forward pass in it
- **sampling**: `greedy`, `probabilities` and `draw` of `tinyxp.sampling`; `tinyxp.generate` calls them with
  NumPy in float64, whatever the library
- **generate**: `tinyxp.generate` but for its sampling, and a cache that has to grow
- **params**: `tinyxp.init`, and `Params.to` another dtype, a device and NumPy

The families are GPT-2 (layer norm, learned positions, tanh GELU), Llama (RMS norm, rotary positions, SwiGLU)
and GPT-2 with the erf GELU. Heads are tied and not, rotary frequencies plain and stretched, biases there and
not; ids, targets, masks and positions are NumPy's arrays and the library's, the last two also left out.

An array stands as its dtype: `float` is each of float16, float32 and float64, the dtype of the parameters,
and `wide` float32 and float64, where float16 is widened first. `py float` is a Python scalar, `xp.float32` a
dtype object, `ints` a tuple of integers; in an index `n` and `i` are integers. The last column names the
families that ask, where not all of them do.
"""

REMARKS = {
    "np.asarray(x)": "is `Backend.to_numpy`, which an adapter may replace; its `is_concrete` may say that "
    "an array has no values to be read and checked",
    "str(dtype)": "ends with the standard's name of the dtype, after a point if there is more",
}
"""What to know of some uses outside the standard."""

SECTIONS = {
    "Functions": "function",
    "Operators": "operator",
    "Indices": "index",
    "Attributes, methods and values": "attribute",
    "Dtypes of results": "dtype",
    "Dtypes by name": "named dtype",
    "Constants": "constant",
    "Broadcasting": "broadcasting",
    "Outside the standard": "outside",
}


def as_markdown(usage: Usage) -> str:
    """The page ``docs/array-api.md``."""
    parts = [INTRODUCTION, _summary(usage), _features(usage)]
    parts += [_table(heading, kind, usage) for heading, kind in SECTIONS.items()]
    outside = usage.names("outside")
    parts += [f"{_code(name)} {remark}.\n" for name, remark in REMARKS.items() if name in outside]
    return "\n".join(parts)


def _summary(usage: Usage) -> str:
    """What each stage adds to the functions of those before it."""
    lines, seen = ["## In short", ""], set[str]()
    for stage in STAGES:
        new = usage.names("function", stage=stage) - seen
        lines.append(f"- {stage} {'adds' if seen else 'uses'} {_list(new)}")
        seen |= new
    lines.append(
        f"- in all {len(seen)} of the standard's {len(FUNCTIONS)} functions; not {_list(FUNCTIONS - seen)}"
    )
    return "\n".join(lines) + "\n"


def _features(usage: Usage) -> str:
    """Each feature of ``FEATURES``, and what asks for it."""
    lines = ["## Optional and special features", "", "| feature | used | by |", "|---|---|---|"]
    for feature, asks in FEATURES.items():
        found = [use for use in usage.uses if asks(use)]
        stages = {stage for use in found for stage, _ in usage.uses[use]}
        who = f"{_list({use.name for use in found})} in {', '.join(s for s in STAGES if s in stages)}"
        lines.append(f"| {feature} | {'yes' if found else 'no'} | {who if found else ''} |")
    return "\n".join(lines) + "\n"


def _table(heading: str, kind: str, usage: Usage) -> str:
    """The uses of one kind, and who asks for each."""
    lines = [f"## {heading}", ""]
    rows = _merged(usage, kind)
    if not rows:
        return "\n".join([*lines, "None.", ""])
    lines += [f"| | {' | '.join(STAGES)} | family |", "|---" * (len(STAGES) + 2) + "|"]
    for text, where in sorted(rows.items()):
        marks = ["x" if stage in {s for s, _ in where} else "" for stage in STAGES]
        families = [family for family in FAMILIES if family in {f for _, f in where}]
        some = ", ".join(families) if len(families) < len(FAMILIES) else ""
        lines.append(f"| {_code(text)} | {' | '.join(marks)} | {some} |")
    return "\n".join(lines) + "\n"


def _merged(usage: Usage, kind: str) -> dict[str, set[tuple[str, str]]]:
    """Uses of one kind; what a stage of a family asks in several dtypes of parameters becomes one."""
    alike: dict[tuple[str, tuple[str, str]], set[str]] = defaultdict(set)
    for use, where in usage.uses.items():
        if use.kind == kind:
            text, dtypes = use.form or use.name, set(re.findall(_FLOAT, use.form))
            single = dtypes.pop() if len(dtypes) == 1 else ""
            template = re.sub(_FLOAT, "{}", text) if single else text
            for pair in where:
                alike[template, pair].add(single)
    rows: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for (template, pair), found in alike.items():
        together = {("float16", "float32", "float64"): "float", ("float32", "float64"): "wide"}
        name = together.get(tuple(sorted(found)))
        for dtype in found if name is None else {name}:
            rows[template.replace("{}", dtype)].add(pair)
    return rows


_FLOAT = r"(?<!numpy )float(?:16|32|64)"


def _list(names: Set[str]) -> str:
    return ", ".join(map(_code, sorted(names))) or "nothing"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


if __name__ == "__main__":
    print(as_markdown(array_api_usage()), end="")
