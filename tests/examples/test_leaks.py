"""The leaks on random tokens, on both libraries that train."""

import importlib
import math

import pytest

UNIFORM = math.log(64)

pytest.importorskip("torch")


def test_script(example, is_png):
    leaks = example("leaks", "--quick")
    at = next(i for i, line in enumerate(leaks.lines) if line.startswith("run"))
    rows = {line[:19].strip(): line[19:].split() for line in leaks.lines[at + 1 : at + 4]}
    assert leaks.lines[0].endswith("ln V = 4.1589")
    assert {name: row[-1] for name, row in rows.items()} == {
        "honest": "no",
        "no mask": "yes",
        "targets not shifted": "yes",
    }
    honest, no_mask, not_shifted = (float(row[2]) for row in rows.values())
    assert honest > UNIFORM
    assert UNIFORM / 32 < no_mask < 1  # the last target of a window is beyond reach
    assert not_shifted < 0.1
    assert is_png(leaks.picture)


def test_leaks_on_jax_too(found):
    jnp = pytest.importorskip("jax.numpy")
    last = {name: rows[-1][2] for name, rows in found.runs(jnp, found.QUICK).items()}
    assert last["honest"] > UNIFORM
    assert UNIFORM / 32 < last["no mask"] < 1
    assert last["targets not shifted"] < 0.1


def test_windows_are_of_two_sides_of_one_stream(found):
    train, validation = found.windows()
    assert (train.ids.shape, validation.ids.shape) == ((562, 32), (62, 32))
    assert (train.targets[:, :-1] == train.ids[:, 1:]).all()
    assert (found.not_shifted(validation).targets == validation.ids).all()
    assert importlib.import_module("numpy").bincount(train.ids.ravel(), minlength=64).min() > 200
