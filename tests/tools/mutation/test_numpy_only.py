"""The plugin of the mutation tests: NumPy alone, and examples without shrinking."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_other_libraries_are_hidden() -> None:
    code = """
import tools.mutation.numpy_only, tinyxp
versions = tinyxp.available_backends()
assert {name for name, version in versions.items() if version} == {"numpy"}, versions
import hypothesis
hypothesis.settings.load_profile("mutation")
assert hypothesis.Phase.shrink not in hypothesis.settings().phases
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_a_library_that_is_imported_already_is_an_error() -> None:
    done = run("import sys; sys.modules['torch'] = sys\nimport tools.mutation.numpy_only")
    assert "torch is imported already" in done.stderr
