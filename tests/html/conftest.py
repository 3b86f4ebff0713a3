"""A browser tab that all tests of pages share, and forward passes of both families."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tinyxp.html.forward_pass import ForwardPass
from tinyxp.html.markup import Html

from .forward_passes import CONFIGS, make_run

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WINDOW = {"width": 1280, "height": 720}

Show = Callable[..., Any]


@pytest.fixture(params=list(CONFIGS))
def run(request: pytest.FixtureRequest) -> ForwardPass:
    return make_run(request.param)


@pytest.fixture(scope="session")
def tab() -> Iterator[Any]:
    """One tab of a headless Chromium, which reaches no network."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=FLAGS)
        yield browser.new_page()
        browser.close()


@pytest.fixture
def show(tab: Any, tmp_path: Path) -> Iterator[Show]:
    """Load a page into the tab. The test fails at its end if the page reported an error or sent a request."""
    problems: list[str] = []
    listeners = {
        "console": lambda message: problems.append(f"console: {message.text}"),
        "pageerror": lambda error: problems.append(f"error: {error}"),
        "request": lambda request: request.url.startswith("file://") or problems.append(request.url),
    }
    for event, listener in listeners.items():
        tab.on(event, listener)

    def load(page: Html, *, window: dict[str, int] = WINDOW, **media: str) -> Any:
        path = tmp_path / "page.html"
        path.write_bytes(page.encode())
        tab.set_viewport_size(window)
        tab.emulate_media(**{"color_scheme": "light", "reduced_motion": "no-preference"} | media)
        tab.goto(path.as_uri())
        return tab

    yield load
    tab.evaluate("0")  # events that came before the answer are delivered before it
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    assert problems == []
