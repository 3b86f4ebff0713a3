"""The page ``docs/array-api.md``: what the model requests of an array library."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Set

from .recorder import FUNCTIONS, Use
from .usage import FAMILIES, STAGES, Usage


def _named(kind: str, pattern: str) -> Callable[[Use], bool]:
    """Return whether a use has this kind and a name that matches ``pattern`` completely."""
    return lambda use: use.kind == kind and re.fullmatch(pattern, use.name) is not None


def _formed(kind: str, pattern: str) -> Callable[[Use], bool]:
    """Return whether a use has this kind and a form that contains ``pattern``."""
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
"""What the standard makes optional, or what not every library does well, and the uses that request it."""

INTRODUCTION = """# What the model needs of an array library

`python -m tools.array_api` writes this page. It runs small models over a namespace that records each
function, operator, index, attribute and dtype that is requested of it and of its arrays.

The page is for the author of a library that conforms to the Python array API standard, version 2024.12, and
whose adapter is just `tinyxp.Backend("mylib", mylib)`. The recorder computes with array_api_strict, its
optional features off, and with NumPy in float16, which the standard does not have. bfloat16 is not run.

- **forward**: `tinyxp.forward`
- **step**: `tinyxp.new_cache` and `tinyxp.extend`, for a prompt and for one token after it
- **loss**: `tinyxp.loss`, including the forward pass
- **sampling**: `greedy`, `probabilities` and `draw` of `tinyxp.sampling`; `tinyxp.generate` always
  calls them with NumPy in float64
- **generate**: `tinyxp.generate` without its sampling, and a cache that has to grow
- **params**: `tinyxp.init`, and `Params.to` another dtype, a device and NumPy

The families are GPT-2 (layer norm, learned positions, tanh GELU), Llama (RMS norm, rotary positions, SwiGLU)
and GPT-2 with the erf GELU. They include tied and untied heads, plain and scaled rotary frequencies, and
models with and without biases. ids, targets, masks and positions are arrays of NumPy and of the library; the
last two are also omitted.

An array is shown as its dtype: `float` is each of float16, float32 and float64, the dtype of the parameters;
`wide` is float32 and float64, if float16 is widened first. `py float` is a Python scalar, `xp.float32` a
dtype object, `ints` a tuple of integers; in an index `n` and `i` are integers. The last column names the
families that request it, unless all do.
"""

REMARKS = {
    "np.asarray(x)": "is `Backend.to_numpy`, which an adapter may replace; its `is_concrete` says whether "
    "an array has values to read and check",
    "str(dtype)": "ends with the standard's name of the dtype, after a point if there is more",
}
"""Remarks on some uses outside the standard."""

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
    """Return the page ``docs/array-api.md``."""
    parts = [INTRODUCTION, _summary(usage), _features(usage)]
    parts += [_table(heading, kind, usage) for heading, kind in SECTIONS.items()]
    outside = usage.names("outside")
    parts += [f"{_code(name)} {remark}.\n" for name, remark in REMARKS.items() if name in outside]
    return "\n".join(parts)


def _summary(usage: Usage) -> str:
    """Return what each stage adds to the functions of those before it."""
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
    """Return each feature of ``FEATURES``, and what requests it."""
    lines = ["## Optional and special features", "", "| feature | used | by |", "|---|---|---|"]
    for feature, asks in FEATURES.items():
        found = [use for use in usage.uses if asks(use)]
        stages = {stage for use in found for stage, _ in usage.uses[use]}
        who = f"{_list({use.name for use in found})} in {', '.join(s for s in STAGES if s in stages)}"
        lines.append(f"| {feature} | {'yes' if found else 'no'} | {who if found else ''} |")
    return "\n".join(lines) + "\n"


def _table(heading: str, kind: str, usage: Usage) -> str:
    """Return the uses of one kind, and what requests each."""
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
    """Return the uses of one kind, merging those of a stage and family in several dtypes of parameters."""
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
