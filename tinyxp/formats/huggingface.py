"""Hugging Face folders: config.json with model.safetensors, whole or in shards; GPT-2's and Llama's names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tinyxp.config import Config
from tinyxp.errors import CheckpointError
from tinyxp.files import PICKLES, check_name, folder, naming, pickle_error, read_json, replacing
from tinyxp.formats.hf_config import config_from_hf, config_to_hf
from tinyxp.formats.plan import Checkpoint, Rule, Tensor, Weight, fit, listed
from tinyxp.formats.safetensors_file import read_safetensors, write_safetensors
from tinyxp.shapes import block_shapes, parameter_shapes

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")

_GPT2_BUFFER = re.compile(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)")
_LLAMA_BUFFER = re.compile(r"(model\.)?(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")

_GPT2_TOP = {"embed": "wte", "pos_embed": "wpe", "final_norm": "ln_f"}
_GPT2_BLOCK = {  # transposed where it is a Conv1D
    "ln_1": ("attn_norm",),
    "attn.c_attn": ("attn.q", "attn.k", "attn.v"),
    "attn.c_proj": ("attn.o",),
    "ln_2": ("mlp_norm",),
    "mlp.c_fc": ("mlp.up",),
    "mlp.c_proj": ("mlp.down",),
}
_LLAMA_TOP = {"embed": "embed_tokens", "final_norm": "norm"}
_LLAMA_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.o": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}


def layout(config: Config, prefix: str | None = None) -> Iterator[Rule]:
    """The tensors of transformers' own model of this config; prefix None is what its class saves with."""
    gpt2 = config.position == "learned"
    if prefix is None:
        prefix = "transformer." if gpt2 else "model."
    yield from _gpt2_layout(config, prefix) if gpt2 else _llama_layout(config, prefix)
    if not config.tie_embeddings:
        yield Rule("lm_head.weight", ("head.weight",))


def _gpt2_layout(config: Config, prefix: str) -> Iterator[Rule]:
    for name in ("embed.weight", "pos_embed.weight", "final_norm.weight", "final_norm.bias"):
        ours, end = name.rsplit(".", 1)
        yield Rule(f"{prefix}{_GPT2_TOP[ours]}.{end}", (name,))
    for i in range(config.n_layers):
        for theirs, ours_all in _GPT2_BLOCK.items():
            for end in ("weight", "bias"):
                targets = tuple(f"blocks.{i}.{ours}.{end}" for ours in ours_all)
                conv1d = end == "weight" and ".c_" in theirs
                yield Rule(f"{prefix}h.{i}.{theirs}.{end}", targets, transposed=conv1d)


def _llama_layout(config: Config, prefix: str) -> Iterator[Rule]:
    for ours, theirs in _LLAMA_TOP.items():
        yield Rule(f"{prefix}{theirs}.weight", (f"{ours}.weight",))
    for i in range(config.n_layers):
        for name in block_shapes(config):
            ours, end = name.rsplit(".", 1)
            yield Rule(f"{prefix}layers.{i}.{_LLAMA_BLOCK[ours]}.{end}", (f"blocks.{i}.{name}",))


def open_folder(path: Path) -> Checkpoint:
    """A folder of transformers' layout, checked against its config; no weight is read.

    Raises CheckpointError for files that are missing, corrupt or contradict the config (and for pickles,
    which are never read), UnsupportedModelError as ``config_from_hf``.
    """
    if not (path / CONFIG).exists():
        raise CheckpointError(f"{path}: has no {CONFIG}; looked for {CONFIG} with {WEIGHTS} or {INDEX}")
    source = read_json(path / CONFIG)
    with naming(path / CONFIG):
        config = config_from_hf(source)
    weights, tensors = _find_tensors(path)
    gpt2 = config.position == "learned"
    usual = "transformer." if gpt2 else "model."
    prefix = usual if any(name.startswith(usual) for name in tensors) else ""
    verify = _check_head(weights, config, tensors, f"{prefix}{'wte' if gpt2 else 'embed_tokens'}.weight")

    def skipped(name: str) -> str:
        if (_GPT2_BUFFER if gpt2 else _LLAMA_BUFFER).fullmatch(name):
            return "buffer"
        return "equals the embedding (tie_word_embeddings)" if name == "lm_head.weight" else ""

    rules = fit(weights, config, lambda c: layout(c, prefix), tensors, skipped)
    special_ids = {name: source[name] for name in SPECIAL_IDS if name in source}
    return Checkpoint(weights, config, rules, tensors, verify, special_ids)


def _find_tensors(path: Path) -> tuple[Path, dict[str, Tensor]]:
    """As transformers does, a whole file goes before shards."""
    if (path / WEIGHTS).exists():
        return path / WEIGHTS, read_safetensors(path / WEIGHTS)
    if (path / INDEX).exists():
        return path / INDEX, _read_shards(path)
    pickles = sorted(p.name for p in path.iterdir() if p.suffix in PICKLES)
    if pickles:
        raise pickle_error(path / pickles[0])
    raise CheckpointError(f"{path}: has no weights; looked for {WEIGHTS} and {INDEX}")


def _read_shards(path: Path) -> dict[str, Tensor]:
    places = read_json(path / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{path / INDEX}: has no weight_map")
    for place in places.values():
        if not isinstance(place, str) or Path(place).name != place or not place.endswith(".safetensors"):
            raise CheckpointError(
                f"{path / INDEX}: weight_map names {place!r}, not a .safetensors of this folder"
            )
    with naming(path / INDEX):
        for name in (*places, *places.values()):
            check_name(name)
    names = sorted(set(places.values()))
    absent = [name for name in names if not (path / name).exists()]
    if absent:
        raise CheckpointError(f"{path}: the shard {listed(absent)} is missing; {INDEX} names it")
    shards = {name: read_safetensors(path / name) for name in names}
    for name, shard in shards.items():
        if unknown := [tensor for tensor in shard if tensor not in places]:
            raise CheckpointError(f"{path / name}: {INDEX} does not name its tensors {listed(unknown)}")
    for tensor, name in places.items():
        if tensor not in shards[name]:
            raise CheckpointError(f"{path / name}: lacks tensor {tensor}, which {INDEX} promises")
    return {tensor: shards[name][tensor] for tensor, name in places.items()}


def _check_head(
    path: Path, config: Config, tensors: Mapping[str, Tensor], embedding: str
) -> Callable[[], None]:
    """Refuses a missing head; a needless one may stay if it is the embedding, which the result looks up."""
    head, table = tensors.get("lm_head.weight"), tensors.get(embedding)
    if head is None and not config.tie_embeddings:
        raise CheckpointError(f"{path}: has no lm_head.weight, but tie_word_embeddings is false")
    if head is None or table is None or not config.tie_embeddings:
        return lambda: None
    differs = CheckpointError(
        f"{path}: lm_head.weight differs from {embedding}, but tie_word_embeddings is true"
    )
    if head.shape != table.shape or not head.kind:
        raise differs

    def verify() -> None:
        if not np.array_equal(head.read(), table.read(), equal_nan=True):
            raise differs

    return verify


def write_folder(
    path: Path, config: Config, weights: Mapping[str, Weight], special_ids: Mapping[str, Any]
) -> None:
    """config.json and model.safetensors as transformers names them; each appears whole or not at all."""
    values = config_to_hf(config) | dict(special_ids)
    kind = weights["embed.weight"].kind
    values |= {"dtype": kind, "torch_dtype": kind}
    shapes = parameter_shapes(config)
    tensors = {rule.name: _joined(rule, weights, rule.shape(shapes)) for rule in layout(config)}
    with folder(path), replacing(path / CONFIG) as text, replacing(path / WEIGHTS) as numbers:
        text.write(json.dumps(values, indent=2).encode() + b"\n")
        write_safetensors(numbers, tensors)


def _joined(rule: Rule, weights: Mapping[str, Weight], shape: tuple[int, ...]) -> Weight:
    parts = [weights[target] for target in rule.targets]
    kinds = {part.kind for part in parts}
    kind = kinds.pop() if len(kinds) == 1 else "float64" if "float64" in kinds else "float32"
    return Weight(shape, kind, lambda: rule.join([part.read() for part in parts]))
