"""Names of modules as data."""

from __future__ import annotations

from tinyxp.formats.names import Module, name_modules


def test_modules_that_hold_one_of_ours_each() -> None:
    assert name_modules({"wte": "embed", "ln_f": "final_norm"}) == (
        Module("wte", ("embed",)),
        Module("ln_f", ("final_norm",)),
    )
