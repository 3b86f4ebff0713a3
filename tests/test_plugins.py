"""Entry points: found by group and name, with one error that says what is missing."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tinyxp import plugins

GROUP = "acme.widgets"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of modules, and the entry points of a group that name some of them."""
    values = {
        "good": "acme_good:widget",
        "acme_missing": "acme_adapter:widget",
        "alias": "acme_adapter:widget",
        "torn": "acme_torn:widget",
        "broken": "acme_broken:widget",
        "wrong": "acme_wrong:widget",
    }
    (tmp_path / "acme_good.py").write_text("widget = 7\n")
    (tmp_path / "acme_adapter.py").write_text("import acme_missing\n")
    (tmp_path / "acme_torn.py").write_text("import acme_torn_submodule\n")
    (tmp_path / "acme_broken.py").write_text("raise RuntimeError('out of order')\n")
    (tmp_path / "acme_wrong.py").write_text("raise ValueError('mode is 3; it must be 1')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {name: EntryPoint(name, value, GROUP) for name, value in values.items()}
    monkeypatch.setattr(plugins, "entries", lambda group: found if group == GROUP else {})
    return tmp_path


def test_our_own_backends_and_engines_are_entry_points() -> None:
    assert {"numpy", "torch", "jax", "strict"} <= plugins.entries(plugins.BACKENDS).keys()
    assert {"plain", "numpy", "torch", "jax"} <= plugins.entries(plugins.ENGINES).keys()
    assert plugins.load(plugins.BACKENDS, "numpy").name == "numpy"


@pytest.mark.usefixtures("installed")
def test_an_object_by_its_name() -> None:
    assert plugins.load(GROUP, "good") == 7


@pytest.mark.usefixtures("installed")
def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"^widget is 'godo'; known are acme_missing, alias, .*good"):
        plugins.load(GROUP, "godo")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["acme_missing", "alias"])
def test_a_missing_library_comes_with_its_pip_command(name: str) -> None:
    with pytest.raises(ImportError) as caught:
        plugins.load(GROUP, name)
    assert str(caught.value) == (
        f"widget {name!r} needs 'acme_missing', which is not installed: pip install 'acme_missing'"
    )


@pytest.mark.usefixtures("installed")
def test_a_missing_piece_of_the_adapter_itself_has_none() -> None:
    """pip knows no package of that name, or worse, somebody else's."""
    with pytest.raises(ImportError) as caught:
        plugins.load(GROUP, "torn")
    assert str(caught.value) == "widget 'torn' needs 'acme_torn_submodule', which is not installed"


@pytest.mark.usefixtures("installed")
def test_whatever_an_adapter_raises_is_said_in_one_line() -> None:
    with pytest.raises(ImportError, match=r"^widget 'broken' cannot be loaded: RuntimeError: out of order$"):
        plugins.load(GROUP, "broken")
    with pytest.raises(ValueError, match=r"^mode is 3; it must be 1$"):
        plugins.load(GROUP, "wrong")
