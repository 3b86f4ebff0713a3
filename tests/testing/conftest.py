"""In several processes, all laws of one library run in the same one, which compiles each shape once."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.pluginmanager.has_plugin("xdist"):
        for item in items:
            if item.name.startswith("test_law["):
                library = item.name.removeprefix("test_law[").partition("-")[0].partition("+")[0]
                item.add_marker(pytest.mark.xdist_group(f"laws of {library}"))
