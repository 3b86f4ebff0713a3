"""transformers' models traced: the same names, shapes and values as ours, and a model that is left alone."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.parity.test_parity import widen_theirs
from tests.reference import distance, drawn, host, is_gpt2
from tinyxp import CheckpointError, Config, Params, UnsupportedModelError
from tinyxp.config import GPT2
from tinyxp.doctor.distance import excess, measure

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tinyxp.backends.transformers import model  # noqa: E402
from tinyxp.backends.transformers_trace import open_model, trace  # noqa: E402

ROTARY = Config(vocab_size=61)  # 4 heads on 2
CONFIGS = {
    "GPT2LMHeadModel": Config(
        **GPT2, vocab_size=61, max_seq_len=16, d_model=32, n_layers=2, n_heads=4, n_kv_heads=4, d_ff=40
    ),
    "GPT2LMHeadModel-untied-erf": Config(
        **GPT2 | {"tie_embeddings": False, "mlp": "gelu"},
        vocab_size=61,
        max_seq_len=16,
        d_model=32,
        n_layers=2,
        n_heads=4,
        n_kv_heads=4,
        d_ff=128,
    ),
    "LlamaForCausalLM": ROTARY,
    "LlamaForCausalLM-tied": replace(ROTARY, tie_embeddings=True, n_kv_heads=1),
    "LlamaForCausalLM-biases": replace(ROTARY, attn_bias=True, attn_out_bias=True, mlp_bias=True),
    "MistralForCausalLM": replace(ROTARY, d_model=30),
    "Qwen2ForCausalLM": replace(ROTARY, attn_bias=True, tie_embeddings=True, norm_eps=1e-6),
}
IDS = np.random.default_rng(3).integers(0, 61, (2, 12))
LEFT = np.arange(12) >= np.array([[0], [4]])
RIGHT = np.arange(12) < np.array([[7], [12]])
GAP = np.array([[True] * 5 + [False] * 3 + [True] * 4, [False] * 2 + [True] * 9 + [False]])
MASKS = {"none": None, "left": LEFT, "right": RIGHT, "gap": GAP}


@pytest.fixture(params=CONFIGS)
def named(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def params(named: str) -> Params:
    return drawn(CONFIGS[named]).to(dtype="float64")


@pytest.fixture
def theirs(named: str, params: Params) -> Any:
    """transformers' model in float64, as it is: its Llama family computes much in float32 all the same."""
    found = model(params, "float64")
    assert type(found).__name__ == named.partition("-")[0]
    return found


@pytest.fixture
def wide(theirs: Any, params: Params) -> Any:
    """The same, computing in float64 throughout."""
    if not is_gpt2(params.config):
        widen_theirs(theirs, params.config)
    return theirs


def real(name: str, x: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """The numbers of a point that belong to real tokens, and of scores to real keys, flat."""
    if mask is None:
        return x.reshape(-1)
    if name.endswith((".scores", ".weights")):
        pairs = mask[:, None, :, None] & mask[:, None, None, :]
        return x[np.broadcast_to(pairs, x.shape)]
    return (x.swapaxes(1, 2) if x.ndim == 4 else x)[mask].reshape(-1)


def check(found: dict[str, np.ndarray], ours: dict[str, Any], mask: Any, tolerance: float) -> None:
    """All points, in order, of these shapes, within ``tolerance`` times a point's largest number."""
    assert list(found) == list(ours)
    for name, x in found.items():
        y = host(ours[name])
        assert (x.shape, x.dtype) == (y.shape, y.dtype), name
        y = real(name, y, mask)
        assert distance(real(name, x, mask), y) <= tolerance * np.max(np.abs(y)), name


def untouched(found: Any, ids: np.ndarray = IDS, mask: np.ndarray | None = None) -> Any:
    """What the model answers when nobody looks."""
    more = {}
    if mask is not None:
        positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
        more = {"attention_mask": torch.from_numpy(mask), "position_ids": torch.from_numpy(positions)}
    more |= {"output_attentions": True, "output_hidden_states": True} if is_eager(found) else {}
    with torch.no_grad():
        return found(torch.from_numpy(ids), use_cache=False, **more)


def is_eager(found: Any) -> bool:
    return found.config._attn_implementation == "eager"


@pytest.mark.parametrize("padding", MASKS)
def test_every_point_is_ours(params: Params, wide: Any, padding: str) -> None:
    mask = MASKS[padding]
    ours = tinyxp.trace(params, IDS, mask=mask)
    found = trace(wide, IDS, mask=mask)
    check(found, ours, mask, 1e-12)
    if mask is not None:  # real queries give padding no weight at all
        for name in (name for name in found if name.endswith(".weights")):
            hidden = mask[:, None, :, None] & ~mask[:, None, None, :]
            assert not found[name][np.broadcast_to(hidden, found[name].shape)].any()


@pytest.mark.parametrize("positions", [np.arange(12)[None] + 3, IDS % 16], ids=["shifted", "any"])
def test_positions_may_be_given(params: Params, wide: Any, positions: np.ndarray) -> None:
    """Those that jump are no boundary between texts, as they are to transformers where it gets no mask."""
    check(trace(wide, IDS, positions=positions), tinyxp.trace(params, IDS, positions=positions), None, 1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("padding", MASKS)
def test_it_is_the_model_itself_bit_for_bit(params: Params, padding: str, dtype: str) -> None:
    mask, found = MASKS[padding], model(params, dtype)
    expected = untouched(found, mask=mask)
    points = trace(found, IDS, mask=mask)
    kept = "float32" if dtype == "bfloat16" else dtype
    assert {x.dtype.name for x in points.values()} == {kept}
    wanted = {"logits": expected.logits, "embed": expected.hidden_states[0]}
    wanted |= {f"blocks.{i}.attn.weights": x for i, x in enumerate(expected.attentions)}
    wanted |= {"blocks.0.residual": expected.hidden_states[1], "final_norm": expected.hidden_states[-1]}
    for name, x in wanted.items():
        np.testing.assert_array_equal(points[name], x.to(getattr(torch, kept)).numpy(), err_msg=name)


def test_a_model_with_another_attention(params: Params) -> None:
    found = model(params, "float32")
    expected = trace(found, IDS, mask=LEFT)
    found.set_attn_implementation("sdpa")
    points = trace(found, IDS, mask=LEFT)
    assert found.config._attn_implementation == "sdpa"
    for name, x in expected.items():  # in float32 the formula is the same
        np.testing.assert_array_equal(points[name], x, err_msg=name)
    assert distance(points["logits"][LEFT], untouched(found, mask=LEFT).logits.numpy()[LEFT]) < 1e-4


def replacement(name: str, x: np.ndarray) -> np.ndarray:
    """A wrong value for a point, of the right shape; weights still add up to 1."""
    rng = np.random.default_rng(len(name))
    if name.endswith(".weights"):
        return np.asarray(rng.dirichlet(np.ones(x.shape[-1]), x.shape[:-1]))
    return np.asarray(x + rng.normal(0.0, 0.3, x.shape))


def test_every_point_can_be_replaced(params: Params, wide: Any) -> None:
    clean = tinyxp.trace(params, IDS)
    for name, x in clean.items():
        wrong = replacement(name, host(x))
        ours: dict[str, Any] = {}

        def tap(at: str, y: Any, name: str = name, wrong: np.ndarray = wrong, ours: Any = ours) -> Any:
            ours[at] = wrong if at == name else y
            return ours[at]

        tinyxp.forward(params, IDS, tap=tap)
        found = trace(wide, IDS, patch={name: wrong})
        assert distance(host(clean["logits"]), found["logits"]) > 1e-3, name
        np.testing.assert_array_equal(found[name], wrong)
        check(found, ours, None, 1e-12)


def test_a_wrong_model_is_healed(params: Params, theirs: Any) -> None:
    """Right values patched in hide what is wrong before them, and the run goes on from them exactly."""
    right = trace(theirs, IDS)
    broken = copy.deepcopy(theirs)
    layers = broken.transformer.h if is_gpt2(params.config) else broken.model.layers
    with torch.no_grad():
        for weight in layers[0].parameters():
            weight.mul_(2.0)
    assert distance(trace(broken, IDS)["logits"], right["logits"]) > 0.1
    inside = {name: x for name, x in right.items() if name.startswith("blocks.0.")}
    for patch in (inside, {"blocks.0.residual": right["blocks.0.residual"]}):
        np.testing.assert_array_equal(trace(broken, IDS, patch=patch)["logits"], right["logits"])
    # In the middle: the sum after attention goes on into the norm and past the MLP.
    with torch.no_grad():
        for name, weight in layers[0].named_parameters():
            if not name.startswith(("self_attn", "attn", "input_layernorm", "ln_1")):
                weight.div_(2.0)
    patch = {"blocks.0.attn_residual": right["blocks.0.attn_residual"]}
    np.testing.assert_array_equal(trace(broken, IDS, patch=patch)["logits"], right["logits"])


def test_put_in_bfloat16(params: Params) -> None:
    found = model(params, "bfloat16")
    clean = trace(found, IDS)
    for name in ("blocks.0.attn.q", "blocks.1.attn_residual", "blocks.1.attn.weights"):
        again = trace(found, IDS, patch={name: clean[name]})
        for at, x in again.items():
            np.testing.assert_array_equal(x, clean[at], err_msg=f"{at} after {name}")


def state(found: Any) -> list[Any]:
    """All that a trace changes while it runs."""
    modules = list(found.modules())
    hooks = [(*m._forward_hooks.values(), *m._forward_pre_hooks.values()) for m in modules]
    return [[m.training for m in modules], hooks, found.config._attn_implementation, found.config.to_dict()]


def boom(module: Any, args: Any, output: Any) -> None:
    raise RuntimeError("boom")


def test_the_model_is_afterwards_what_it_was(theirs: Any) -> None:
    expected = trace(theirs, IDS)["logits"]
    theirs.train()  # with dropout, in GPT-2
    (theirs.transformer.h if hasattr(theirs, "transformer") else theirs.model.layers)[1].eval()
    theirs.lm_head.config = {"of": "somebody else's"}
    graphs: list[bool] = []
    theirs.lm_head.register_forward_hook(lambda module, args, output: graphs.append(output.requires_grad))
    before, keys = state(theirs), transformers.AttentionInterface().valid_keys()
    points = trace(theirs, IDS)
    np.testing.assert_array_equal(points["logits"], expected)
    assert graphs == [False]
    assert state(theirs) == before
    assert transformers.AttentionInterface().valid_keys() == keys
    with pytest.raises(ValueError, match=r"patch\['logits'\] has shape \(1,\); the model has \(2, 12, 61\)"):
        trace(theirs, IDS, patch={"logits": [1.0]})
    assert state(theirs) == before
    theirs.lm_head.register_forward_hook(boom)
    before = state(theirs)
    with pytest.raises(RuntimeError, match="boom"):
        trace(theirs, IDS)
    assert state(theirs) == before
    assert all(x.requires_grad for x in theirs.parameters())
    assert points["logits"].flags.owndata


def test_two_models_at_once(params: Params) -> None:
    """A trace within a trace, as where one side of a comparison asks the other."""
    found, other = model(params, "float32"), model(params, "float64")
    inner: list[dict[str, np.ndarray]] = []
    hook = found.lm_head.register_forward_hook(lambda module, args, output: inner.append(trace(other, IDS)))
    outer = trace(found, IDS)
    hook.remove()
    for points, alone in ((outer, trace(found, IDS)), (inner[0], trace(other, IDS))):
        for name, x in alone.items():
            np.testing.assert_array_equal(points[name], x, err_msg=name)


@pytest.mark.parametrize("named", ["GPT2LMHeadModel", "LlamaForCausalLM"])
def test_a_layer_that_runs_twice_is_two_blocks(named: str, params: Params, wide: Any) -> None:
    body, field = (wide.transformer, "h") if is_gpt2(params.config) else (wide.model, "layers")
    layers = list(getattr(body, field))
    setattr(body, field, torch.nn.ModuleList([*layers, layers[0]]))
    wide.config.num_hidden_layers = 3
    arrays = dict(params) | {
        name.replace("blocks.0.", "blocks.2."): x
        for name, x in params.items()
        if name.startswith("blocks.0.")
    }
    ours = Params(arrays, replace(params.config, n_layers=3))
    check(trace(wide, IDS), tinyxp.trace(ours, IDS), None, 1e-12)


def test_bad_input_is_one_clear_error(params: Params, theirs: Any) -> None:
    ids = IDS.copy()
    ids[1, 3] = 61
    with pytest.raises(
        ValueError, match="ids holds 61; it must be 0 or more and below the vocabulary size 61"
    ):
        trace(theirs, ids)
    with pytest.raises(ValueError, match=r"ids has shape \(12,\); it must be \(batch, time\)"):
        trace(theirs, IDS[0])
    with pytest.raises(ValueError, match=r"mask has shape \(2, 3\); ids has \(2, 12\)"):
        trace(theirs, IDS, mask=LEFT[:, :3])
    with pytest.raises(ValueError, match=r"positions has shape \(2, 3\); ids has \(2, 12\)"):
        trace(theirs, IDS, positions=np.zeros((2, 3), np.int64))
    with pytest.raises(
        ValueError, match="patch names 'blocks.2.residual', which is no trace point of this model"
    ):
        trace(theirs, IDS, patch={"blocks.2.residual": np.zeros((2, 12, 32))})
    with pytest.raises(ValueError, match=r"patch\['embed'\] is not an array of numbers"):
        trace(theirs, IDS, patch={"embed": ["a"]})
    if is_gpt2(params.config):
        with pytest.raises(ValueError, match="positions holds 16; .* below max_position_embeddings 16"):
            trace(theirs, np.zeros((1, 17), np.int64))
        with pytest.raises(ValueError, match="'blocks.0.attn.q_rotated', which is no trace point"):
            trace(theirs, IDS, patch={"blocks.0.attn.q_rotated": np.zeros((2, 4, 12, 8))})


def test_a_class_that_is_not_known_is_named() -> None:
    config = transformers.GPTNeoConfig(
        hidden_size=8, num_layers=1, num_heads=2, attention_types=[[["global"], 1]]
    )
    with pytest.raises(
        UnsupportedModelError, match="GPTNeoForCausalLM; it must be one of GPT2LMHeadModel, Llama"
    ):
        trace(transformers.GPTNeoForCausalLM(config), IDS)
    with pytest.raises(UnsupportedModelError, match="the model is a Linear"):
        trace(torch.nn.Linear(2, 2), IDS)


def test_parts_that_are_not_transformers_are_named() -> None:
    found = model(drawn(ROTARY))
    del found.model.layers[1].mlp.gate_proj
    before = state(found)
    with pytest.raises(UnsupportedModelError, match="LlamaForCausalLM has no mlp.gate_proj"):
        trace(found, IDS)
    assert state(found) == before

    class Deaf(torch.nn.Module):
        """An attention of somebody's own."""

        def __init__(self, old: Any) -> None:
            super().__init__()
            self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
                old.q_proj,
                old.k_proj,
                old.v_proj,
                old.o_proj,
            )

        def forward(self, hidden_states: Any, **more: Any) -> Any:
            q, k, v = self.q_proj(hidden_states), self.k_proj(hidden_states), self.v_proj(hidden_states)
            return self.o_proj(q + k.repeat(1, 1, 2) + v.repeat(1, 1, 2)), None

    found = model(drawn(ROTARY))
    found.model.layers[1].self_attn = Deaf(found.model.layers[1].self_attn)
    with pytest.raises(UnsupportedModelError, match=r"computes blocks\.1\.attn\.q_rotated where no hook can"):
        trace(found, IDS)


def test_gpt2s_upcast_attention_is_refused_where_it_is_used() -> None:
    found = model(drawn(CONFIGS["GPT2LMHeadModel"]))
    found.config.reorder_and_upcast_attn = True
    with pytest.raises(UnsupportedModelError, match="reorder_and_upcast_attn"):
        trace(found, IDS)
    found.set_attn_implementation("sdpa")  # which does not ask
    assert len(trace(found, IDS)) == 31


def test_attention_windows_are_those_of_the_model() -> None:
    """We have none, but a wrong port may: the mask is the one that transformers makes."""
    found = model(drawn(CONFIGS["MistralForCausalLM"]))
    found.config.sliding_window = 4
    points = trace(found, IDS)
    near = np.tri(12, dtype=bool) & ~np.tri(12, k=-4, dtype=bool)
    np.testing.assert_array_equal(
        points["blocks.1.attn.weights"] > 0.0, np.broadcast_to(near, (2, 4, 12, 12))
    )
    np.testing.assert_array_equal(points["logits"], untouched(found).logits.numpy())


# Models in files


def test_a_folder_is_read_by_transformers(params: Params, named: str, tmp_path: Path) -> None:
    single = params.to(dtype="float32")
    tinyxp.save(single, tmp_path)
    for dtype in (None, "float32", "float64", "bfloat16"):
        found = open_model(tmp_path, dtype)
        assert (type(found).__name__, found.dtype) == (
            named.partition("-")[0],
            getattr(torch, dtype or "float32"),
        )
        assert is_eager(found)
        assert not found.training
        expected = untouched(model(single, dtype or "float32")).logits
        np.testing.assert_array_equal(untouched(found).logits.float().numpy(), expected.float().numpy())


def test_other_files_are_read_by_us(params: Params, tmp_path: Path) -> None:
    tinyxp.save(params, tmp_path / "model.npz")
    for dtype in (None, "float32"):
        found = open_model(tmp_path / "model.npz", dtype)
        assert found.dtype == getattr(torch, dtype or "float64")
        expected = untouched(model(params, dtype or "float64")).logits.numpy()
        np.testing.assert_array_equal(untouched(found).logits.numpy(), expected)


def test_the_included_model() -> None:
    found = open_model("holmes", "float32")
    ids = np.random.default_rng(0).integers(0, 7168, (1, 9))
    check(trace(found, ids), tinyxp.trace(tinyxp.load("holmes", dtype="float32"), ids), None, 1e-5)


@pytest.fixture
def edit(tmp_path: Path) -> Callable[..., Path]:
    """A folder with one of its config's or its tensors' values changed; None takes it out."""
    safetensors = pytest.importorskip("safetensors.numpy")

    def make(*, config: dict[str, Any] | None = None, tensors: dict[str, Any] | None = None) -> Path:
        tinyxp.save(drawn(ROTARY), tmp_path)
        values = json.loads((tmp_path / "config.json").read_text()) | (config or {})
        (tmp_path / "config.json").write_text(json.dumps(values))
        arrays = safetensors.load_file(tmp_path / "model.safetensors") | (tensors or {})
        arrays = {name: x for name, x in arrays.items() if x is not None}
        safetensors.save_file(arrays, tmp_path / "model.safetensors", metadata={"format": "pt"})
        return tmp_path

    return make


def test_a_folder_that_does_not_fit_is_one_error(
    edit: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    norm = "model.norm.weight"
    for changes, message in (
        ({"tensors": {norm: None}}, "transformers reports {'missing_keys': ['model.norm.weight']}"),
        ({"tensors": {"stray": np.zeros(2)}}, "transformers reports {'unexpected_keys': ['stray']}"),
        (
            {"tensors": {norm: np.zeros(3, np.float32)}},
            "transformers reports {'mismatched_keys': [('model.norm",
        ),
        ({"config": {"model_type": "foo"}}, "transformers cannot load it: ValueError: "),
        ({"config": {"hidden_act": "foo"}}, "transformers cannot load it: KeyError: 'foo'"),
        ({"config": {"num_hidden_layers": "x"}}, "transformers cannot load it: "),
    ):
        folder = edit(**changes)
        with pytest.raises(CheckpointError) as caught:
            open_model(folder)
        assert str(caught.value).startswith(f"{folder}: {message}")
        assert "\n" not in str(caught.value)
    folder = edit()
    (folder / "model.safetensors").unlink()
    torch.save({norm: torch.ones(2)}, folder / "pytorch_model.bin")  # a pickle is not looked at
    with pytest.raises(CheckpointError, match=r"no file named model\.safetensors"):
        open_model(folder)
    with pytest.raises(CheckpointError, match="nowhere: no such file or folder"):
        open_model(folder / "nowhere")
    with pytest.raises(ValueError, match="dtype is 'float65'; known are float64"):
        open_model(folder, "float65")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["stories260k", "gpt-nano-sort"])
def test_trained_models(test_data: Path, name: str) -> None:
    """Each float32 point is as far from the float64 referee as ours, which sums in another order."""
    folder = test_data / name
    params, found = tinyxp.load(folder), open_model(folder, "float32")
    ids = np.random.default_rng(0).integers(0, params.config.vocab_size, (2, 11))
    points = trace(found, ids)
    np.testing.assert_array_equal(points["logits"], untouched(found, ids).logits.numpy())
    ours = tinyxp.trace(params, ids)
    check(points, ours, None, 1e-5)
    referee = tinyxp.trace(params.to(dtype="float64"), ids)
    for at, truth in referee.items():
        theirs, noise = (measure(x[at], truth, np.array(True)) for x in (points, ours))
        assert excess(theirs, noise, "float32") <= 1.0, at
