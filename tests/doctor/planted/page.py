"""Writes docs/faults.md: every planted fault, where it is first seen, and what the diagnosis calls it.

python -m tests.doctor.planted.page > docs/faults.md
"""

from __future__ import annotations

import fnmatch
import tempfile
import warnings
from pathlib import Path
from typing import Any

from tinyxp.doctor import Diagnosis, diagnose

from .cases import mask_of, sides
from .causes import is_named
from .planted import IDS, PLANTED, Planted
from .test_pairs import PAIRS, diagnosed, named

BACKENDS = ("numpy", "torch", "jax")
HEAD = """# Planted faults

Each row is one fault, planted by itself in a small GPT-2 or Llama (three layers, width 32): in the files of
a checkpoint, or in a port that shares no code with this project, written in PyTorch, NumPy or JAX (in
`tests/doctor/planted`).
The right model is the trusted side, on NumPy, PyTorch and JAX in turn; faulty files run on
the same backend, ports in their own library. `tinyxp diff` must see the fault first where it was planted and
judge it a fault, and `tinyxp diagnose` must name it first. `-` in the column of times: another shape.

{right} of {all} rows are right on all three backends. Made by `make docs`.

| fault | planted in | first seen at | times rounding | logits part | named first | {backends} |
|---|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    warnings.simplefilter("ignore")
    rows, right = [], 0
    for planted in PLANTED:
        found = [examined(planted, backend) for backend in BACKENDS]
        good = [is_right(planted, each) for each in found]
        right += all(good)
        rows.append(line(planted, found[0], good))
    print(HEAD.format(right=right, all=len(PLANTED), backends=" | ".join(BACKENDS)) + "\n".join(rows))
    print(pairs())


def examined(planted: Planted, backend: str) -> Diagnosis:
    with tempfile.TemporaryDirectory() as folder:
        a, b = sides(planted, backend, Path(folder))
        return diagnose(a, b, IDS, mask=mask_of(planted))


def is_right(planted: Planted, found: Diagnosis) -> bool:
    first = found.comparison.first
    seen = first is not None and fnmatch.fnmatchcase(first.point, planted.first) and first.at_fault == "B"
    return seen and bool(found.causes) and is_named(planted, found.causes[0])


def line(planted: Planted, found: Diagnosis, good: list[bool]) -> str:
    first: Any = found.comparison.first
    times = "-" if first.distance is None else f"{first.excess:.2g}"
    where = {"file": "files"}.get(planted.how, f"a port in {planted.how}")
    cause = found.causes[0]
    blocks = "" if cause.blocks is None else f", block {', '.join(map(str, cause.blocks))}"
    name = f"{planted.family}: {planted.name}" + (", with padding" if planted.needs_mask else "")
    matters = "yes" if found.comparison.matters else "no"
    cells = [name, where, f"`{first.point}`", times, matters, f"{' + '.join(cause.keys)}{blocks}"]
    return "| " + " | ".join([*cells, *("yes" if each else "**no**" for each in good)]) + " |"


def pairs() -> str:
    """Random pairs of a fault in a port and one in the files that it reads."""
    rows, right = [], 0
    for pair in PAIRS:
        with tempfile.TemporaryDirectory() as folder:
            found = diagnosed(pair, Path(folder))
        both = named(pair, found)
        right += both
        causes = "; ".join(" + ".join(cause.keys) or "nothing" for cause in found.causes)
        cells = [f"{pair.port.family}: {pair.port.name} ({pair.port.how})", pair.file.name, causes]
        rows.append("| " + " | ".join([*cells, "yes" if both else "**no**"]) + " |")
    head = (
        f"\n## Two at once\n\n{len(PAIRS)} random pairs: a fault in a port and one in the files that it "
        f"reads. Both are named in {right} of them.\n\n| in the port | in the files | named | both |\n"
        "|---|---|---|---|\n"
    )
    return head + "\n".join(rows)


if __name__ == "__main__":
    main()
