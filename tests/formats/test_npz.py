"""Our .npz: any config, exact dtypes, numpy.load; and archives that are hostile or foreign."""

from __future__ import annotations

import copy
import io
import json
import mmap
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp import CheckpointError, Config
from tinyxp.config import RopeScaling
from tinyxp.joint import JOINT

from .files import SIZES, draw

RECORD = "__tinyxp__.npy"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    tinyxp.save(draw(Config(**SIZES)), tmp_path / "m.npz")
    return tmp_path / "m.npz"


def rewrite(path: Path, compression: int = zipfile.ZIP_STORED, **changes: bytes | None) -> None:
    """The archive with members added, replaced or (None) left out; ``record`` is the config's."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    named = {
        RECORD if name == "record" else f"{name.replace('__', '.')}.npy": x for name, x in changes.items()
    }
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in (members | named).items():
            if data is not None:
                archive.writestr(name, data)


def npy(array: np.ndarray, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


def record_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(np.load(path)["__tinyxp__"].tobytes())
    return found


def npy_record(values: object) -> bytes:
    return npy(np.frombuffer(json.dumps(values).encode(), np.uint8))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_embeddings": True, "head_dim": 10},
        {"norm": "layer", "position": "learned", "mlp_bias": True},
        {"mlp": "gelu", "attn_out_bias": True},
        {"rope_scaling": RopeScaling(rope_type="llama3", factor=8.0), "rope_theta": 5e5},
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_any_config_comes_back(changes: dict[str, Any], dtype: str, tmp_path: Path) -> None:
    params = draw(Config(**SIZES, **changes), dtype)
    tinyxp.save(params, tmp_path / "new" / "m.npz")
    loaded = tinyxp.load(tmp_path / "new" / "m.npz")
    assert loaded.config == params.config
    for name, x in loaded.items():
        assert x.dtype == np.dtype(dtype)
        assert np.array_equal(x, params[name])
    with np.load(tmp_path / "new" / "m.npz", allow_pickle=False) as arrays:
        assert np.array_equal(arrays["blocks.1.attn.k.weight"], params["blocks.1.attn.k.weight"])


def test_bfloat16_keeps_its_bits(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    params = draw(Config(**SIZES)).to(torch, dtype="bfloat16")
    tinyxp.save(params, tmp_path / "m.npz")
    assert np.load(tmp_path / "m.npz")["embed.weight"].dtype == np.uint16
    for name, x in tinyxp.load(tmp_path / "m.npz", xp=torch).items():
        assert x.dtype == torch.bfloat16
        assert torch.equal(x, params[name])
    assert tinyxp.load(tmp_path / "m.npz")["embed.weight"].dtype == np.float32


def test_weights_stay_in_the_file(saved: Path) -> None:
    """But for those that are projected together, which are copied to lie together."""
    copied = [name for names in JOINT for name in names]
    for name, array in tinyxp.load(saved).items():
        assert isinstance(array, np.ndarray)
        if any(f".{part}." in name for part in copied):
            continue
        assert array.ctypes.data % 64 == 0
        owner: Any = array
        while isinstance(owner, np.ndarray | memoryview):
            owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
        assert isinstance(owner, mmap.mmap)


def test_compressed_members_are_rejected(saved: Path) -> None:
    rewrite(saved, zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="compressed"):
        tinyxp.load(saved)


def test_other_archives(saved: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(CheckpointError, match="no __tinyxp__"):
        tinyxp.load(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(CheckpointError, match=r"not an \.npz file"):
        tinyxp.load(tmp_path / "text.npz")
    saved.write_bytes(saved.read_bytes()[:-30])
    with pytest.raises(CheckpointError, match=r"not an \.npz file"):
        tinyxp.load(saved)


def test_object_arrays_are_rejected(saved: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return pytest.fail, ("unpickled",)

    objects = np.empty(24, object)
    objects[:] = [Evil() for _ in range(24)]
    rewrite(saved, final_norm__weight=npy(objects, allow_pickle=True))
    with pytest.raises(CheckpointError, match=r"final_norm\.weight has dtype '\|O'"):
        tinyxp.load(saved)


@pytest.mark.parametrize(
    "array, says",
    [
        (np.ones(24, np.int32), "has dtype '<i4'"),
        (np.ones(24, ">f4"), "has dtype '>f4'"),
        (np.ones(24, np.float64), "has dtype '<f8'"),
        (np.ones(23, np.float32), "has shape"),
        (np.ones((24, 1), np.float32), "has shape"),
        (np.asfortranarray(np.ones((6, 4), np.float32)), "C order"),
        (np.zeros(24, [("a", "<f4")]), "plain array"),
    ],
)
def test_members_that_do_not_fit(saved: Path, array: np.ndarray, says: str) -> None:
    rewrite(saved, final_norm__weight=npy(array))
    with pytest.raises(CheckpointError, match=says):
        tinyxp.load(saved)


def test_a_member_that_claims_more_than_it_holds(saved: Path) -> None:
    huge = npy(np.ones(24, np.float32)).replace(b"(24,), }", b"(2400000000,), }")
    for data in (huge, huge[:40], b"", npy(np.ones(24, np.float32))[:-4]):
        rewrite(saved, final_norm__weight=data)
        with pytest.raises(CheckpointError, match=r"final_norm\.weight"):
            tinyxp.load(saved)


def test_members_missing_and_unknown(saved: Path) -> None:
    original = saved.read_bytes()
    rewrite(saved, final_norm__weight=None)
    with pytest.raises(CheckpointError, match="its members differ: final_norm.weight"):
        tinyxp.load(saved)
    saved.write_bytes(original)
    record = record_of(saved)
    del record["dtypes"]["final_norm.weight"]
    rewrite(saved, final_norm__weight=None, record=npy_record(record))
    with pytest.raises(CheckpointError, match=r"missing final_norm\.weight"):
        tinyxp.load(saved)
    record["dtypes"]["other"] = "float32"
    rewrite(saved, other=npy(np.ones(2, np.float32)), record=npy_record(record))
    with pytest.raises(CheckpointError, match="unknown other"):
        tinyxp.load(saved)


@pytest.mark.parametrize(
    "change, says",
    [
        ({"version": 2}, "version 2"),
        ({"version": None}, "version None"),
        ({"config": 3}, "without config"),
        ({"dtypes": []}, "without config and dtypes"),
        ({"config": {"vocab_size": 3}}, "other fields"),
    ],
)
def test_bad_records(saved: Path, change: dict[str, Any], says: str) -> None:
    rewrite(saved, record=npy_record(record_of(saved) | change))
    with pytest.raises(CheckpointError, match=says):
        tinyxp.load(saved)


@pytest.mark.parametrize(
    "change, says",
    [
        ({"n_layers": 10**12}, "layers"),
        ({"n_layers": -1}, "n_layers is -1"),
        ({"d_model": 2**62}, "has shape"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "yarn"),
        ({"rope_scaling": 7}, "rope_scaling is 7"),
        ({"norm": ["rms"]}, "norm is"),
        ({"norm_eps": "x"}, "norm_eps"),
    ],
)
def test_bad_configs(saved: Path, change: dict[str, Any], says: str) -> None:
    record = record_of(saved)
    record["config"] |= change
    rewrite(saved, record=npy_record(record))
    with pytest.raises(CheckpointError, match=says):
        tinyxp.load(saved)


def test_bad_dtypes_and_json(saved: Path) -> None:
    record = record_of(saved)
    for kind in ("int8", None, ["float32"], "bfloat16"):
        record["dtypes"]["final_norm.weight"] = kind
        rewrite(saved, record=npy_record(record))
        with pytest.raises(CheckpointError, match=r"final_norm\.weight"):
            tinyxp.load(saved)
    rewrite(saved, record=npy(np.frombuffer(b"{", np.uint8)))
    with pytest.raises(CheckpointError, match="not JSON"):
        tinyxp.load(saved)
    rewrite(saved, record=npy(np.ones(3)))
    with pytest.raises(CheckpointError, match="__tinyxp__ of dtype '<f8'"):
        tinyxp.load(saved)


def test_members_that_share_their_bytes(saved: Path) -> None:
    # A small file whose directory names one member many times would fill memory in any other library.
    with zipfile.ZipFile(saved, "a") as archive:
        big = archive.getinfo("embed.weight.npy")
        for i in range(10):
            twin = copy.copy(big)
            twin.filename = f"twin{i}.npy"
            archive.filelist.append(twin)
        archive._didModify = True  # type: ignore[attr-defined]
    with pytest.raises(CheckpointError, match="overlap"):
        tinyxp.load(saved)


def test_the_first_files_have_no_head_bias(saved: Path) -> None:
    whole = tinyxp.load(saved).config
    record = record_of(saved)
    del record["config"]["head_bias"]
    rewrite(saved, record=npy_record(record))
    assert tinyxp.load(saved).config == whole
    for change in ({"window": 3}, {"mlp_bias": None}):
        values = record["config"] | change
        bad = record | {"config": {k: v for k, v in values.items() if v is not None or k == "rope_scaling"}}
        rewrite(saved, record=npy_record(bad))
        with pytest.raises(CheckpointError, match="has a config of other fields"):
            tinyxp.load(saved)


def test_a_local_header_that_is_cut_off(saved: Path) -> None:
    with zipfile.ZipFile(saved, "a") as archive:
        archive.comment = b"PK\x03\x04"  # the last bytes of the file, where a header of 30 begins
    data = bytearray(saved.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 42 : entry + 46] = (len(data) - 4).to_bytes(4, "little")
    saved.write_bytes(data)
    with pytest.raises(CheckpointError, match="where its directory says"):
        tinyxp.load(saved)
