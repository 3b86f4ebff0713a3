"""Hugging Face's config.json <-> Config, by the declarations in ``families``.

Files of transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters) are read; both forms are written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tinyxp.config import Config, RopeScaling
from tinyxp.errors import UnsupportedModelError
from tinyxp.files import name_in_errors, read_json
from tinyxp.formats.families import FAMILIES
from tinyxp.formats.family import Choice, Family, Fixed, Key, Values, Window
from tinyxp.formats.fields import Fields

_FIXED = (
    Fixed("is_causal", True, "this decoder's attention is causal"),
    Fixed("add_cross_attention", False, "this is a decoder alone"),
    Fixed("is_encoder_decoder", False, "this is a decoder alone"),
)
"""Flags of every family."""


def config_from_hf(source: Mapping[str, Any] | str | os.PathLike[str]) -> Config:
    """Read Hugging Face's config.json (its dict, the file, or its folder).

    A missing or null key means what the class of transformers 5 takes it for. Raises UnsupportedModelError
    naming the key that requests what this decoder does not compute, ValueError naming the key of a bad
    value, CheckpointError for a file that is not a JSON object.
    """
    if isinstance(source, Mapping):
        return _read_config(Fields(source))
    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    values = read_json(path)
    with name_in_errors(path):
        return _read_config(Fields(values))


def family_of(model_type: Any) -> Family:
    """Return the family of config.json's ``model_type``; UnsupportedModelError if it is not known."""
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise UnsupportedModelError(f"model_type is {model_type!r}; known are {', '.join(FAMILIES)}")
    return FAMILIES[model_type]


def _read_config(fields: Fields) -> Config:
    family = family_of(fields.get("model_type"))
    if "quantization_config" in fields:
        fields.reject("quantization_config", "quantised weights are read from GGUF files only")
    for fixed in (*_FIXED, *family.fixed):
        if fields.flag(fixed.name, fixed.value) is not fixed.value:
            fields.reject(fixed.name, fixed.reason)
    values = _read_keys(fields, family)
    _check_heads(values, family)
    if family.window is not None:
        _reject_window(fields, family.window, values["n_layers"], values["max_seq_len"])
    if values["position"] == "rope":
        values |= _read_rope(fields, values["max_seq_len"])
    config = Config(**values)
    fields.reject_unread()
    return config


def _read_keys(fields: Fields, family: Family) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key in family.keys:
        if isinstance(key, Choice):
            values[key.field] = _read_choice(fields, key)
        elif (value := _read_key(fields, key, values)) is not None:
            values |= dict.fromkeys(key.fields, value)
    constants = {field: _resolve(value, values) for field, value in family.constants.items()}
    return values | constants


def _resolve(value: Any, values: Values) -> Any:
    return value(values) if callable(value) else value


def _read_key(fields: Fields, key: Key, values: Values) -> Any:
    null = fields.is_null(key.name) and key.null is not None
    default = _resolve(key.null if null else key.default, values)
    if key.alias and key.alias in fields:
        value = key.read(fields, key.alias, default)
        if key.name in fields and (own := key.read(fields, key.name, default)) != value:
            raise ValueError(f"{key.name} is {own}, but {key.alias} is {value}")
        return value
    if default is None and key.name not in fields:
        return None
    return key.read(fields, key.name, default)


def _read_choice(fields: Fields, choice: Choice) -> str:
    word = fields.get(choice.name, choice.default)
    if not isinstance(word, str) or word not in choice.words:
        fields.reject(choice.name, f"{choice.reason} {', '.join(choice.words)}")
    return choice.words[word]


def _check_heads(values: Values, family: Family) -> None:
    heads, width, kv_heads = values["n_heads"], values["d_model"], values["n_kv_heads"]
    heads_key = family.key_of("n_heads")
    if heads % kv_heads:
        kv_key = family.key_of("n_kv_heads")
        raise ValueError(f"{kv_key} is {kv_heads}; it must divide {heads_key}, {heads}")
    if "head_dim" not in values and width % heads:
        raise ValueError(f"{heads_key} is {heads}; it must divide {family.key_of('d_model')}, {width}")


def _reject_window(fields: Fields, window: Window, n_layers: int, length: int) -> None:
    """Reject an attention window unless it is off or no narrower than the context."""
    default = None if fields.is_null("sliding_window") else window.default
    size = fields.get("sliding_window", default)
    on = fields.flag("use_sliding_window", window.on) or not window.switched
    first = fields.get("max_window_layers", 28)
    layers = fields.get("layer_types", [])
    for key, value, kind in (
        ("sliding_window", size, int),
        ("max_window_layers", first, int),
        ("layer_types", layers, list),
    ):
        if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
            raise ValueError(f"{key} is {value!r}; it must be {kind.__name__} or null")
    if window.by_layer:
        on = on and ("sliding_attention" in layers if layers else first < n_layers)
    if on and size is not None and size < length:
        reason = f"attention here sees all of max_position_embeddings, {length}"
        raise UnsupportedModelError(f"sliding_window is {size}: {reason}")


def _read_rope(fields: Fields, length: int) -> dict[str, Any]:
    """Read rope_theta and rope_scaling in either form; transformers prefers a non-empty rope_scaling."""
    newer, older = fields.get("rope_parameters", {}), fields.get("rope_scaling", {})
    key, rope = ("rope_scaling", older) if older else ("rope_parameters", newer)
    if not isinstance(rope, Mapping):
        raise ValueError(f"{key} is {rope!r}; it must be an object or null")
    inner = Fields(rope, f"{key}.")
    theta = inner.number("rope_theta", fields.number("rope_theta", 10000.0))
    if any(isinstance(value, Mapping) for value in rope.values()):
        fields.reject(key, "all layers share one rotation")
    for owner in (fields, inner):
        if owner.get("partial_rotary_factor", 1.0) != 1.0:
            owner.reject("partial_rotary_factor", "heads are rotated whole")
    return {"rope_theta": theta, "rope_scaling": _read_scaling(fields, inner, key, length)}


def _read_scaling(fields: Fields, rope: Fields, key: str, length: int) -> RopeScaling | None:
    original = rope.get("original_max_position_embeddings", length)
    original = fields.get("original_max_position_embeddings", original)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise UnsupportedModelError(f"{key}.rope_type is {kind!r}: known are 'default', 'linear', 'llama3'")
    rope.reject_unread()
    if kind == "default":
        if rope.get("factor", 1.0) != 1.0:
            rope.reject("factor", "no rope_type says what it stretches")
        return None
    if kind == "linear":
        return RopeScaling(rope_type=kind, factor=rope.number("factor"))
    return RopeScaling(
        rope_type=kind,
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_max_seq_len=original,
    )


def config_to_hf(config: Config) -> dict[str, Any]:
    """Write Hugging Face's config.json of the first family that can say ``config``.

    Raises UnsupportedModelError for a mixture that none of their classes computes.
    """
    return _write_as_first(config)[1]


def family_for(config: Config) -> Family:
    """Return the family that ``config`` is written as; UnsupportedModelError if none can say it."""
    return _write_as_first(config)[0]


def _write_as_first(config: Config) -> tuple[Family, dict[str, Any]]:
    fields = asdict(config)
    for family in FAMILIES.values():
        if family.whole_heads and config.d_model % config.n_heads:
            continue
        values = _write(family, fields)
        if values is not None and _reads_as(values, config):
            return family, values
    choices = ("norm", "position", "mlp", "attn_bias", "attn_out_bias", "mlp_bias", "head_bias")
    sizes = ("n_heads", "n_kv_heads", "head_dim", "d_model")
    mixture = ", ".join(f"{name} {fields[name]!r}" for name in (*choices, *sizes))
    raise UnsupportedModelError(
        f"no class of transformers ({', '.join(FAMILIES)}) computes {mixture}; save as .npz"
    )


def _reads_as(values: Mapping[str, Any], config: Config) -> bool:
    """Return whether the keys that a family wrote lose nothing of ``config``."""
    try:
        read = config_from_hf(values)
    except ValueError:
        return False
    if config.position == "learned":  # which no rotation changes
        config = replace(config, rope_theta=read.rope_theta)
    return read == config


def _write(family: Family, fields: Values) -> dict[str, Any] | None:
    """Return config.json of the family, or None if it has no word for a choice."""
    values: dict[str, Any] = {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        # The classes have defaults for these, which would be tokens of another vocabulary.
        "bos_token_id": None,
        "eos_token_id": None,
    }
    for key in family.keys:
        if isinstance(key, Key):
            values[key.name] = fields[key.fields[0]]
            continue
        words = [word for word, value in key.words.items() if value == fields[key.field]]
        if not words:
            return None
        values[key.name] = words[0]
    if family.constants["position"] == "rope":
        values |= _write_rope(fields)
    return values | dict(family.written)


def _write_rope(fields: Values) -> dict[str, Any]:
    theta, scaling = fields["rope_theta"], fields["rope_scaling"]
    keys: dict[str, Any] = {}
    if scaling is not None:
        keys = {"rope_type": scaling["rope_type"], "factor": scaling["factor"]}
        if scaling["rope_type"] == "llama3":
            keys |= {
                "low_freq_factor": scaling["low_freq_factor"],
                "high_freq_factor": scaling["high_freq_factor"],
                "original_max_position_embeddings": scaling["original_max_seq_len"],
            }
    return {
        "rope_theta": theta,  # transformers 4
        "rope_scaling": {"type": keys["rope_type"], **keys} if keys else None,
        "rope_parameters": {"rope_theta": theta, "rope_type": "default", **keys},  # 5
    }
