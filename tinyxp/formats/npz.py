"""NumPy's ``.npz`` with our own names and the config inside: any Config, mixtures too.

``numpy.load`` opens it. bfloat16 is stored as its bits (uint16); an entry of metadata names the dtypes.
"""

from __future__ import annotations

import json
import math
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinyxp.config import Config
from tinyxp.dtypes import ITEMSIZE
from tinyxp.errors import CheckpointError
from tinyxp.files import (
    JSON_LIMIT,
    check_name,
    decode_floats,
    encode_floats,
    make_folder,
    map_file,
    name_in_errors,
    parse_json,
    replacing,
)
from tinyxp.formats.checkpoint import Checkpoint, Tensor, Weight, list_names, match_rules
from tinyxp.formats.rules import Rule
from tinyxp.shapes import parameter_shapes

METADATA = "__tinyxp__"
VERSION = 1
NPY_HEADER = re.compile(
    rb"\{'descr': '([^']+)', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\), \} *\n"
)
"""What numpy.lib.format writes for a plain array; nothing in it is evaluated."""

_LATER_FIELDS = {"head_bias"}
"""Fields of Config that the first files of this version lack: they mean its default."""
_DESCR = {"float64": "<f8", "float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}
_LOCAL_HEADER, _ZIP64_FIELD = 30, 20
_ALIGNMENT = 64
_PADDING_FIELD = 0xD935  # the extra field that Android's zipalign pads with


class _Member(NamedTuple):
    """One .npy within the archive."""

    start: int
    """The first byte of its numbers in the archive."""
    nbytes: int
    descr: str
    shape: tuple[int, ...]


def list_rules(config: Config) -> Iterator[Rule]:
    """Yield the rules of the members: every parameter under its own name."""
    for name in parameter_shapes(config):
        yield Rule(name, (name,))


def open_npz(path: Path) -> Checkpoint:
    """Open an ``.npz`` that ``write_npz`` wrote; CheckpointError for any other, corrupt or hostile one.

    Members must be stored without compression: then none is larger than it says.
    """
    with name_in_errors(path):
        data = map_file(path)
        members = _find_members(path, data)
        if METADATA not in members:
            raise CheckpointError(f"has no {METADATA}: not written by tinyxp.save")
        config, dtypes = _read_metadata(data, members.pop(METADATA))
        if dtypes.keys() != members.keys():
            differing = sorted(dtypes.keys() ^ members.keys())
            raise CheckpointError(f"its metadata and its members differ: {list_names(differing)}")
        tensors = {name: _tensor(name, data, member, dtypes[name]) for name, member in members.items()}
    return Checkpoint(path, config, match_rules(path, config, list_rules, tensors), tensors)


def _find_members(path: Path, data: np.ndarray) -> dict[str, _Member]:
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise CheckpointError(f"is not an .npz file: {error}") from None
    members: dict[str, _Member] = {}
    for info in infos:
        name = check_name(info.filename.removesuffix(".npy"))
        if name in members:
            raise CheckpointError(f"has the member {name!r} twice")
        members[name] = _read_member(data, info)
    if sum(member.nbytes for member in members.values()) > data.size:
        raise CheckpointError("has members that overlap")
    return members


def _read_member(data: np.ndarray, info: zipfile.ZipInfo) -> _Member:
    name, size = info.filename, info.file_size
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or size != info.compress_size:
        raise CheckpointError(
            f"has the member {name!r} compressed or encrypted; tinyxp.save stores them plain"
        )
    local = data[info.header_offset : info.header_offset + _LOCAL_HEADER].tobytes()
    if local[:4] != b"PK\x03\x04" or len(local) < _LOCAL_HEADER:
        raise CheckpointError(f"has no member {name!r} where its directory says")
    start = info.header_offset + _LOCAL_HEADER
    start += int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
    if start + size > data.size:
        raise CheckpointError(f"has the member {name!r} beyond its end: truncated")
    head = data[start : start + min(size, 10)].tobytes()
    if head[:6] != b"\x93NUMPY" or head[6:8] != b"\x01\x00":
        raise CheckpointError(f"has the member {name!r} that is not an .npy of version 1.0")
    length = int.from_bytes(head[8:10], "little")
    text = NPY_HEADER.fullmatch(data[start + 10 : start + min(10 + length, size)].tobytes())
    if text is None or text[2] == b"True":
        raise CheckpointError(f"has the member {name!r} that is not a plain array in C order")
    shape = tuple(int(n) for n in text[3].decode().split(",") if n.strip())
    return _Member(start + 10 + length, size - 10 - length, text[1].decode("ascii", "replace"), shape)


def _read_metadata(data: np.ndarray, member: _Member) -> tuple[Config, dict[str, str]]:
    if member.descr != "|u1" or member.nbytes > JSON_LIMIT:
        raise CheckpointError(f"has a {METADATA} of dtype {member.descr!r} and {member.nbytes:,} bytes")
    metadata = parse_json(data[member.start : member.start + member.nbytes].tobytes())
    if metadata.get("version") != VERSION:
        raise CheckpointError(f"has version {metadata.get('version')!r}; {VERSION} is read")
    values, dtypes = metadata.get("config"), metadata.get("dtypes")
    if not isinstance(values, dict) or not isinstance(dtypes, dict):
        raise CheckpointError(f"has a {METADATA} without config and dtypes")
    known = {f.name for f in fields(Config)}
    if not known - _LATER_FIELDS <= values.keys() <= known:
        raise CheckpointError(f"has a config of other fields: {', '.join(sorted(values))}")
    return Config(**values), dtypes


def _tensor(name: str, data: np.ndarray, member: _Member, kind: Any) -> Tensor:
    start, nbytes, descr, shape = member
    if not isinstance(kind, str) or kind not in _DESCR:
        raise CheckpointError(f"has dtype {kind!r} of {name} in {METADATA}; known are {', '.join(_DESCR)}")
    if descr != _DESCR[kind]:
        raise CheckpointError(
            f"tensor {name} has dtype {descr!r}; {METADATA} says {kind}, which is {_DESCR[kind]!r}"
        )
    if math.prod(shape) * ITEMSIZE[kind] != nbytes:
        raise CheckpointError(f"tensor {name} is {kind} of shape {shape} in {nbytes:,} bytes")
    return Tensor(shape, kind, kind, nbytes, lambda: decode_floats(data, start, kind, shape))


def write_npz(path: Path, config: Config, weights: Mapping[str, Weight]) -> None:
    """Write parameters and config into one ``.npz``, which appears whole or not at all.

    Members are stored plain and aligned, so that their numbers can be mapped.
    """
    dtypes = {name: weights[name].kind for name in parameter_shapes(config)}
    metadata = {"version": VERSION, "config": asdict(config), "dtypes": dtypes}
    with make_folder(path.parent), replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        _add(archive, file.tell(), METADATA, np.frombuffer(json.dumps(metadata).encode(), np.uint8))
        for name, kind in dtypes.items():
            _add(archive, file.tell(), name, encode_floats(weights[name].read(), kind))


def _add(archive: zipfile.ZipFile, start: int, name: str, array: np.ndarray) -> None:
    """Add a member at byte ``start``, padded so that its .npy, and so its numbers, are aligned."""
    info = zipfile.ZipInfo(f"{name}.npy")
    begin = start + _LOCAL_HEADER + len(info.filename.encode()) + _ZIP64_FIELD + 4
    padding = bytes(-begin % _ALIGNMENT)
    info.extra = struct.pack("<HH", _PADDING_FIELD, len(padding)) + padding
    with archive.open(info, "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
