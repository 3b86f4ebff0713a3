"""Plans: lengths within the context, defaults, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import tinyxp
from tinyxp.bench.plan import Plan


def test_lengths_lie_within_the_context_with_the_prompt_among_them() -> None:
    assert Plan(model="gpt2", backends=("numpy",)).lengths == [16, 64, 128, 256, 1024]
    assert Plan(model="tiny", backends=("numpy",)).lengths == [16, 32, 64]
    assert Plan(model="tiny", backends=("numpy",), prompt=5).lengths == [5, 16, 64]


def test_a_file_goes_before_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tinyxp.Config(max_seq_len=20)
    tinyxp.save(tinyxp.init(config), tmp_path / "m.npz")
    monkeypatch.chdir(tmp_path)
    plan = Plan(model="m.npz", backends=("numpy",))
    assert (plan.config, plan.prompt_tokens, plan.is_preset) == (config, 10, False)
    params = plan.params(tinyxp.backend("numpy"), "float64")
    assert params["embed.weight"].dtype == "float64"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": 64}, "prompt is 64; it must be below 64, the context of tiny"),
        ({"prompt": 0}, "prompt is 0; it must be an integer of 1 or more"),
        ({"repeats": 0}, "repeats is 0; it must be an integer of 1 or more"),
        ({"repeats": 21}, "repeats is 21; at most 20 fit into 64, the context of tiny"),
        ({"backends": ()}, "backends is empty"),
        ({"dtypes": ()}, "dtypes is empty"),
        ({"model": "gpt-7"}, "gpt-7"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan(**{"model": "tiny", "backends": ("numpy",)} | fields)
