"""NumPy's ``.npz`` with our own names and the config inside: any Config, mixtures too.

``numpy.load`` opens it; bfloat16 is kept as its bits (uint16) and a record of the dtypes.
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
from typing import Any

import numpy as np

from tinyxp.config import Config
from tinyxp.dtypes import ITEMSIZE
from tinyxp.errors import CheckpointError
from tinyxp.files import (
    JSON_LIMIT,
    check_name,
    floats,
    folder,
    map_file,
    naming,
    parse_json,
    replacing,
    stored,
)
from tinyxp.formats.plan import Checkpoint, Rule, Tensor, Weight, fit, listed
from tinyxp.shapes import parameter_shapes

RECORD = "__tinyxp__"
VERSION = 1
_DESCR = {"float64": "<f8", "float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}
_LOCAL_HEADER, _ZIP64_FIELD = 30, 20
_ALIGNMENT = 64
_PADDING_FIELD = 0xD935  # the extra field that Android's zipalign pads with
# What numpy.lib.format writes for a plain array; nothing in it is evaluated.
_HEADER = re.compile(rb"\{'descr': '([^']+)', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\), \} *\n")


def layout(config: Config) -> Iterator[Rule]:
    for name in parameter_shapes(config):
        yield Rule(name, (name,))


def open_npz(path: Path) -> Checkpoint:
    """An ``.npz`` that ``write_npz`` wrote. Raises CheckpointError for any other, corrupt or hostile one.

    Members must be stored, not compressed: then none is larger than it says.
    """
    with naming(path):
        data = map_file(path)
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
        except (zipfile.BadZipFile, NotImplementedError) as error:
            raise CheckpointError(f"is not an .npz file: {error}") from None
        found: dict[str, _Member] = {}
        for info in members:
            name = check_name(info.filename.removesuffix(".npy"))
            if name in found:
                raise CheckpointError(f"has the member {name!r} twice")
            found[name] = _Member(data, info)
        if sum(member.size for member in found.values()) > data.size:
            raise CheckpointError("has members that overlap")
        if RECORD not in found:
            raise CheckpointError(f"has no {RECORD}: not written by tinyxp.save")
        config, dtypes = _parse(found.pop(RECORD))
        if dtypes.keys() != found.keys():
            raise CheckpointError(
                f"its record of dtypes and its members differ: {listed(sorted(dtypes.keys() ^ found.keys()))}"
            )
        tensors = {name: _tensor(name, member, dtypes[name]) for name, member in found.items()}
    return Checkpoint(path, config, fit(path, config, layout, tensors), tensors)


class _Member:
    """One .npy within the archive: where its numbers lie, and what its header says of them."""

    def __init__(self, data: np.ndarray, info: zipfile.ZipInfo) -> None:
        name = info.filename
        if (
            info.compress_type != zipfile.ZIP_STORED
            or info.flag_bits & 1
            or info.file_size != info.compress_size
        ):
            raise CheckpointError(
                f"has the member {name!r} compressed or encrypted; tinyxp.save stores them plain"
            )
        local = data[info.header_offset : info.header_offset + _LOCAL_HEADER].tobytes()
        if local[:4] != b"PK\x03\x04" or len(local) < _LOCAL_HEADER:
            raise CheckpointError(f"has no member {name!r} where its directory says")
        start = info.header_offset + _LOCAL_HEADER
        start += int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
        if start + info.file_size > data.size:
            raise CheckpointError(f"has the member {name!r} beyond its end: truncated")
        head = data[start : start + min(info.file_size, 10)].tobytes()
        if head[:6] != b"\x93NUMPY" or head[6:8] != b"\x01\x00":
            raise CheckpointError(f"has the member {name!r} that is not an .npy of version 1.0")
        length = int.from_bytes(head[8:10], "little")
        text = _HEADER.fullmatch(data[start + 10 : start + min(10 + length, info.file_size)].tobytes())
        if text is None or text[2] == b"True":
            raise CheckpointError(f"has the member {name!r} that is not a plain array in C order")
        self.data = data
        self.start = start + 10 + length
        self.size = info.file_size - 10 - length
        self.descr = text[1].decode("ascii", "replace")
        self.shape = tuple(int(n) for n in text[3].decode().split(",") if n.strip())


def _parse(member: _Member) -> tuple[Config, dict[str, str]]:
    if member.descr != "|u1" or member.size > JSON_LIMIT:
        raise CheckpointError(f"has a {RECORD} of dtype {member.descr!r} and {member.size:,} bytes")
    record = parse_json(member.data[member.start : member.start + member.size].tobytes())
    if record.get("version") != VERSION:
        raise CheckpointError(f"has version {record.get('version')!r}; {VERSION} is read")
    values, dtypes = record.get("config"), record.get("dtypes")
    if not isinstance(values, dict) or not isinstance(dtypes, dict):
        raise CheckpointError(f"has a {RECORD} without config and dtypes")
    if values.keys() != {f.name for f in fields(Config)}:
        raise CheckpointError(f"has a config of other fields: {', '.join(sorted(values))}")
    return Config(**values), dtypes


def _tensor(name: str, member: _Member, kind: Any) -> Tensor:
    if not isinstance(kind, str) or kind not in _DESCR:
        raise CheckpointError(f"records dtype {kind!r} for {name}; known are {', '.join(_DESCR)}")
    if member.descr != _DESCR[kind]:
        raise CheckpointError(f"tensor {name} has dtype {member.descr!r}; recorded is {kind}, {_DESCR[kind]}")
    if math.prod(member.shape) * ITEMSIZE[kind] != member.size:
        raise CheckpointError(f"tensor {name} is {kind} of shape {member.shape} in {member.size:,} bytes")

    return Tensor(
        member.shape,
        kind,
        kind,
        member.size,
        lambda: floats(member.data, member.start, kind, member.shape),
    )


def write_npz(path: Path, config: Config, weights: Mapping[str, Weight]) -> None:
    """Parameters and config in one ``.npz``, each member stored plain, aligned so that its numbers can be
    mapped where they lie; it appears whole or not at all."""
    dtypes = {name: weights[name].kind for name in parameter_shapes(config)}
    record = {"version": VERSION, "config": asdict(config), "dtypes": dtypes}
    with folder(path.parent), replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        _add(archive, file.tell(), RECORD, np.frombuffer(json.dumps(record).encode(), np.uint8))
        for name, kind in dtypes.items():
            _add(archive, file.tell(), name, stored(weights[name].read(), kind))


def _add(archive: zipfile.ZipFile, start: int, name: str, array: np.ndarray) -> None:
    """One member at byte ``start``, its .npy padded to begin at a multiple of 64, as its numbers do then."""
    info = zipfile.ZipInfo(f"{name}.npy")
    begin = start + _LOCAL_HEADER + len(info.filename.encode()) + _ZIP64_FIELD + 4
    padding = bytes(-begin % _ALIGNMENT)
    info.extra = struct.pack("<HH", _PADDING_FIELD, len(padding)) + padding
    with archive.open(info, "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
