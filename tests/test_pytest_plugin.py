"""pytest's plugin: its fixtures, marks and options, in runs of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tinyxp.adoption import adopt
from tinyxp.plugins import TEST_MODULE
from tinyxp.pytest_plugin import Line, read_list

pytest.importorskip("array_api_strict")

pytest_plugins = "pytester"

Run = Callable[..., pytest.RunResult]

ON_EACH = """
import pytest

def test_library(backend, xp):
    assert backend.xp is xp
    assert xp.sum(xp.asarray([1.0, 2.0])) == 3.0
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest on a test file, as anybody would who has tinyxp installed."""
    monkeypatch.delenv(TEST_MODULE, raising=False)
    for name in ("numpy", "strict"):
        adopt(name)  # what a run inside this one were the first to import would be imported again after it
    options = ["-W", "error", "--strict-markers", "--strict-config", "-rA", "-p", "no:cacheprovider"]

    def with_source(source: str, *arguments: str, alone: bool = False, **files: str) -> pytest.RunResult:
        """``alone`` in a process of its own, for what would change the profile of Hypothesis here."""
        pytester.makepyfile(source)
        for name, text in files.items():
            (pytester.path / name.replace("_", ".")).write_text(text)
        start = pytester.runpytest_subprocess if alone else pytester.runpytest_inprocess
        return start(*options, *arguments)

    return with_source


def test_the_fixtures_are_every_backend_and_its_namespace(run: Run) -> None:
    hidden = "import sys\nsys.modules['torch'] = sys.modules['jax'] = None\n"
    done = run(ON_EACH, conftest_py=hidden)
    done.assert_outcomes(passed=2, skipped=2)
    done.stdout.fnmatch_lines(["PASSED *test_library[[]numpy]", "PASSED *test_library[[]strict]"])
    done.stdout.fnmatch_lines(["SKIPPED *: torch is not installed", "SKIPPED *: jax is not installed"])


@pytest.mark.parametrize("value", ["numpy array_api_strict", "\n  numpy\n  strict"], ids=["line", "lines"])
def test_the_ini_file_names_other_backends(run: Run, value: str) -> None:
    run(ON_EACH, pytest_ini=f"[pytest]\ntinyxp_backends = {value}\n").assert_outcomes(passed=2)
    wrong = run(ON_EACH, pytest_ini="[pytest]\ntinyxp_backends = nunpy\n")
    wrong.assert_outcomes(errors=1)
    wrong.stdout.fnmatch_lines(["*backend is 'nunpy'; known are *numpy*"])


def test_the_environment_names_one_backend(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ini = "[pytest]\ntinyxp_backends = numpy torch\n"
    monkeypatch.setenv(TEST_MODULE, "array_api_strict")
    done = run(ON_EACH, pytest_ini=ini)
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["PASSED *test_library[[]array_api_strict]"])


def test_a_conftest_comes_before_the_plugin(run: Run) -> None:
    conftest = "import pytest\n@pytest.fixture\ndef backend(): return 'mine'\n"
    run("def test_mine(backend): assert backend == 'mine'", conftest_py=conftest).assert_outcomes(passed=1)


def test_marks_hold_on_the_backend_that_they_name(run: Run) -> None:
    source = """
    import pytest

    @pytest.mark.skip_backend("numpy", reason="not there")
    def test_skipped(backend):
        assert backend.name == "array_api_strict"

    @pytest.mark.xfail_backend("array_api_strict", reason="a bug of theirs")
    def test_fails(xp):
        assert xp.__name__ == "numpy"

    @pytest.mark.xfail_backend("strict")
    def test_passes(backend): pass

    @pytest.mark.skip_backend("nunpy", reason="a slip")
    def test_wrong(backend): pass
    """
    done = run(source, pytest_ini="[pytest]\ntinyxp_backends = numpy strict\nxfail_strict = true\n")
    done.assert_outcomes(passed=3, skipped=1, xfailed=1, failed=1, errors=2)
    done.stdout.fnmatch_lines(
        [
            "E *ValueError: skip_backend names 'nunpy'; known are *numpy*",
            "[[]XPASS(strict)] strict cannot",
            "SKIPPED *: not there",
            "XFAIL *test_fails[[]strict] - a bug of theirs",
            "FAILED *test_passes[[]strict]*",
        ]
    )


LISTED = """
import pytest

@pytest.mark.parametrize("law", ["causality", "causality-too", "a-b", "a-c", "cache"])
def test_law(law):
    assert not law.startswith("c")

def test_other():
    assert False
"""


def test_lists_of_what_fails_and_what_is_not_run(run: Run) -> None:
    files = {
        "xfails_txt": "# Its sum rounds\n# twice.\ncausality\n\ntest_other  # not yet\ntest_law[cache]\n",
        "skips_txt": "a-*\ntest_lists_of_what_fails_and_what_is_not_run.py::test_law[causality-too]\n",
    }
    arguments = ["--tinyxp-xfails-file=xfails.txt", "--tinyxp-skips-file=skips.txt"]
    done = run(LISTED, *arguments, **files)
    done.assert_outcomes(xfailed=3, skipped=3)
    done.stdout.fnmatch_lines(
        [
            "XFAIL *test_law[[]causality] - Its sum rounds twice.",
            "XFAIL *test_law[[]cache] - listed in xfails.txt",
            "XFAIL *test_other - not yet",
        ]
    )


def test_a_list_may_be_longer_than_needed_unless_the_ini_file_is_strict(run: Run) -> None:
    files = {"xfails_txt": "test_passes\n"}
    listed = "--tinyxp-xfails-file=xfails.txt"
    run("def test_passes(): pass", listed, **files).assert_outcomes(xpassed=1)
    strict = {"pytest_ini": "[pytest]\nxfail_strict = true\n"}
    run("def test_passes(): pass", listed, **files, **strict).assert_outcomes(failed=1)


def test_a_list_that_is_not_there(run: Run) -> None:
    done = run(LISTED, "--tinyxp-skips-file=no.txt")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: --skips-file: *no.txt*"])


@pytest.mark.parametrize(
    "pattern, node_id, matches",
    [
        ("causality", "::test_law[causality]", True),
        ("causality", "a/conformance.py::test_law[causality]", True),
        ("causality", "a/conformance.py::test_law[causality-too]", False),
        ("causality", "a/conformance.py::test_law[no-causality]", False),
        ("conformance.py::test_law[a-b]", "a/conformance.py::test_law[a-b]", True),
        ("a/conformance.py::test_law[a-b]", "a/conformance.py::test_law[a-b]", True),
        ("formance.py::test_law[a-b]", "a/conformance.py::test_law[a-b]", False),
        ("*-b", "a/conformance.py::test_law[a-b]", True),
        ("conformance.py*", "a/conformance.py::test_law[a-b]", True),
        ("test_law", "a/conformance.py::test_law[a-b]", False),
        ("test.law[a-b]", "a/conformance.py::test_law[a-b]", False),
    ],
)
def test_what_a_line_matches(pattern: str, node_id: str, matches: bool) -> None:
    assert Line(pattern, "").matches(node_id) is matches


def test_the_comments_of_a_list(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("# One\n# reason.\na\nb  # its own\nc\n\nd\n# Another.\n  e  \n#\nf\n", encoding="utf-8")
    assert read_list(path) == [
        ("a", "One reason."),
        ("b", "its own"),
        ("c", "One reason."),
        ("d", ""),
        ("e", "Another."),
        ("f", ""),
    ]


COUNTED = """
import hypothesis
from hypothesis import given, settings, strategies as st

count = 0

@given(st.integers())
def test_drawn(x):
    global count
    count += 1

def test_how_many():
    assert count == 7
    assert settings().derandomize
"""


def test_max_examples_limits_hypothesis_and_keeps_the_rest_of_its_profile(run: Run) -> None:
    profile = "from hypothesis import settings\nsettings.register_profile('mine', derandomize=True)\n"
    profile += "settings.load_profile('mine')\n"
    run(COUNTED, "--tinyxp-max-examples=7", alone=True, conftest_py=profile).assert_outcomes(passed=2)
    for wrong in ("0", "-1", "many"):
        done = run(COUNTED, f"--tinyxp-max-examples={wrong}")
        assert done.ret == pytest.ExitCode.USAGE_ERROR
        done.stderr.fnmatch_lines([f"*N is '{wrong}'; it must be an integer of 1 or more"])


ARRAY_API_TESTS = """
def pytest_addoption(parser):
    parser.addoption("--hypothesis-max-examples", "--max-examples", default=100, type=int)
    parser.addoption("--xfails-file")
    parser.addoption("--skips-file")

def pytest_collection_modifyitems(config, items):
    assert config.getoption("--max-examples") == 3
"""


def test_the_short_options_stand_where_a_module_is_named_and_are_others_elsewhere(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("def test_a(): pass", "--max-examples=3", conftest_py=ARRAY_API_TESTS).assert_outcomes(passed=1)
    monkeypatch.setenv(TEST_MODULE, "numpy")
    done = run(LISTED, "--xfails-file=list.txt", conftest_py="", list_txt="test_other\ntest_law*\n")
    done.assert_outcomes(xfailed=4, xpassed=2)


def test_the_plugin_is_light() -> None:
    heavy = ["numpy", "hypothesis", "importlib.metadata", "tinyxp.registry", "tinyxp.testing"]
    code = "import sys, _pytest.pytester\nbefore = set(sys.modules)\nimport tinyxp.pytest_plugin\n"
    code += f"print([name for name in {heavy} if name in set(sys.modules) - before])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_without_hypothesis(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ON_EACH)
    code = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hypothesis":
            raise ModuleNotFoundError("No module named 'hypothesis'", name="hypothesis")

sys.meta_path.insert(0, Missing())
import pytest
sys.exit(pytest.main(["-p", "no:hypothesispytest", "-p", "no:cacheprovider", "-k", "numpy"]))
"""
    done = pytester.run(sys.executable, "-W", "error", "-c", code)
    assert done.ret == 0
