"""What mutmut changes: every operator of the core, and a sample of what is around it."""

from __future__ import annotations

import ast
import hashlib
import json
import random
from collections.abc import Iterable
from pathlib import Path

CORE = tuple(f"tinyxp/{name}.py" for name in ("cache", "joint", "model", "ops", "rope", "sampling"))
"""Files of which every change is tried."""
SAMPLED = tuple(f"tinyxp/{name}" for name in ("doctor", "formats", "text", "train"))
"""Packages of which a sample of changes is tried."""
SAMPLE = 100
"""Changes of each package in the sample."""
MUTANTS = Path("mutants")
"""Where mutmut keeps its results."""


def fingerprint(paths: Iterable[Path]) -> str:
    """Return a hash of the code of some files, which comments, docstrings and layout do not change."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                node.body = [statement for statement in node.body if not _is_text(statement)]
        digest.update(ast.dump(tree).encode())
    return digest.hexdigest()[:12]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def codes(meta: Path) -> dict[str, int | None]:
    """Return the exit code of each mutant of one file by the mutant's name, None if it was not run."""
    found: dict[str, int | None] = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
    return found


def sample(package: str, size: int = SAMPLE) -> list[str]:
    """Return the names of some mutants of a package, the same for the same source."""
    names = [name for meta in sorted((MUTANTS / package).rglob("*.py.meta")) for name in codes(meta)]
    return sorted(random.Random(0).sample(sorted(names), min(size, len(names))))


if __name__ == "__main__":
    print("\n".join(name for package in SAMPLED for name in sample(package)))
