"""The decoders of Hugging Face's transformers, by the laws that know only what a model computes."""

from __future__ import annotations

from typing import Any

import pytest

from tinyxp.testing import LawBroken, check_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# From 5.24 on it is called cache, which older versions do not know.
pytestmark = pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")

SIZES = {"vocab_size": 13, "max_seq_len": 16}
ROTARY = {
    "vocab_size": 13,
    "hidden_size": 12,
    "intermediate_size": 10,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 64,
}
PLAIN = {"initializer_range": 0.5, "bos_token_id": None, "eos_token_id": None, "attn_implementation": "eager"}
CONFIGS = {
    "GPT2": {"vocab_size": 13, "n_positions": 16, "n_embd": 12, "n_layer": 2, "n_head": 3},
    "Llama": ROTARY,
    "Qwen2": ROTARY,
}


class Theirs:
    """What ``check_model`` asks of a model, in terms of transformers'."""

    def __init__(self, kind: str) -> None:
        torch.manual_seed(0)
        config = getattr(transformers, f"{kind}Config")(**CONFIGS[kind], **PLAIN)
        self.model = getattr(transformers, f"{kind}LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM")(
            config
        )
        self.model.eval()

    @torch.no_grad()
    def __call__(self, ids: Any, mask: Any = None, positions: Any = None) -> Any:
        if mask is not None and positions is None:
            positions = counted(mask)
        mask = None if mask is None else mask.long()
        return self.model(ids, attention_mask=mask, position_ids=positions, use_cache=False).logits

    @torch.no_grad()
    def step(self, ids: Any, cache: Any, mask: Any = None) -> Any:
        past, before = cache or (None, torch.ones((len(ids), 0), dtype=torch.bool))
        seen = torch.cat([before, torch.ones_like(ids, dtype=torch.bool) if mask is None else mask], dim=1)
        positions = self.positions(seen)[:, -ids.shape[1] :]
        out = self.model(
            ids, attention_mask=seen.long(), position_ids=positions, past_key_values=past, use_cache=True
        )
        return out.logits, (out.past_key_values, seen)

    def positions(self, seen: Any) -> Any:
        return counted(seen)


def counted(mask: Any) -> Any:
    """Positions count each row's real tokens."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


def check(model: Theirs, **settings: Any) -> list[Any]:
    rotary = not isinstance(model.model, transformers.GPT2LMHeadModel)
    return check_model(
        model,
        **SIZES,
        xp="torch",
        mask=True,
        positions=True,
        rotary=rotary,
        step=model.step,
        max_examples=15,
        **settings,
    )


@pytest.mark.parametrize("kind", CONFIGS)
def test_their_models_keep_every_law(kind: str) -> None:
    verdicts = check(Theirs(kind))
    assert {verdict.status for verdict in verdicts} == {"pass"}
    assert len(verdicts) >= 10


class NotCausal(Theirs):
    """Attention in both directions, as an encoder has it."""

    @torch.no_grad()
    def __call__(self, ids: Any, mask: Any = None, positions: Any = None) -> Any:
        b, t = ids.shape
        everything = torch.zeros((b, 1, t, t))  # what is added to the scores
        return self.model(ids, attention_mask=everything, position_ids=positions, use_cache=False).logits


class OffByOne(Theirs):
    """After the first step positions are one too high."""

    def positions(self, seen: Any) -> Any:
        positions = super().positions(seen)
        return positions + 1 if seen.shape[1] > 1 else positions


class ForgetsTheMask(Theirs):
    def __call__(self, ids: Any, mask: Any = None, positions: Any = None) -> Any:
        return super().__call__(ids, positions=positions)


class ForgetsPositions(Theirs):
    """The mask without position ids: padding on the left takes positions."""

    @torch.no_grad()
    def __call__(self, ids: Any, mask: Any = None, positions: Any = None) -> Any:
        mask = None if mask is None else mask.long()
        return self.model(ids, attention_mask=mask, position_ids=positions, use_cache=False).logits


@pytest.mark.parametrize(
    "model, kind, law",
    [
        (NotCausal, "Llama", "causality"),
        (NotCausal, "GPT2", "causality"),
        (OffByOne, "GPT2", "cache-equals-full-pass"),
        (ForgetsTheMask, "Qwen2", "padding-invariance"),
        (ForgetsPositions, "GPT2", "padding-invariance"),
    ],
)
def test_what_is_wrong_with_them_is_named(model: type[Theirs], kind: str, law: str) -> None:
    with pytest.raises(LawBroken, match=rf"\n\n{law}, by mine: "):
        check(model(kind), laws=law, name="mine")


def test_rotary_positions_that_no_mask_counts() -> None:
    """With rotary positions it makes no difference where a row begins: this is no fault."""
    assert check(ForgetsPositions("Llama"), laws="padding-invariance")
