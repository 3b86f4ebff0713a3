"""Laws of parameter counts: four ways of counting agree, and published models have their known numbers."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from tinyxp.config import GPT2, PRESETS, Config
from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.checkpoints import configs_with_a_class
from tinyxp.testing.references import meta_backend, reference
from tinyxp.testing.strategies import configs

GROUPS = ("embed", "pos_embed", "attention", "mlp", "norm", "head")

SMALL = Config(**GPT2, vocab_size=4, max_seq_len=3, d_model=2, n_layers=1, n_heads=1, n_kv_heads=1, d_ff=8)
KNOWN: tuple[tuple[Config, dict[str, int]], ...] = (
    (Config(), {"embed": 4096, "attention": 6144, "mlp": 12288, "norm": 160, "head": 4096, "total": 26_784}),
    (SMALL, {"total": 92}),
    (
        Config.preset("gpt2"),
        {
            "embed": 38_597_376,
            "pos_embed": 786_432,
            "attention": 28_348_416,
            "mlp": 56_669_184,
            "norm": 38_400,
            "head": 0,
            "total": 124_439_808,
        },
    ),
    (Config.preset("gpt2-untied"), {"total": 163_037_184}),
    (Config.preset("smollm2-135m"), {"total": 134_515_008}),
    (Config.preset("qwen2-0.5b"), {"total": 494_032_768}),
)
"""Config -> its numbers of parameters, in total or by group too."""

law = laws_of("checkpoint", "counts", "count_parameters and parameter_shapes, written apart", "params files")


def draw_config(draw: Draw) -> Config:
    """Draw a small config or a published one: counting takes no memory."""
    return draw("config", configs() | st.sampled_from(sorted(PRESETS)).map(Config.preset))


def group_of(name: str) -> str:
    """Return the group of count_parameters that a parameter belongs to."""
    if name.rsplit(".", 1)[0].endswith("norm"):
        return "norm"
    words = name.split(".")
    return {"attn": "attention"}.get(words[2], words[2]) if words[0] == "blocks" else words[0]


@law("The closed form of each group, and of the total, is the sum over the shapes of its parameters.")
def counts_are_sums_over_shapes(subject: Any, draw: Draw) -> None:
    config = draw_config(draw)
    counted = subject.modules.shapes.count_parameters(config)
    sums = dict.fromkeys(GROUPS, 0)
    for name, shape in subject.modules.shapes.parameter_shapes(config).items():
        sums[group_of(name)] += math.prod(shape)
    subject.equal(list(counted), [*GROUPS, "total"], "groups")
    for group, total in (sums | {"total": sum(sums.values())}).items():
        subject.equal(counted[group], total, f"parameters of {group}")


@law(
    "Published models, and models small enough to count by hand, have their known numbers of parameters.",
    source="the model cards of gpt2, SmolLM2-135M and Qwen2-0.5B",
    examples=1,
)
def known_counts(subject: Any, draw: Draw) -> None:
    for config, expected in KNOWN:
        counted = subject.modules.shapes.count_parameters(config)
        found = {group: counted[group] for group in expected}
        if found != expected:
            raise AssertionError(f"{config} has {found}, expected {expected}")


@law(
    "Parameters created on a device without memory are as many as are counted.",
    source="PyTorch's meta device",
    needs="params files meta-device",
)
def counts_without_memory(subject: Any, draw: Draw) -> None:
    config = draw("config", configs())
    backend = meta_backend()
    assert backend is not None
    arrays = subject.modules.initialization.init(config, xp=backend.xp, device="meta")
    devices = {str(x.device) for x in arrays.values()}
    subject.equal(sorted(devices), ["meta"], "devices")
    expected = subject.modules.shapes.count_parameters(config)["total"]
    subject.equal(sum(math.prod(x.shape) for x in arrays.values()), expected, "parameters")


@law(
    "transformers' model of a config has the same number of parameters, counting a tied head once.",
    source="transformers' GPT2LMHeadModel, LlamaForCausalLM and Qwen2ForCausalLM",
    needs="params files reference-decoder",
    examples=15,
    is_reference=True,
)
def transformers_counts_as_many(subject: Any, draw: Draw) -> None:
    config = draw("config", configs_with_a_class() | st.sampled_from(sorted(PRESETS)).map(Config.preset))
    theirs = reference("decoder")
    counted = subject.modules.shapes.count_parameters(config)["total"]
    subject.equal(counted, theirs.count(config), f"parameters of {config}")
