"""The limit of threads, as libraries read it from the environment."""

from __future__ import annotations

import os

import pytest

from tinyxp.cli.threads import VARIABLES, limit_threads


def test_every_library_gets_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "7")
    limit_threads(None)
    assert {os.environ[name] for name in VARIABLES} == {"7"}
    limit_threads(2)
    assert {os.environ[name] for name in VARIABLES} == {"2"}
