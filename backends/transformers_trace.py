"""transformers' own models with every trace point of ours: recorded, or replaced on the way.

No backend: torch is. Importing this needs torch and transformers, to which it adds one attention
implementation, "tinyxp_trace": the eager one's arithmetic in the open.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from transformers.masking_utils import AttentionMaskInterface, eager_mask
from transformers.models.llama.modeling_llama import repeat_kv
from transformers.utils import logging

import tinyxp
from tinyxp import registry
from tinyxp.dtypes import dtype_name
from tinyxp.errors import CheckpointError, UnsupportedModelError
from tinyxp.formats.bundled import find_bundled
from tinyxp.inputs import Bounds, as_host_integers, as_host_mask

from .transformers import _without_bars, model

IMPLEMENTATION = "tinyxp_trace"


class Layout(NamedTuple):
    """Where a family of transformers keeps the modules whose inputs and outputs are our trace points."""

    embed: str
    layers: str
    final_norm: str
    attention: str  # within a layer, as all below
    outputs: Mapping[str, tuple[str, ...]]  # the points that a module's output holds, side by side
    inputs: Mapping[str, str]
    inside: tuple[str, ...]  # the points that only the attention function sees

    def points(self) -> list[str]:
        """The names of a block's points, in any order."""
        return [
            *(name for names in self.outputs.values() for name in names),
            *self.inputs.values(),
            *self.inside,
        ]


GPT2 = Layout(
    embed="transformer.drop",  # the sum of both embeddings
    layers="transformer.h",
    final_norm="transformer.ln_f",
    attention="attn",
    outputs={
        "ln_1": ("attn_norm",),
        "attn.c_attn": ("attn.q", "attn.k", "attn.v"),
        "attn.c_proj": ("attn.out",),
        "ln_2": ("mlp_norm",),
        "mlp.c_fc": ("mlp.up",),
        "mlp.c_proj": ("mlp.out",),
    },
    inputs={"attn.c_proj": "attn.heads", "ln_2": "attn_residual", "mlp.c_proj": "mlp.hidden"},
    inside=("attn.scores", "attn.weights"),
)
LLAMA = Layout(
    embed="model.embed_tokens",
    layers="model.layers",
    final_norm="model.norm",
    attention="self_attn",
    outputs={
        "input_layernorm": ("attn_norm",),
        "self_attn.q_proj": ("attn.q",),
        "self_attn.k_proj": ("attn.k",),
        "self_attn.v_proj": ("attn.v",),
        "self_attn.o_proj": ("attn.out",),
        "post_attention_layernorm": ("mlp_norm",),
        "mlp.gate_proj": ("mlp.gate",),
        "mlp.up_proj": ("mlp.up",),
        "mlp.down_proj": ("mlp.out",),
    },
    inputs={
        "self_attn.o_proj": "attn.heads",
        "post_attention_layernorm": "attn_residual",
        "mlp.down_proj": "mlp.hidden",
    },
    inside=("attn.q_rotated", "attn.k_rotated", "attn.scores", "attn.weights"),
)
LAYOUTS: dict[type, Layout] = {
    transformers.GPT2LMHeadModel: GPT2,
    transformers.LlamaForCausalLM: LLAMA,
    transformers.MistralForCausalLM: LLAMA,
    transformers.Qwen2ForCausalLM: LLAMA,
}


def trace(
    found: Any, ids: Any, *, mask: Any = None, positions: Any = None, put: Mapping[str, Any] | None = None
) -> dict[str, np.ndarray]:
    """Runs a model of transformers and returns trace point -> array, as ``tinyxp.trace`` does of ours.

    ``found`` is a GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM or Qwen2ForCausalLM of any dtype; it
    runs in eval mode, without gradients, with the arithmetic of its eager attention (where it was loaded with
    another one: in that formula, softmax in float32 at least). ids (b, t), mask (b, t) True on real tokens,
    positions (b, t) or (1, t), which default to counting each row's real tokens from 0. Names, order and
    shapes are those of ``tinyxp.trace``; dtypes the model's own, float32 for bfloat16. ``put`` maps trace
    points to arrays that stand in for what the model computed there: the run goes on from them, and they are
    what is returned there.

    Raises UnsupportedModelError naming a class or a part that is not known, ValueError naming ids, positions
    or a mask that do not fit, a point of ``put`` that is none, and an array of another shape. In any case the
    model is afterwards what it was.
    """
    layout = next((layout for kind, layout in LAYOUTS.items() if isinstance(found, kind)), None)
    if layout is None:
        known = ", ".join(kind.__name__ for kind in LAYOUTS)
        raise UnsupportedModelError(f"the model is a {type(found).__name__}; traced are {known}")
    arguments = _arguments(found, ids, mask, positions)
    wanted = {name: _as_numbers(name, x) for name, x in (put or {}).items()}
    run = _Run(layout, wanted, _softmax_dtype(found))
    with ExitStack() as undo, torch.no_grad():
        for module in found.modules():
            undo.callback(setattr, module, "training", module.training)
        found.eval()
        _open_attention(found, undo)
        run.watch(found, undo)
        found(**arguments, use_cache=False)
    for name in (f"blocks.{i}.{point}" for i in range(run.block + 1) for point in layout.points()):
        if name not in run.points:
            raise UnsupportedModelError(f"{type(found).__name__} computes {name} where it cannot be seen")
    for name in wanted:
        if name not in run.points:
            raise ValueError(f"put names {name!r}, which is no trace point of this model")
    return run.points


def open_model(path: str | os.PathLike[str], dtype: str | None = None) -> Any:
    """transformers' model of what ``tinyxp.load`` takes, in ``dtype`` (None: the files' own).

    A Hugging Face folder is read by transformers itself, from safetensors, running no code of the folder's;
    anything else by ``tinyxp.load``. Raises CheckpointError naming the folder where weights are missing or
    left over, and what ``tinyxp.load`` raises.
    """
    if dtype is not None:
        registry.backend("torch").dtype(dtype)
    folder = Path(path) if Path(path).exists() else find_bundled(path)
    if folder is None or not folder.is_dir():
        params = tinyxp.load(path)
        return model(params, dtype or dtype_name(params.dtype))
    try:
        found, report = _from_folder(folder, dtype or "auto")
    except Exception as error:  # its own, safetensors', huggingface_hub's and whatever a bad config leads to
        reason = textwrap.shorten(f"{type(error).__name__}: {error}", 250)
        raise CheckpointError(f"{folder}: transformers cannot load it: {reason}") from error
    if problems := {kind: sorted(names) for kind, names in report.items() if names}:
        raise CheckpointError(f"{folder}: transformers reports {problems}")
    return found.eval()


def _from_folder(folder: Path, dtype: str) -> Any:
    """The model, and what did not fit, which transformers would print as well."""
    log: Any = logging
    level = log.get_verbosity()
    log.set_verbosity_error()
    try:
        with _without_bars():
            return transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                attn_implementation="eager",
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    finally:
        log.set_verbosity(level)


def _arguments(found: Any, ids: Any, mask: Any, positions: Any) -> dict[str, torch.Tensor]:
    """What its forward takes. The mask is always given: without one, transformers takes positions that jump
    for several texts in one row, which do not see each other."""
    config = found.config
    ids = as_host_integers(ids, Bounds("ids", config.vocab_size, "the vocabulary size"))
    mask = np.ones(ids.shape, dtype=bool) if mask is None else as_host_mask(mask, ids.shape)
    if positions is None:
        positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    learned = Bounds("positions", config.max_position_embeddings, "max_position_embeddings")
    any_position = Bounds("positions", 2**31, "the limit")
    positions = as_host_integers(positions, learned if config.model_type == "gpt2" else any_position)
    if positions.shape not in ((1, ids.shape[1]), ids.shape):
        raise ValueError(f"positions has shape {positions.shape}; ids has {ids.shape}")
    arrays = {"input_ids": ids, "attention_mask": mask.astype(np.int64), "position_ids": positions}
    return {name: torch.from_numpy(x).to(found.device) for name, x in arrays.items()}


def _as_numbers(name: str, x: Any) -> torch.Tensor:
    try:
        return torch.from_numpy(np.array(x, dtype=np.float64, order="C"))
    except (TypeError, ValueError) as error:
        raise ValueError(f"put[{name!r}] is not an array of numbers: {error}") from None


def _softmax_dtype(found: Any) -> torch.dtype:
    """The eager attention's own, which in the Llama family is float32 even for float64."""
    is_gpt2 = found.config.model_type == "gpt2"
    if found.config._attn_implementation not in ("eager", None):
        return torch.promote_types(found.dtype, torch.float32)
    if is_gpt2 and found.config.reorder_and_upcast_attn:
        raise UnsupportedModelError("reorder_and_upcast_attn is true: such attention is not traced")
    return found.dtype if is_gpt2 else torch.float32


def _open_attention(found: Any, undo: ExitStack) -> None:
    """Switches to the implementation that shows its values; ``undo`` switches back."""
    configs = {id(x.config): x.config for x in found.modules() if hasattr(x, "config")}
    for config in configs.values():  # one, unless parts were put in from elsewhere
        if not hasattr(config, "_attn_implementation"):
            continue
        undo.callback(setattr, config, "_attn_implementation", config._attn_implementation)
        config._attn_implementation = IMPLEMENTATION


class _Run:
    """One pass through a model, seen by hooks; its blocks are counted as they are entered."""

    def __init__(self, layout: Layout, put: Mapping[str, torch.Tensor], softmax_dtype: torch.dtype) -> None:
        self.layout, self.put, self.softmax_dtype = layout, put, softmax_dtype
        self.points: dict[str, np.ndarray] = {}
        self.block = -1

    def watch(self, found: Any, undo: ExitStack) -> None:
        """Hooks every module of the layout; ``undo`` removes the hooks."""

        def part(of: Any, path: str) -> Any:
            try:
                return of.get_submodule(path)
            except AttributeError:
                raise UnsupportedModelError(f"{type(found).__name__} has no {path}") from None

        def on_input(module: Any, hook: Any) -> None:
            undo.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

        def on_output(module: Any, hook: Any) -> None:
            undo.callback(module.register_forward_hook(hook).remove)

        on_output(part(found, self.layout.embed), lambda module, args, x: self.tap("embed", x))
        for layer in dict.fromkeys(part(found, self.layout.layers)):  # a layer may run twice
            on_input(layer, self.enter)
            for path, point in self.layout.inputs.items():
                on_input(part(layer, path), self.seeing_input(point))
            on_input(
                part(layer, self.layout.attention), lambda module, args, more: (args, more | {"run": self})
            )
            for path, points in self.layout.outputs.items():
                on_output(part(layer, path), self.seeing_output(points))
            on_output(layer, self.leave)
        on_output(part(found, self.layout.final_norm), lambda module, args, x: self.tap("final_norm", x))
        on_output(found.get_output_embeddings(), lambda module, args, x: self.tap("logits", x))

    def tap(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """Records x under that name; x, or what was put in its place."""
        if name in self.put:
            if self.put[name].shape != x.shape:
                raise ValueError(
                    f"put[{name!r}] has shape {tuple(self.put[name].shape)}; the model has {tuple(x.shape)}"
                )
            x = self.put[name].to(x)
        kept = x.detach().cpu()
        self.points[name] = (kept.float() if kept.dtype == torch.bfloat16 else kept).numpy().copy()
        return x

    def named(self, point: str) -> str:
        return f"blocks.{self.block}.{point}"

    def enter(self, module: Any, args: Any, more: Any) -> None:
        self.block += 1

    def leave(self, module: Any, args: Any, x: torch.Tensor) -> torch.Tensor:
        """A block's output. Its sum before the MLP goes two ways, and the hook on the norm turns only one."""
        if (name := self.named("attn_residual")) in self.put:
            x = self.put[name].to(x) + torch.from_numpy(self.points[self.named("mlp.out")]).to(x)
        return self.tap(self.named("residual"), x)

    def seeing_input(self, point: str) -> Any:
        return lambda module, args, more: ((self.tap(self.named(point), args[0]), *args[1:]), more)

    def seeing_output(self, points: tuple[str, ...]) -> Any:
        def see(module: Any, args: Any, x: torch.Tensor) -> torch.Tensor:
            parts = x.chunk(len(points), dim=-1)
            seen = [self.tap(self.named(point), y) for point, y in zip(points, parts, strict=True)]
            return seen[0] if len(seen) == 1 else torch.cat(seen, dim=-1)

        return see

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, *, scaling: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """q (b, h, t, hd), k and v (b, g, s, hd), mask added to scores -> heads (b, t, h, hd), weights."""
        if "attn.q_rotated" in self.layout.inside:
            q, k = self.tap(self.named("attn.q_rotated"), q), self.tap(self.named("attn.k_rotated"), k)
        shared = q.shape[1] // k.shape[1]
        scores = torch.matmul(q, repeat_kv(k, shared).transpose(-1, -2)) * scaling
        scores = self.tap(self.named("attn.scores"), scores)
        masked = scores if mask is None else scores + mask
        weights = torch.softmax(masked, dim=-1, dtype=self.softmax_dtype).to(q.dtype)
        weights = self.tap(self.named("attn.weights"), weights)
        return torch.matmul(weights, repeat_kv(v, shared)).transpose(1, 2).contiguous(), weights


def _attention(module: Any, *arrays: Any, run: _Run, scaling: float, **ignored: Any) -> Any:
    """What transformers calls; the hook on the attention module hands it ``run``."""
    return run.attend(*arrays, scaling=scaling)


transformers.AttentionInterface.register(IMPLEMENTATION, _attention)
AttentionMaskInterface.register(IMPLEMENTATION, eager_mask)
