"""Files of recorded traces: what is written comes back, and a bad file is one line that names it."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import tinyxp
from tests.formats.test_corruption import EDITS, bounded_work, corrupt
from tinyxp import CheckpointError, Config
from tinyxp.config import GPT2
from tinyxp.doctor import trace_files
from tinyxp.doctor.points import form, points_of
from tinyxp.doctor.trace_files import SUFFIXES, is_trace, read_trace, write_trace

IDS = np.array([[3, 1, 4], [1, 5, 9]])
MASK = np.array([[False, True, True], [True, True, False]])


def points(dtype: str = "float32", b: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        "embed": (b, 3, 4),
        "blocks.0.attn.q_rotated": (b, 2, 3, 2),
        "blocks.0.attn.scores": (b, 2, 3, 3),
        "blocks.10.residual": (b, 3, 4),
        "logits": (b, 3, 7),
    }
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def equal(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> bool:
    return list(found) == list(wanted) and all(
        found[name].dtype == wanted[name].dtype and np.array_equal(found[name], wanted[name])
        for name in wanted
    )


@pytest.fixture(params=SUFFIXES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"port{request.param}"


@pytest.mark.parametrize("mask", [None, MASK, MASK.astype(int)], ids=["whole", "bool", "int"])
@pytest.mark.parametrize("integer", ["int32", "int64", "uint16"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_what_is_written_comes_back(path: Path, dtype: str, integer: str, mask: np.ndarray | None) -> None:
    write_trace(path, points(dtype), ids=IDS.astype(integer), mask=mask)
    assert is_trace(path)
    batch, found = read_trace(path)
    assert batch.ids.dtype == np.int64
    assert batch.ids.tolist() == IDS.tolist()
    assert np.array_equal(batch.real, np.ones_like(MASK) if mask is None else MASK)
    assert (batch.mask is None) == (mask is None)
    assert equal(found, points(dtype))


def test_one_sequence_needs_no_batch_axis(path: Path) -> None:
    write_trace(path, {name: x[0] for name, x in points(b=1).items()}, ids=IDS[0], mask=MASK[0])
    batch, found = read_trace(path)
    assert batch.ids.tolist() == [[3, 1, 4]]
    assert batch.mask is not None
    assert batch.mask.tolist() == [[False, True, True]]
    assert equal(found, points(b=1))


def test_points_come_in_the_order_of_the_computation(path: Path) -> None:
    write_trace(path, dict(reversed(points().items())), ids=IDS)
    assert list(read_trace(path).points) == list(points())


@pytest.mark.parametrize(
    "laid",
    [
        np.asfortranarray,
        lambda x: np.ascontiguousarray(x.swapaxes(0, -1)).swapaxes(0, -1),
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x[..., ::-1][..., ::-1],
        lambda x: x.astype(x.dtype.newbyteorder(">")),
    ],
    ids=["fortran", "transposed", "strided", "reversed", "big-endian"],
)
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_arrays_in_any_layout(path: Path, dtype: str, laid: Callable[[np.ndarray], np.ndarray]) -> None:
    given = {name: laid(x) for name, x in points(dtype).items()}
    write_trace(path, given, ids=laid(IDS), mask=MASK)
    assert equal(read_trace(path).points, points(dtype))
    if path.suffix == ".npz":
        np.savez_compressed(path, ids=laid(IDS), mask=laid(MASK), **given)  # by hand
        batch, found = read_trace(path)
        assert equal(found, points(dtype))
        assert batch.ids.tolist() == IDS.tolist()


def test_what_was_read_may_be_changed(path: Path) -> None:
    write_trace(path, points(), ids=IDS)
    found = read_trace(path).points
    found["logits"] += 1.0
    assert equal(read_trace(path).points, points())


def test_other_programs_read_what_is_written(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    for name in ("a.npz", "a.safetensors"):
        write_trace(tmp_path / name, points("float16"), ids=IDS, mask=MASK)
    theirs = safetensors.load_file(tmp_path / "a.safetensors")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        assert theirs.keys() == set(archive.files) == {"ids", "mask", *points()}
        assert all(np.array_equal(theirs[name], archive[name]) for name in archive.files)
    assert theirs["mask"].dtype == bool


def test_bfloat16_of_safetensors_is_read_as_float32(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    logits = torch.tensor(points()["logits"]).bfloat16()
    save_file({"logits": logits, "ids": torch.tensor(IDS)}, tmp_path / "a.safetensors")
    found = read_trace(tmp_path / "a.safetensors").points["logits"]
    assert found.dtype == np.float32
    assert np.array_equal(found, logits.float().numpy())


def test_a_mask_of_odd_bytes_is_true_or_false(tmp_path: Path) -> None:
    odd = np.array([[0, 2, 255], [1, 7, 0]], np.uint8).view(bool)
    np.savez(tmp_path / "a.npz", ids=IDS, mask=odd, **points())
    mask = read_trace(tmp_path / "a.npz").batch.mask
    assert mask is not None
    assert mask.view(np.uint8).tolist() == MASK.astype(int).tolist()


def test_a_model_is_no_trace(tmp_path: Path) -> None:
    tinyxp.save(tinyxp.init(Config(n_layers=1)), tmp_path / "m.npz")
    tinyxp.save(tinyxp.init(Config(n_layers=1)), tmp_path / "m")
    assert not is_trace(tmp_path / "m.npz")
    assert not is_trace(tmp_path / "m" / "model.safetensors")
    assert not is_trace(tmp_path / "m")
    assert not is_trace(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("no zip")
    assert not is_trace(tmp_path / "text.npz")


@pytest.mark.parametrize(
    "config", [Config(n_layers=1), Config(**GPT2, n_layers=1, n_kv_heads=4)], ids=["llama", "gpt2"]
)
def test_forms_are_those_of_a_run(config: Config) -> None:
    found = tinyxp.trace(tinyxp.init(config), IDS)
    letters = {
        "b": 2,
        "t": 3,
        "d": config.d_model,
        "h": config.n_heads,
        "g": config.n_kv_heads,
        "hd": config.head_dim,
        "f": config.d_ff,
        "n": config.vocab_size,
    }
    for name in points_of(config):
        sizes = [part.split("*") for part in form(name).strip("()").split(", ")]
        assert found[name].shape == tuple(int(np.prod([letters[x] for x in part])) for part in sizes), name


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no ids": ({"ids": None}, "has no entry 'ids'"),
    "ids float": ({"ids": IDS.astype(np.float32)}, "ids has dtype float32"),
    "ids bool": ({"ids": IDS > 3}, "ids has dtype bool"),
    "ids negative": ({"ids": -IDS}, "ids holds -9"),
    "ids of three axes": ({"ids": IDS[None]}, "ids has shape (1, 2, 3)"),
    "ids empty": ({"ids": IDS[:, :0]}, "ids has shape (2, 0)"),
    "mask of other columns": ({"mask": MASK[:, :2]}, "mask has shape (2, 2); ids has (2, 3)"),
    "mask float": ({"mask": MASK.astype(np.float32)}, "mask has dtype float32"),
    "mask of twos": ({"mask": MASK * np.uint8(2)}, "mask holds 2"),
    "other rows": ({"logits": np.ones((3, 3, 7))}, "logits has shape (3, 3, 7); it must be (b, t, n)"),
    "other columns": ({"logits": np.ones((2, 1, 7))}, "logits has shape (2, 1, 7); it must be (b, t, n)"),
    "one row of two": ({"logits": np.ones((3, 7))}, "logits has shape (3, 7); it must be (b, t, n)"),
    "other keys": (
        {"blocks.0.attn.scores": np.ones((2, 2, 3, 4))},
        "blocks.0.attn.scores has shape (2, 2, 3, 4); it must be (b, h, t, t), and ids is (2, 3)",
    ),
    "heads last": (
        {"blocks.0.attn.q_rotated": np.ones((2, 3, 2, 2))},
        "blocks.0.attn.q_rotated has shape (2, 3, 2, 2); it must be (b, h, t, hd)",
    ),
    "no units": ({"logits": np.ones((2, 3, 0))}, "logits has shape (2, 3, 0)"),
    "unknown point": (
        {"blocks.0.attn.qq": np.ones((2, 3, 4))},
        "trace point is 'blocks.0.attn.qq'; known are",
    ),
    "integers": ({"logits": np.ones((2, 3, 7), int)}, "logits has dtype int64"),
}


@pytest.mark.parametrize("changes, words", WRONG.values(), ids=WRONG)
def test_contents_that_do_not_fit(path: Path, changes: dict[str, Any], words: str) -> None:
    arrays = {"ids": IDS, **points()} | changes
    arrays = {name: x for name, x in arrays.items() if x is not None}
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        pytest.importorskip("safetensors.numpy").save_file(arrays, path)
    assert words in refusal(path)
    if "ids" in arrays:
        with pytest.raises(ValueError, match=re.escape(words)):
            write_trace(
                path.with_stem("new"),
                {name: x for name, x in arrays.items() if name not in ("ids", "mask")},
                ids=arrays["ids"],
                mask=arrays.get("mask"),
            )
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def refusal(path: Path) -> str:
    """What reading a bad file says: one line, which names the file once."""
    with pytest.raises(CheckpointError) as caught:
        read_trace(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.count(str(path)) == 1
    assert "\n" not in message
    return message


def test_files_that_are_none(path: Path) -> None:
    assert "No such file" in refusal(path)
    path.write_bytes(b"")
    assert "is empty" in refusal(path)
    path.unlink()
    path.mkdir()
    assert "is a folder" in refusal(path)


def test_every_truncation_is_noticed(path: Path) -> None:
    write_trace(path, points(), ids=IDS)
    data = path.read_bytes()
    for length in range(1, len(data), 7):
        path.write_bytes(data[:length])
        refusal(path)


def npy(array: np.ndarray, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


FOREIGN: dict[str, tuple[bytes, str]] = {
    "objects": (npy(np.array([[{}]]), allow_pickle=True), "'|O', neither floating nor integer"),
    "records": (npy(np.zeros((2, 3), [("x", "f4")])), "not a plain array"),
    "texts": (npy(np.array([["a"]])), "'<U1', neither floating nor integer"),
    "complex": (npy(np.zeros((2, 3, 7), complex)), "'<c16', neither floating nor integer"),
    "wide": (npy(np.zeros((2, 3, 7), "<f4")).replace(b"<f4", b"<f9"), "'<f9', neither floating nor integer"),
    "huge": (
        npy(np.zeros((2, 3, 7), "<f4")).replace(b"(2, 3, 7), }      ", b"(2, 3, 7000000), }"),
        "(2, 3, 7000000) in 168 bytes",
    ),
    "version 2": (npy(np.zeros((2, 3, 7)), version=(2, 0)), "not a plain array in .npy 1.0"),
    "no array": (b"hello", "not a plain array"),
    "nothing": (b"", "not a plain array"),
}


@pytest.mark.parametrize("data, words", FOREIGN.values(), ids=FOREIGN)
def test_entries_that_are_no_plain_arrays(tmp_path: Path, data: bytes, words: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("ids.npy", npy(IDS))
        archive.writestr("logits.npy", data)
    assert words in refusal(tmp_path / "a.npz")


def test_archives_that_are_odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(npy(IDS))
    assert "is not an .npz file" in refusal(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("ids.npy", npy(IDS))
    assert "has the entry 'ids' in an unsupported compression" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ids.npy", npy(IDS))
        archive.writestr("ids", npy(IDS))
    assert "has the entry 'ids' twice" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ids\n.npy", npy(IDS))
    assert r"has the name 'ids\n', which is not printable" in refusal(path)
    write_trace(path, points(), ids=IDS)
    data = bytearray(path.read_bytes())
    data[data.rindex(b"PK\x01\x02") + 8] |= 1  # says that it is encrypted
    path.write_bytes(data)
    assert "encrypted" in refusal(path)
    monkeypatch.setattr(trace_files, "FILE_LIMIT", 10_000)
    np.savez_compressed(path, ids=IDS, logits=np.zeros((2, 3, 70_000)))
    assert "bytes" in refusal(path)
    np.savez_compressed(path, ids=IDS, logits=np.random.default_rng(0).normal(size=(2, 3, 7000)))
    assert read_trace(path).points["logits"].shape == (2, 3, 7000)


def test_safetensors_of_other_dtypes(tmp_path: Path) -> None:
    entries = {"ids": {"dtype": "C64", "shape": [1, 1], "data_offsets": [0, 8]}}
    header = json.dumps(entries).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    assert "entry ids has dtype C64, neither floating nor integer" in refusal(tmp_path / "a.safetensors")


@pytest.mark.parametrize("name", ["port", "port.npy", "port.pt"])
def test_other_suffixes_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a trace format; use .npz or .safetensors"):
        write_trace(tmp_path / name, points(), ids=IDS)
    assert not list(tmp_path.iterdir())


def test_a_trace_holds_something(path: Path) -> None:
    with pytest.raises(ValueError, match="there is no trace point besides ids"):
        write_trace(path, {}, ids=IDS)


def test_an_interrupted_write_leaves_what_was_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    write_trace(path, points(), ids=IDS)
    before = path.read_bytes()
    monkeypatch.setattr(np.lib.format, "write_array", interrupted)
    monkeypatch.setattr(np, "ascontiguousarray", interrupted)
    for where in (path, path.parent / "new" / "folder" / path.name):
        with pytest.raises(KeyboardInterrupt):
            write_trace(where, points("float64"), ids=IDS)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corrupt")


@pytest.mark.parametrize("form", [".npz", "compressed.npz", ".safetensors"])
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS)
def test_corrupt_files_are_read_or_refused(
    form: str, home: Path, edits: list[tuple[str, int, bytes]]
) -> None:
    path = home / f"a{form}"
    if form == "compressed.npz":
        np.savez_compressed(path, ids=IDS, mask=MASK, **points())
    else:
        write_trace(path, points(), ids=IDS, mask=MASK)
    path.write_bytes(corrupt(path.read_bytes(), edits))
    message = f"{path}: was read"
    try:
        with bounded_work():
            is_trace(path)
            found = read_trace(path)
        assert sum(x.nbytes for x in found.points.values()) < 10_000
    except CheckpointError as error:
        message = str(error)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message


@settings(max_examples=300)
@given(data=st.binary(max_size=200))
def test_bytes_of_any_kind_are_no_array(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        trace_files._array("logits", b"\x93NUMPY\x01\x00" + data)
