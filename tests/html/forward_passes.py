"""Forward passes of both families, over tokens some of which try to break out of a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import tinyxp
from tests.reference import GPT2_CONFIG, drawn
from tinyxp.html.forward_pass import ForwardPass
from tinyxp.html.text import visible

CONFIGS = {"llama": tinyxp.Config(), "gpt2": replace(GPT2_CONFIG, n_layers=3)}
RELU2 = replace(CONFIGS["llama"], mlp="relu2", head_bias=True)
IDS = (3, 1, 4, 1, 5, 9, 2)
LONG_IDS = tuple(range(3, 93))
HOSTILE = {
    3: b"</script><script>document.title='taken'</script>",
    1: b"\"'><img src=x onerror=alert(1)>",
    4: b"\n\x1b",
}


def describe(index: int) -> str:
    return visible(HOSTILE.get(index, b" t%d" % index))


@cache
def make_backend_run(backend: tinyxp.Backend) -> ForwardPass:
    """The run of the Llama family in another library."""
    params = drawn(CONFIGS["llama"]).to(backend.xp)
    return ForwardPass(params, IDS, tinyxp.trace(params, [list(IDS)]), describe)


@cache
def make_run(family: str, ids: tuple[int, ...] = IDS, text: Callable[[int], str] = describe) -> ForwardPass:
    params = drawn(RELU2 if family == "relu2" else CONFIGS[family])
    return ForwardPass(params, ids, tinyxp.trace(params, [list(ids)]), text)
