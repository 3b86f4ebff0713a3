"""Namespaces without an adapter: adopted if their arrays say whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest

import tinyxp
from tinyxp import registry
from tinyxp.adoption import adopt

LIBRARY = """
import numpy as np
from numpy import *


class Wrapped(np.ndarray):
    def __array_namespace__(self, *, api_version=None):
        import {name}
        return {name}


def asarray(x, dtype=None, device=None, copy=None):
    return np.asarray(x, dtype=dtype).view(Wrapped)
"""


def test_a_known_library_is_its_own_adapter() -> None:
    assert adopt("numpy") is tinyxp.backend("numpy")


def test_a_namespace_that_names_itself_is_adopted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "acme_adopted.py").write_text(LIBRARY.format(name="acme_adopted"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_loaded", dict(registry._loaded))
    found = adopt("acme_adopted")
    assert found.name == found.xp.__name__ == "acme_adopted"
    assert tinyxp.backend("acme_adopted") is found
    assert found.is_array(found.xp.asarray([1.0]))


@pytest.mark.parametrize("name", ["acme_unknown", "acme_unknown.linalg"])
def test_a_name_of_nothing(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^backend is '{name}'; known are .* any array namespace"):
        adopt(name)


@pytest.mark.parametrize("name", ["numpy.linalgebra", "no such name", ""])
def test_a_name_that_is_never_imported(name: str) -> None:
    with pytest.raises(ValueError, match="backend is|xp is"):
        adopt(name)


def test_a_module_that_is_no_namespace() -> None:
    with pytest.raises(ValueError, match=r"^backend is 'json', a module whose arrays.*it needs an adapter$"):
        adopt("json")
