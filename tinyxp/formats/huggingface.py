"""Hugging Face folders: config.json with model.safetensors, whole or in shards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tinyxp.config import Config
from tinyxp.errors import CheckpointError
from tinyxp.files import PICKLES, check_name, make_folder, name_in_errors, pickle_error, read_json, replacing
from tinyxp.formats.checkpoint import Checkpoint, Tensor, Weight, list_names, match_rules
from tinyxp.formats.family import Family
from tinyxp.formats.hf_config import config_from_hf, config_to_hf, family_for, family_of
from tinyxp.formats.rules import Rule, lay_out
from tinyxp.formats.safetensors_file import read_safetensors, write_safetensors
from tinyxp.shapes import parameter_shapes

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
HEAD = "lm_head.weight"


def list_rules(config: Config) -> Iterator[Rule]:
    """Yield the rule of every tensor that transformers saves for a model of this config."""
    family = family_for(config)
    return lay_out(family.names, config, family.prefix)


def open_folder(path: Path) -> Checkpoint:
    """Open a folder in transformers' layout and check it against its config; no weight is read.

    Raises CheckpointError for files that are missing, corrupt or contradict the config, and for pickles,
    which are never read. Raises UnsupportedModelError as ``config_from_hf`` does.
    """
    if not (path / CONFIG).exists():
        raise CheckpointError(f"{path}: has no {CONFIG}; looked for {CONFIG} with {WEIGHTS} or {INDEX}")
    source = read_json(path / CONFIG)
    with name_in_errors(path / CONFIG):
        config = config_from_hf(source)
        family = family_of(source["model_type"])
    weights, tensors = _find_tensors(path)
    prefix = family.prefix if any(name.startswith(family.prefix) for name in tensors) else ""
    verify = _check_head(weights, config, tensors, _name_embedding(family, prefix))

    def reason_to_skip(name: str) -> str:
        if family.buffers.fullmatch(name.removeprefix(family.prefix)):
            return "buffer"
        return "equals the embedding (tie_word_embeddings)" if name == HEAD else ""

    rules = match_rules(weights, config, lambda c: lay_out(family.names, c, prefix), tensors, reason_to_skip)
    special_ids = {name: source[name] for name in SPECIAL_IDS if name in source}
    return Checkpoint(weights, config, rules, tensors, verify, special_ids)


def _name_embedding(family: Family, prefix: str) -> str:
    [module] = [module for module in family.names.top if module.holds == ("embed",)]
    return f"{prefix}{module.name}.weight"


def _find_tensors(path: Path) -> tuple[Path, dict[str, Tensor]]:
    """Read the headers of a whole file, which transformers prefers too, or else of shards."""
    if (path / WEIGHTS).exists():
        return path / WEIGHTS, read_safetensors(path / WEIGHTS)
    if (path / INDEX).exists():
        return path / INDEX, _read_shards(path)
    pickles = sorted(p.name for p in path.iterdir() if p.suffix in PICKLES)
    if pickles:
        raise pickle_error(path / pickles[0])
    raise CheckpointError(f"{path}: has no weights; looked for {WEIGHTS} and {INDEX}")


def _read_shards(path: Path) -> dict[str, Tensor]:
    places = _read_index(path / INDEX)
    names = sorted(set(places.values()))
    absent = [name for name in names if not (path / name).exists()]
    if absent:
        raise CheckpointError(f"{path}: the shard {list_names(absent)} is missing; {INDEX} names it")
    shards = {name: read_safetensors(path / name) for name in names}
    for name, shard in shards.items():
        if unknown := [tensor for tensor in shard if tensor not in places]:
            raise CheckpointError(f"{path / name}: {INDEX} does not name its tensors {list_names(unknown)}")
    for tensor, name in places.items():
        if tensor not in shards[name]:
            raise CheckpointError(f"{path / name}: lacks tensor {tensor}, which {INDEX} promises")
    return {tensor: shards[name][tensor] for tensor, name in places.items()}


def _read_index(path: Path) -> dict[str, str]:
    """Read which shard of the folder each tensor is in."""
    places = read_json(path).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{path}: has no weight_map")
    for place in places.values():
        if not isinstance(place, str) or Path(place).name != place or not place.endswith(".safetensors"):
            raise CheckpointError(f"{path}: weight_map names {place!r}, not a .safetensors of this folder")
    with name_in_errors(path):
        for name in (*places, *places.values()):
            check_name(name)
    return places


def _check_head(
    path: Path, config: Config, tensors: Mapping[str, Tensor], embedding: str
) -> Callable[[], None]:
    """Reject a missing head, and one beside a tied embedding unless the two are equal.

    Returns the part of the check that reads the weights.
    """
    head, table = tensors.get(HEAD), tensors.get(embedding)
    if head is None and not config.tie_embeddings:
        raise CheckpointError(f"{path}: has no {HEAD}, but tie_word_embeddings is false")
    if head is None or table is None or not config.tie_embeddings:
        return lambda: None
    differs = CheckpointError(f"{path}: {HEAD} differs from {embedding}, but tie_word_embeddings is true")
    if head.shape != table.shape or not head.kind:
        raise differs

    def verify() -> None:
        if not np.array_equal(head.read(), table.read(), equal_nan=True):
            raise differs

    return verify


def write_folder(
    path: Path, config: Config, weights: Mapping[str, Weight], special_ids: Mapping[str, Any]
) -> None:
    """Write config.json and model.safetensors as transformers names them, each whole or not at all."""
    values = config_to_hf(config) | dict(special_ids)
    kind = weights["embed.weight"].kind
    values |= {"dtype": kind, "torch_dtype": kind}
    shapes = parameter_shapes(config)
    tensors = {rule.name: _join(rule, weights, rule.shape(shapes)) for rule in list_rules(config)}
    with make_folder(path), replacing(path / CONFIG) as text, replacing(path / WEIGHTS) as numbers:
        text.write(json.dumps(values, indent=2).encode() + b"\n")
        write_safetensors(numbers, tensors)


def _join(rule: Rule, weights: Mapping[str, Weight], shape: tuple[int, ...]) -> Weight:
    parts = [weights[target] for target in rule.targets]
    kinds = {part.kind for part in parts}
    kind = kinds.pop() if len(kinds) == 1 else "float64" if "float64" in kinds else "float32"
    return Weight(shape, kind, lambda: rule.join([part.read() for part in parts]))
