"""Write docs/faults.md: every planted fault, where it is first seen, and what the diagnosis calls it.

python -m tests.doctor.planted.page > docs/faults.md
"""

from __future__ import annotations

import fnmatch
import tempfile
import warnings
from pathlib import Path
from typing import Any

from tinyxp.doctor import Diagnosis, diagnose
from tinyxp.doctor.faults import list_faults

from .cases import mask_of, sides
from .causes import is_named
from .planted import IDS, PLANTED, Planted, config_of
from .test_pairs import PAIRS, Pair, diagnosed, named

BACKENDS = ("numpy", "torch", "jax")
HEAD = """# Planted faults

Each row is one fault, planted by itself in a small GPT-2 or Llama (three layers, width 32). It is planted in
the files of a checkpoint, or in a port in PyTorch, NumPy or JAX that shares no code with this project (in
`tests/doctor/planted`).

The right model is the trusted side, on NumPy, PyTorch and JAX in turn. Faulty files run on the same backend,
ports in their own library. `tinyxp diff` must see the fault first where it was planted and judge it a fault,
and `tinyxp diagnose` must name it first. The column of times is the error as a multiple of the rounding
limit; `-` is another shape.

{right} of {all} rows are right on all three backends. Made by `make docs`.

| fault | planted in | first seen at | times rounding | logits differ | named first | {backends} |
|---|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    warnings.simplefilter("ignore")
    rows, right = [], 0
    for planted in PLANTED:
        diagnoses = [examine(planted, backend) for backend in BACKENDS]
        good = [is_right(planted, each) for each in diagnoses]
        right += all(good)
        rows.append(line(planted, diagnoses[0], good))
    print(HEAD.format(right=right, all=len(PLANTED), backends=" | ".join(BACKENDS)) + "\n".join(rows))
    print(pairs())
    print(unplanted())


def examine(planted: Planted, backend: str) -> Diagnosis:
    with tempfile.TemporaryDirectory() as folder:
        a, b = sides(planted, backend, Path(folder))
        return diagnose(a, b, IDS, mask=mask_of(planted))


def is_right(planted: Planted, diagnosis: Diagnosis) -> bool:
    first = diagnosis.comparison.first
    seen = first is not None and fnmatch.fnmatchcase(first.point, planted.first) and first.at_fault == "B"
    return seen and bool(diagnosis.causes) and is_named(planted, diagnosis.causes[0])


def title(planted: Planted) -> list[str]:
    """The first two cells of a row."""
    name = f"{planted.family}: {planted.name}" + (", with padding" if planted.needs_mask else "")
    return [name, {"file": "files"}.get(planted.how, f"a port in {planted.how}")]


def line(planted: Planted, diagnosis: Diagnosis, good: list[bool]) -> str:
    first: Any = diagnosis.comparison.first
    times = "-" if first.distance is None else f"{first.excess:.2g}"
    cause = diagnosis.causes[0]
    blocks = "" if cause.blocks is None else f", block {', '.join(map(str, cause.blocks))}"
    matters = "yes" if diagnosis.comparison.matters else "no"
    cells = [*title(planted), f"`{first.point}`", times, matters, f"{' + '.join(cause.keys)}{blocks}"]
    return "| " + " | ".join([*cells, *("yes" if each else "**no**" for each in good)]) + " |"


def pairs() -> str:
    """Random pairs of a fault in a port and one in the files that it reads."""
    rows, right = [], 0
    for pair in PAIRS:
        with tempfile.TemporaryDirectory() as folder:
            diagnosis = diagnosed(pair, Path(folder))
        both = named(pair, diagnosis)
        right += both
        causes = "; ".join(" + ".join(cause.keys) or "nothing" for cause in diagnosis.causes)
        cells = [*pair_title(pair), causes, "yes" if both else "**no**"]
        rows.append("| " + " | ".join(cells) + " |")
    head = (
        f"\n## Two at once\n\n{len(PAIRS)} random pairs: a fault in a port and one in the files that it "
        f"reads. Both are named in {right} of them.\n\n| in the port | in the files | named | both |\n"
        "|---|---|---|---|\n"
    )
    return head + "\n".join(rows)


def pair_title(pair: Pair) -> list[str]:
    """The first two cells of a pair's row."""
    return [f"{pair.port.family}: {pair.port.name} ({pair.port.how})", pair.file.name]


def unplanted() -> str:
    """The rows of the catalogue that no planted fault is, by the choice that they make wrongly."""
    planted = {each.key for each in PLANTED}
    configs = {config_of(each) for each in PLANTED}
    faults = {fault.key: fault.choice for config in configs for fault in list_faults(config)}
    groups: dict[str, list[str]] = {}
    for key, choice in sorted(faults.items()):
        if key not in planted and choice not in ("ids", "layers"):
            groups.setdefault(choice or "parameters, dtypes", []).append(key)
    lines = [
        f"- {choice}: {', '.join(f'`{key}`' for key in keys)}" for choice, keys in sorted(groups.items())
    ]
    head = (
        "\n## Known to the doctor, not planted\n\nThe doctor also tries these faults, tokens in front of the "
        "ids, and other orders of layers.\n\n"
    )
    return head + "\n".join(lines)


if __name__ == "__main__":
    main()
