"""The pytest plugin: every backend as a fixture, marks for what a backend cannot do, known failures.

Every run of pytest imports it if tinyxp is installed, so it imports nothing heavy until a test needs it. It
is outside ``tinyxp.testing`` because that imports Hypothesis.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tinyxp.plugins import DEFAULT_BACKENDS, TEST_MODULE

if TYPE_CHECKING:
    from tinyxp.registry import Backend

LISTS = {"xfails": "--xfails-file", "skips": "--skips-file"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options and an ini value; the short names, shared with array-api-tests, need the variable."""
    group = parser.getgroup("tinyxp", "tinyxp: one test on many array libraries")

    def add(name: str, **keywords: Any) -> None:
        short = [f"--{name}"] if os.environ.get(TEST_MODULE) else []
        group.addoption(f"--tinyxp-{name}", *short, dest=f"tinyxp_{name.replace('-', '_')}", **keywords)

    add(
        "xfails-file",
        metavar="FILE",
        help="tests that are expected to fail: one id or * pattern per line, # why",
    )
    add("skips-file", metavar="FILE", help="tests to skip, in the same format")
    add("max-examples", metavar="N", type=_positive, help="draw at most N examples for each Hypothesis test")
    parser.addini(
        "tinyxp_backends",
        "backends of the fixtures 'backend' and 'xp'",
        type="args",
        default=list(DEFAULT_BACKENDS),
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"N is {text!r}; it must be an integer of 1 or more")
    return int(text)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the marks and the fixtures; ``--max-examples`` becomes the profile of Hypothesis."""
    for kind in ("skip", "xfail"):
        config.addinivalue_line("markers", f"{kind}_backend(name, reason): {kind} the test on one backend")
    one = os.environ.get(TEST_MODULE)
    names = [one] if one else config.getini("tinyxp_backends")
    config.pluginmanager.register(_fixtures(names))
    examples = config.getoption("tinyxp_max_examples")
    if examples is not None:
        import hypothesis

        hypothesis.settings.register_profile("tinyxp", hypothesis.settings(max_examples=examples))
        hypothesis.settings.load_profile("tinyxp")


def _fixtures(names: list[str]) -> ModuleType:
    """Return the fixtures, with one case for each of ``names``; a conftest may override them."""
    module = ModuleType("tinyxp-fixtures")
    vars(module).update(
        backend=pytest.fixture(params=names, name="backend")(_backend), xp=pytest.fixture(name="xp")(_xp)
    )
    return module


def _backend(request: pytest.FixtureRequest) -> Backend:
    """Return each backend in turn; skip the test if its library is not installed."""
    from tinyxp.adoption import adopt
    from tinyxp.registry import available_backends

    known = available_backends()
    if known.get(request.param, "") is None:
        pytest.skip(f"{request.param} is not installed")
    backend = adopt(request.param)
    for kind in ("skip", "xfail"):
        for mark in request.node.iter_markers(f"{kind}_backend"):
            name, reason = _arguments(*mark.args, **mark.kwargs)
            if name not in known and name not in (request.param, backend.name):
                raise ValueError(f"{kind}_backend names {name!r}; known are {', '.join(known)}")
            if name in (request.param, backend.name):
                if kind == "skip":
                    pytest.skip(reason)
                request.applymarker(pytest.mark.xfail(reason=reason))
    return backend


def _arguments(name: str, reason: str = "") -> tuple[str, str]:
    """Return the arguments of a mark."""
    return name, reason or f"{name} cannot"


def _xp(backend: Backend) -> Any:
    """Return the array namespace of each backend in turn."""
    return backend.xp


class Line(NamedTuple):
    """A line of a list: a pattern of node ids, and the comment before it."""

    pattern: str
    reason: str

    def matches(self, node_id: str) -> bool:
        """Return whether it matches the whole id, what follows a slash or ::, or the part in brackets."""
        pattern = ".*".join(re.escape(part) for part in self.pattern.split("*"))
        return re.fullmatch(rf"(.*(/|::|\[))?{pattern}\]?", node_id) is not None


def read_list(path: str | Path) -> list[Line]:
    """Read the lines of a list. A comment applies to the lines after it, up to an empty one or a comment."""
    lines, reason, in_comment = [], "", False
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        text, _, comment = (part.strip() for part in line.partition("#"))
        if text:
            lines.append(Line(text, comment or reason))
        else:
            reason = f"{reason} {comment}".strip() if in_comment else comment
        in_comment = not text and bool(comment)
    return lines


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that the lists name."""
    for kind, option in LISTS.items():
        path = config.getoption(f"tinyxp_{kind}_file")
        if path is None:
            continue
        try:
            lines = read_list(path)
        except (OSError, UnicodeDecodeError) as error:
            raise pytest.UsageError(f"{option}: {error}") from None
        for item in items:
            line = next((line for line in lines if line.matches(item.nodeid)), None)
            if line is not None:
                mark = pytest.mark.xfail if kind == "xfails" else pytest.mark.skip
                item.add_marker(mark(reason=line.reason or f"listed in {path}"))
