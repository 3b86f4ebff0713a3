"""A browser, and the two families as runs that a page can show."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import tinyxp
from tests.reference import GPT2_CONFIG, drawn
from tinyxp.html.measure import Run
from tinyxp.html.page import visible

CONFIGS = {"llama": tinyxp.Config(), "gpt2": replace(GPT2_CONFIG, n_layers=3)}
IDS = (3, 1, 4, 1, 5, 9, 2)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
HOSTILE = {
    3: b"</script><script>document.title='taken'</script>",
    1: b"\"'><img src=x onerror=alert(1)>",
    4: b"\n\x1b",
}


def spelled(index: int) -> str:
    return visible(HOSTILE.get(index, b" t%d" % index))


def make_run(family: str, ids: tuple[int, ...] = IDS, text: Callable[[int], str] = spelled) -> Run:
    params = drawn(CONFIGS[family])
    return Run(params, ids, tinyxp.trace(params, [list(ids)]), text)


@pytest.fixture(params=list(CONFIGS))
def run(request: pytest.FixtureRequest) -> Run:
    return make_run(request.param)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window, which finds no network."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=path, args=FLAGS)
        yield found
        found.close()
